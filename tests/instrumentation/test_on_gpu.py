"""What only a GPU can show: capture of CUDA graphs, and times of the device. Skipped without one."""

import json

import pytest

torch = pytest.importorskip("torch")

import gapscope_instrumentation as gs  # noqa: E402
from gapscope_instrumentation import capturing, contract  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def slots(folder):
    """Return the slots of the one log in a folder."""
    (path,) = folder.glob("*.gslog")
    data = path.read_bytes()
    assert len(data) % contract.LOG_SLOT_BYTES == 0
    return [
        data[i : i + contract.LOG_SLOT_BYTES]
        for i in range(contract.LOG_SLOT_BYTES, len(data), contract.LOG_SLOT_BYTES)
    ]


def marks_named(folder, name):
    return [s for s in slots(folder) if s[0] == 1 and s[1] == contract.MARKS.index(name)]


def device_times_of(folder, name):
    return [s for s in slots(folder) if s[0] == 5 and s[1] == contract.MARKS.index(name)]


def integers(slot):
    """Thread, start, end and error of a mark's slot."""
    return [int.from_bytes(slot[at : at + 8], "little", signed=True) for at in (4, 12, 20, 28)]


def test_marks_in_a_captured_graph_are_noted_once_and_replays_are_marked(tmp_path):
    edge = gs.Edge(src=0, dst=1)
    x = torch.ones(64, device="cuda")

    def stage(t):
        with gs.produce(edge):
            return t * 2 + 1

    stage(x)
    torch.cuda.synchronize()
    with gs.capture(tmp_path, rank=0):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = stage(x)
            with gs.submit(edge):
                pass
        assert not capturing.threads
        for _ in range(50):
            with gs.produce(edge):
                graph.replay()
        torch.cuda.synchronize()
    assert y[0].item() == 3
    assert len(marks_named(tmp_path, "produce")) == 50
    assert not marks_named(tmp_path, "submit")
    notes = [json.loads(s[32:].rstrip(b"\0")) for s in slots(tmp_path) if s[0] == 2 and s[1] == 3]
    assert [n["mark"] for n in notes if n["note"] == "captured"] == ["produce", "submit"]


def test_compiled_with_graph_trees_keeps_one_graph_and_its_result(tmp_path):
    edge = gs.Edge(src=0, dst=1)

    def stage(t):
        with gs.produce(edge):
            return torch.relu(t @ t) + 1

    x = torch.randn(32, 32, device="cuda")
    with gs.capture(tmp_path):
        compiled = torch.compile(stage, fullgraph=True, mode="reduce-overhead")
        for _ in range(5):
            with gs.consume(edge):
                y = compiled(x).clone()
        torch.cuda.synchronize()
    torch.testing.assert_close(y, torch.relu(x @ x) + 1, rtol=1e-3, atol=1e-3)
    assert len(marks_named(tmp_path, "consume")) == 5
    assert not marks_named(tmp_path, "produce")


def test_device_times_lie_between_what_the_host_saw_before_and_after(tmp_path):
    edge = gs.Edge(src=0, dst=1)
    seen = []
    with gs.capture(tmp_path, device_times=True):
        from time import monotonic_ns

        for _ in range(20):
            handoff = edge.handoff()
            torch.cuda.synchronize()
            before = monotonic_ns()
            with gs.produce(handoff):
                torch.cuda._sleep(2_000_000)
            torch.cuda.synchronize()
            seen.append((before, monotonic_ns()))
    found = device_times_of(tmp_path, "producer_finish")
    assert len(found) == 20
    times = sorted(integers(s)[1] for s in found)
    errors = [integers(s)[3] for s in found]
    assert all(0 < e < 1_000_000 for e in errors)
    for (before, after), at in zip(seen, times, strict=True):
        assert before - max(errors) <= at <= after + max(errors)
        assert at - before > 500_000  # the kernel runs for about a millisecond


def test_no_device_is_synchronized_by_a_mark(tmp_path):
    edge = gs.Edge(src=0, dst=1)
    done = torch.cuda.Event()
    with gs.capture(tmp_path, device_times=True):
        with gs.produce(edge):  # the first one calibrates
            pass
        torch.cuda.synchronize()
        with gs.produce(edge):
            torch.cuda._sleep(2_000_000_000)
            done.record()
        with gs.submit(edge):
            pass
        still_running = not done.query()
        torch.cuda.synchronize()
    assert still_running

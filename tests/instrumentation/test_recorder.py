"""On and off, the torch emitter under a real profiler, and the watch on captures of graphs."""

import subprocess
import sys
import threading

import gapscope_instrumentation as gs
import pytest
from gapscope_instrumentation import capturing, contract, identity, marking


def annotations(profiler, tmp_path):
    import json

    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [(e["name"], e["cat"]) for e in events if str(e.get("name", "")).startswith(contract.PREFIX)]


def test_marks_are_off_until_asked_for():
    code = "import gapscope_instrumentation as gs; print(gs.status()); print(gs.submit(gs.Handoff(0, 1, 0)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.startswith("{'marks': 'off'}")
    assert "Idle" in found


def test_importing_loads_neither_torch_nor_nvtx_nor_numpy():
    code = (
        "import sys, gapscope_instrumentation; print(sorted({'torch', 'nvtx', 'numpy', 'polars'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_captures_nest_and_the_last_one_switches_off(tmp_path):
    outer, inner = gs.capture(tmp_path), gs.capture(tmp_path / "other")
    with outer:
        assert gs.status()["marks"] == "on"
        with inner:
            inner.start()  # the second time does nothing
        assert gs.status()["marks"] == "on"
        assert marking.emitters()
    assert gs.status() == {"marks": "off"}
    assert not marking.emitters()


def test_a_torch_profiler_gets_the_marks_while_it_is_on_and_only_then(tmp_path):
    torch = pytest.importorskip("torch")
    edge = gs.Edge(src=0, dst=1)
    with gs.capture(tmp_path):
        with gs.submit(edge):
            pass
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            with gs.submit(edge.handoff(mb=3)):
                pass
            gs.available(gs.Handoff(0, 1, 9))
            before = gs.receive(gs.Handoff(0, 1, 10)).start()
        before.end()  # the profiler is off by now
        with gs.submit(edge):
            pass
    found = annotations(profiler, tmp_path)
    kind = "user_annotation"
    assert ("gapscope::submit src=0 dst=1 seq=0 mb=3", kind) in found
    assert ("gapscope::available src=0 dst=1 seq=9", kind) in found
    assert not [name for name, _ in found if "seq=1 " in name]


def test_torch_that_is_loaded_after_the_start_is_noticed_at_the_next_step(tmp_path):
    code = f"""
import gapscope_instrumentation as gs
with gs.capture({str(tmp_path)!r}):
    assert gs.status()["torch"] == "torch is not loaded"
    import torch
    with gs.step(1):
        assert gs.status()["torch"].startswith("torch "), gs.status()
        assert gs.status()["torch"] != "torch is not loaded"
    def stage(x):
        with gs.produce(gs.Handoff(0, 1, 0)):
            return x + 1
    torch.compile(stage, fullgraph=True, backend="eager")(torch.ones(1))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_rank_is_the_users_then_of_the_launcher(monkeypatch, no_group):
    assert identity.rank() is None
    monkeypatch.setenv("SLURM_PROCID", "5")
    assert identity.rank() == 5
    monkeypatch.setenv("RANK", "4")
    assert identity.rank() == 4
    identity.state_rank(2)
    assert identity.rank() == 2
    identity.state_rank(None)
    assert identity.rank() == 4


def test_the_rank_of_a_capture_ends_with_it(tmp_path, no_group):
    with gs.capture(tmp_path, rank=0):
        with gs.capture(tmp_path, rank=3):
            assert identity.rank() == 3
        assert identity.rank() == 0
    assert identity.rank() is None


def test_captures_of_graphs_are_watched_by_thread_and_restored(tmp_path, remembered, monkeypatch):
    torch = pytest.importorskip("torch")

    class Graph:
        """Stands for torch.cuda.CUDAGraph, which cannot capture without a GPU."""

        def capture_begin(self, pool=None):
            return "begun"

        def capture_end(self):
            return "ended"

    begin, end = Graph.capture_begin, Graph.capture_end
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    capturing.unwatch()
    capturing.watch()
    capturing.watch()
    edge, graph = gs.Edge(src=0, dst=1), Graph()
    assert graph.capture_begin(pool=1) == "begun"
    with gs.submit(edge):  # what is captured does not run now
        pass
    gs.available(edge)
    other = threading.Thread(target=lambda: gs.submit(edge).start().end())
    other.start()
    other.join()
    assert graph.capture_end() == "ended"
    with gs.submit(edge):
        pass
    assert [text for _, text in remembered.said()] == ["src=0 dst=1 seq=1", "src=0 dst=1 seq=2"]
    assert not remembered.said("point")
    capturing.unwatch()
    assert (Graph.capture_begin, Graph.capture_end) == (begin, end)

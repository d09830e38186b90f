"""The mark log: what it holds, that a killed or forked job loses little, and that memory stays flat."""

import copy
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gapscope_instrumentation as gs
import pytest
from gapscope_instrumentation import contract, marking
from gapscope_instrumentation.emitters import log as log_module
from gapscope_instrumentation.emitters.log import LogEmitter


def marks_of(records):
    return [(r["mark"], r["src"], r["dst"], r["seq"]) for r in records if r["what"] == "mark"]


def test_all_that_is_known_of_a_handoff_is_in_the_log(tmp_path, read_log):
    edge = gs.Edge(src=0, dst=1, channel=2, kind="pp", transport="gloo", device="cpu")
    with gs.capture(tmp_path, rank=0):
        with gs.step(9):
            handoff = edge.handoff(mb=3, bytes=1 << 40, dir="bwd", src_stage=1, dst_stage=0, name="hidden")
        with gs.submit(handoff):
            pass
        gs.available(handoff)
        path = gs.log_path()
    path = path or next(tmp_path.glob("*.gslog"))
    records = read_log(path)
    step, submit, available = (r for r in records if r["what"] == "mark")
    expected = {
        "src": 0, "dst": 1, "seq": 0, "channel": 2, "slot": 0, "step": 9, "mb": 3, "bytes": 1 << 40, "dir": "bwd",
        "src_stage": 1, "dst_stage": 0, "kind": "pp", "transport": "gloo", "device": "cpu", "name": "hidden",
    }  # fmt: skip
    for record, mark in ((submit, "submit"), (available, "available")):
        assert record["mark"] == mark
        assert {name: record[name] for name in expected} == expected
        assert record["error_ns"] is None
    assert step["mark"] == "step"
    assert (step["step"], step["src"], step["seq"]) == (9, None, None)
    assert submit["start_ns"] <= submit["end_ns"] <= available["start_ns"] == available["end_ns"]
    about = [r for r in records if r["what"] == "process"][-1]
    assert (about["rank"], about["pid"]) == (0, os.getpid())
    assert about["host"]
    assert sum(r["what"] == "anchor" for r in records) >= 1


def test_what_does_not_fit_into_columns_is_written_in_text(tmp_path, read_log):
    with gs.capture(tmp_path), gs.request("a" * 300, tenant="x"):
        for handoff in (
            gs.Handoff(0, 1, 5, tokens=17),
            gs.Handoff(0, 1, 6, slot=70_000),
            gs.Handoff(0, 2**40, 7),
            gs.Handoff(0, 1, 8, job="prefill"),
            gs.Handoff(0, 1, 9, dir="sideways"),
        ):
            with gs.submit(handoff):
                pass
    (path,) = tmp_path.glob("*.gslog")
    texts = [r["text"] for r in read_log(path) if r["what"] == "text"]
    assert texts == [
        "gapscope::submit src=0 dst=1 seq=5 tokens=17",
        "gapscope::submit src=0 dst=1 seq=6 slot=70000",
        f"gapscope::submit src=0 dst={2**40} seq=7",
        "gapscope::submit src=0 dst=1 seq=8 job=prefill",
        "gapscope::submit src=0 dst=1 seq=9 dir=sideways",
        "gapscope::request seq=0 id=" + "a" * 300 + " tenant=x",
    ]
    assert not marks_of(read_log(path))


def test_nothing_is_written_by_a_process_that_marks_nothing(tmp_path):
    with gs.capture(tmp_path / "logs"):
        pass
    assert not (tmp_path / "logs").exists()


def test_two_logs_of_one_process_do_not_overwrite_each_other(tmp_path, read_log):
    edge = gs.Edge(src=0, dst=1)
    for _ in range(2):
        with gs.capture(tmp_path), gs.submit(edge):
            pass
    found = sorted(marks_of(read_log(path)) for path in tmp_path.glob("*.gslog"))
    assert found == [[("submit", 0, 1, 0)], [("submit", 0, 1, 1)]]


def test_a_handle_keeps_its_words_in_another_log_and_in_copies(tmp_path, read_log):
    handoff = gs.Handoff(0, 1, 5, name="alpha", kind="kv")
    with gs.capture(tmp_path / "a"):
        gs.available(handoff)
    with gs.capture(tmp_path / "b"):
        gs.available(gs.Handoff(0, 1, 4, name="other", kind="pp"))
        for same in (handoff, copy.copy(handoff), pickle.loads(pickle.dumps(handoff))):
            gs.available(same)
        handoff.set(seq=6, name="beta")
        gs.available(handoff)
    (path,) = (tmp_path / "b").glob("*.gslog")
    found = [(r["seq"], r["name"], r["kind"]) for r in read_log(path) if r["what"] == "mark"]
    assert found == [(4, "other", "pp"), *[(5, "alpha", "kv")] * 3, (6, "beta", "kv")]
    assert handoff.text == " src=0 dst=1 seq=6 kind=kv name=beta"


def test_a_folder_that_cannot_be_written_to_is_said_once_and_the_job_goes_on(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    emitter = LogEmitter(blocked)

    def many():
        for n in range(3 * log_module.WRITTEN_AT):
            emitter.end(emitter.begin(1, gs.Handoff(0, 1, n)))

    with pytest.warns(RuntimeWarning, match=r"the mark log .*file cannot be written \(File exists\)"):
        many()
    emitter.close()
    assert not emitter._queue


def job(body, folder, **environment):
    """Start a process that runs ``body`` with marks on."""
    code = "import gapscope_instrumentation as gs, os, sys, time, signal\n" + textwrap.dedent(body)
    env = {**os.environ, "GAPSCOPE": "1", "GAPSCOPE_DIR": str(folder), "RANK": "0", **environment}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)


def test_a_killed_job_leaves_what_it_had_flushed_and_its_open_bracket(tmp_path, read_log):
    body = """
        edge = gs.Edge(dst=1)
        for _ in range(100):
            with gs.submit(edge):
                pass
        with gs.receive(gs.Edge(src=1).handoff()):
            print("hangs", flush=True)
            time.sleep(600)
    """
    with job(body, tmp_path) as process:
        assert process.stdout.readline() == "hangs\n"
        until = time.monotonic() + 60
        while time.monotonic() < until:  # the writer's own thread shows what has been open for long
            found = [r for path in tmp_path.glob("rank0-*.gslog") for r in read_log(path)]
            if any(r.get("mark") == "receive" for r in found):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    (path,) = tmp_path.glob("rank0-*.gslog")
    records = [r for r in read_log(path) if r["what"] == "mark"]
    assert [r["seq"] for r in records if r["mark"] == "submit"] == list(range(100))
    (hanging,) = [r for r in records if r["mark"] == "receive"]
    assert hanging["flags"] == contract.LOG_OPEN
    assert (hanging["src"], hanging["dst"], hanging["end_ns"]) == (1, 0, None)


def test_a_job_that_ends_without_a_word_has_everything_in_its_log(tmp_path, read_log):
    with job("for _ in range(10):\n    gs.available(gs.Handoff(0, 1, _))", tmp_path) as process:
        assert process.wait(60) == 0
    (path,) = tmp_path.glob("rank0-*.gslog")
    assert [key[-1] for key in marks_of(read_log(path))] == list(range(10))


def test_a_bracket_that_closes_while_the_interpreter_goes_down_does_not_hang_the_job(tmp_path):
    body = """
        class Holder:
            def __init__(self):
                self.bracket = gs.submit(gs.Handoff(0, 1, 7)).start()
            def __del__(self):
                self.bracket.end()
        holder = Holder()
    """
    with job(body, tmp_path) as process:
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_log_of_its_own_and_none_of_its_parents_marks(tmp_path, read_log):
    body = """
        edge = gs.Edge(dst=1)
        with gs.submit(edge):
            pass
        child = os.fork()
        with gs.submit(edge):
            pass
        if child:
            os.waitpid(child, 0)
        else:
            gs.flush()
            os._exit(0)
    """
    with job(body, tmp_path) as process:
        assert process.wait(60) == 0
    found = sorted([key[-1] for key in marks_of(read_log(path))] for path in tmp_path.glob("*.gslog"))
    assert found == [[0, 1], [1]]
    pids = {r["pid"] for path in tmp_path.glob("*.gslog") for r in read_log(path) if r["what"] == "process"}
    assert len(pids) == 2


def _grow(folder, handoffs, answer):
    """Hand over so many times, and say how much memory that took beyond the first part."""
    import resource

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    edge = gs.Edge(src=0, dst=1)
    capture = gs.capture(folder).start()
    for n in range(handoffs):
        with gs.submit(edge):
            pass
        if n == handoffs // 20:
            before = resident()
    after = resident()
    capture.stop()
    answer.put(after - before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_half_a_million_handoffs_take_no_memory(tmp_path):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_grow, args=(tmp_path, 500_000, answer))
    process.start()
    grown = answer.get(timeout=300)
    process.join()
    (path,) = tmp_path.glob("*.gslog")
    written = path.stat().st_size
    path.unlink()
    assert written >= 500_000 * contract.LOG_SLOT_BYTES
    assert grown < 1_000_000  # a reference kept of each would be four times that


def test_brackets_that_are_never_closed_leave_nothing_behind(tmp_path):
    with gs.capture(tmp_path):
        (emitter,) = [e for e in marking.emitters() if isinstance(e, LogEmitter)]
        for n in range(10_000):
            gs.submit(gs.Handoff(0, 1, n)).start()
        assert len(emitter._open) <= log_module.OPEN_KEPT


def test_words_beyond_what_is_numbered_are_written_with_each_mark(tmp_path, read_log, monkeypatch):
    monkeypatch.setattr(log_module, "WORDS", 3)
    with gs.capture(tmp_path):
        for n in range(6):
            gs.available(gs.Handoff(0, 1, n, name=f"tensor{n}"))
    (path,) = tmp_path.glob("*.gslog")
    records = read_log(path)
    assert [r["name"] for r in records if r["what"] == "mark"] == ["tensor0", "tensor1", "tensor2"]
    texts = [r["text"] for r in records if r["what"] == "text"]
    assert texts == [f"gapscope::available src=0 dst=1 seq={n} name=tensor{n}" for n in (3, 4, 5)]


def test_a_note_is_written_once(tmp_path, read_log):
    emitter = LogEmitter(tmp_path)
    for _ in range(3):
        emitter.note("captured", mark="submit")
    emitter.note("captured", mark="produce")
    emitter.close()
    (path,) = tmp_path.glob("*.gslog")
    notes = [json.dumps(r) for r in read_log(path) if r["what"] == "note"]
    assert [json.loads(n)["mark"] for n in notes] == ["submit", "produce"]

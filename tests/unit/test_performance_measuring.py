"""How `benchmarks/performance` measures: what counts as time and memory of a run, and what inputs hold."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gapscope
from benchmarks.performance import inputs, records
from benchmarks.performance.cases import WAYS, Places, Way
from benchmarks.performance.inputs import Input
from benchmarks.performance.measure import MARK, measure
from benchmarks.performance.runner import OutOfTimeError, Runner

DATA = Path(__file__).parents[1] / "data"
PAIR = [DATA / "two-gpus" / f"copy_engine_none_torch_rank{k}.json.gz" for k in (0, 1)]
MB = 10**6
HOLD = "import time; held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); time.sleep(0.5)"

SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def python(code):
    return [sys.executable, "-c", code]


# One process ------------------------------------------------------------------------------------------------------


def test_memory_is_that_of_all_processes_of_the_run():
    code = f"""
import subprocess, sys
child = f"held = b'x' * {60 * MB}; print(flush=True); input()"
other = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdout.readline()
{HOLD.format(size=60 * MB)}
other.communicate(b"over")
"""
    got = measure(python(code), os.environ, 60)
    assert got.code == 0
    assert 120 * MB < got.peak_bytes < 200 * MB
    assert got.processes == 2


def test_memory_of_a_process_that_is_gone_before_a_sample_counts():
    size = 2 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert measure(python(f"held = b'x' * {size}"), os.environ, 60).peak_bytes > size


def test_memory_of_the_process_that_measures_does_not_count():
    assert measure(python("import time; time.sleep(0.3)"), os.environ, 60).peak_bytes < 40 * MB


def test_memory_of_daemons_that_were_there_before_counts():
    daemon = subprocess.Popen(
        python(HOLD.format(size=60 * MB) + "; print('up', flush=True); time.sleep(60)"),
        env={**os.environ, MARK: "a"},
        stdout=subprocess.PIPE,
    )
    try:
        assert daemon.stdout.readline() == b"up\n"
        waiting = python("import time; time.sleep(0.5)")
        assert measure(waiting, os.environ, 60, daemons="a").peak_bytes > 60 * MB
        assert measure(waiting, os.environ, 60).peak_bytes < 60 * MB
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_past_its_limit_is_ended_with_its_children():
    got = measure(python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"), os.environ, 2.0)
    assert got.code is None
    assert got.processes == 2
    pid = int(got.out)
    until = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:  # a killed process ends in its own time
        time.sleep(0.01)
    assert not is_alive(pid)


def test_a_failure_is_told_from_the_end_by_limit():
    got = measure(python("import sys; print('out'); sys.exit('no')"), os.environ, 60)
    assert (got.code, got.out, got.err) == (1, "out\n", "no\n")


# Cases ------------------------------------------------------------------------------------------------------------

TINY = Input("tiny", "two small ranks", "torch", tuple(path.name for path in PAIR))


def runner(tmp_path, **more):
    path = tmp_path / "records.jsonl"
    if not path.exists():
        records.append(path, {"kind": "series", "date": records.now()})
    return Runner(Places(PAIR[0].parent, sys.executable), tmp_path / "work", path, **more)


def runs(tmp_path):
    return records.arrange(records.read(tmp_path / "records.jsonl")).series[-1]


def test_gapscope_is_measured_from_the_command_line_to_its_tables(tmp_path):
    runner(tmp_path).run(TINY, WAYS["torch_50MB"][:1], 1)
    (run,) = runs(tmp_path).runs["tiny/first"]
    assert run["found"] == {"handoffs": 20, "edges": 1}
    assert run["seconds"] > 0.2
    assert run["peak_bytes"] > 50 * MB
    assert run["command"] == f"gapscope analyze {PAIR[0].name} {PAIR[1].name} --out OUT"


COUNT = Way("count", "", "", "{peers} -c print('{}') {files}")


def test_rounds_that_are_there_are_not_run_again(tmp_path):
    once = Way("once", "", "", "{peers} -c print('{}')", once=True)
    runner(tmp_path).run(TINY, [COUNT, once], 1)
    runner(tmp_path).run(TINY, [COUNT, once], 3)
    found = runs(tmp_path).runs
    assert [run["round"] for run in found["tiny/count"]] == [0, 1, 2]
    assert [run["round"] for run in found["tiny/once"]] == [0]


def test_what_cannot_run_is_kept_with_the_reason_and_tried_once(tmp_path):
    ways = [
        Way("bad", "", "", "{peers} -c raise(SystemExit('/no/some/where/file.json:1\\thttps://a.host/that'))"),
        Way("silent", "", "", "{peers} -c pass"),
        Way("missing", "", "", "{peers} -c pass", needs="nonsense"),
        Way("engine", "", "", "node {engine}"),
        Way("after", "", "", "{peers} -c print('{}')", fills="bad"),
    ]
    runner(tmp_path).run(TINY, ways, 2)
    assert {case: one["reason"] for case, one in runs(tmp_path).absent.items()} == {
        "tiny/bad": "file.json:1\tthat",
        "tiny/silent": "exit 0",
        "tiny/missing": "nonsense is not installed",
        "tiny/engine": "no trace processor",
        "tiny/after": "it stands on a run that failed",
    }
    assert runs(tmp_path).runs == {}
    assert sum(record["kind"] == "absent" for record in records.read(tmp_path / "records.jsonl")) == 5


def test_a_run_that_would_not_fit_is_not_begun(tmp_path):
    runner(tmp_path).run(TINY, [COUNT], 1)
    case = {**runs(tmp_path).runs["tiny/count"][0], "seconds": 50.0}
    records.append(tmp_path / "records.jsonl", case)
    with pytest.raises(OutOfTimeError, match="tiny/count took 50 s"):
        runner(tmp_path, budget_s=40.0).run(TINY, [COUNT], 3)
    assert len(runs(tmp_path).runs["tiny/count"]) == 2


def test_patterns_choose_inputs_and_ways():
    from benchmarks.performance.__main__ import chosen

    assert list(chosen([])) == list(WAYS)
    assert {name: [way.name for way in ways] for name, ways in chosen(["torch_1GB", "nsys_*/nsys_ai_c*"]).items()} == {
        "torch_1GB": ["first", "second"],
        "nsys_0.5M": ["nsys_ai_cold", "nsys_ai_cached"],
        "nsys_5M": ["nsys_ai_cold", "nsys_ai_cached"],
    }
    with pytest.raises(SystemExit, match="no such case"):
        chosen(["nonsense"])


# Inputs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Four ranks made from two."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(4):
        text = gzip.decompress(PAIR[rank % 2].read_bytes())
        (folder / f"rank{rank}.json").write_bytes(inputs.as_rank(text, rank, 4))
    return folder


def test_a_pair_becomes_ranks_of_a_larger_job(job):
    analysis = gapscope.analyze(job)
    edges = analysis.handoffs.group_by("src_rank", "dst_rank").len().sort("src_rank").rows()
    assert edges == [(0, 1, 20), (2, 3, 20)]
    assert set(analysis.handoffs["status"]) == {"complete"}
    gaps = [analysis.handoffs.filter(src_rank=rank)["gap_ns"].sort().to_list() for rank in (0, 2)]
    assert gaps[0] == gaps[1]


def test_a_renamed_rank_is_whole_and_says_who_it_is(job):
    before, after = (json.loads(t) for t in (gzip.decompress(PAIR[1].read_bytes()), (job / "rank3.json").read_bytes()))
    assert len(after["traceEvents"]) == len(before["traceEvents"])
    assert (after["distributedInfo"]["rank"], after["distributedInfo"]["world_size"]) == (3, 4)
    assert {e["args"]["device"] for e in after["traceEvents"] if e.get("cat") == "kernel"} == {3}


def test_inputs_are_counted_without_gapscope(job):
    four = Input("four", "", "torch", tuple(f"rank{k}.json" for k in range(4)))
    events = [e for k in range(4) for e in json.loads((job / f"rank{k}.json").read_bytes())["traceEvents"]]
    held = inputs.counted(four, job)
    assert held["events"] == len(events)
    assert held["kernels"] == sum(e.get("cat") == "kernel" for e in events)
    assert [file["bytes"] for file in held["files"]] == [path.stat().st_size for path in sorted(job.iterdir())]


def test_no_name_in_braces_is_left_in_any_command():
    places = Places(Path("files"), "peers", "engine", "python")
    for way in (way for ways in WAYS.values() for way in ways):
        assert "{" not in " ".join(places.words(way, [Path("a.json")], Path("out"), Path("cache"))), way.name

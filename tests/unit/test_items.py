"""Items of the graph: which host time launched what, and on which clocks items stand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph.items import find_items
from gapscope.testing import Recording, trace
from tests.unit.clock_runs import BEGIN, MS, Clock, recorded
from tests.unit.test_causes import COMPUTE, END, TRANSFER, US, Run, explained, ns, tiles, upstream
from tests.unit.test_clocks_cases import two_way

# Copies whose calls are not recorded ------------------------------------------------------------------------------


def copy_without_call(run, seq, submit, sent, stream):
    """A send of which only the tool's own GPU span tells what it launched."""
    r, text = run.ranks[0], f"submit src=0 dst=1 seq={seq} step={seq}"
    r.mark(text, *ns(submit))
    r.gpu_span(text, *ns(sent), stream=stream)
    r.op(1_000 + seq, *ns(sent), stream, kind="memcpy", copy_kind="DtoH", name="copy DtoH")


@pytest.mark.parametrize("other", [330, 325])
def test_two_copies_that_start_in_the_same_nanosecond_are_of_their_own_brackets(other):
    """The second submit begins later; its copy starts in the same nanosecond as the first one's, or sooner."""
    run = Run("torch")
    r = run.ranks[0]
    r.mark("produce src=0 dst=1 seq=1 step=1", *ns((5, 10)))
    run.op(0, (6, 7), (100, 200), COMPUTE, name="producer")
    copy_without_call(run, 1, (300, 310), (330, 335), TRANSFER)
    copy_without_call(run, 2, (312, 320), (other, other + 5), 14)
    run.destination(received=(345, 350))
    assert tiles(run.explained()) == [
        ("late_submission", 0, 200, 300), ("submit_call", 0, 300, 310), ("launch_latency", 0, 310, 330),
        ("movement", 0, 330, 335), *END[1:],
    ]  # fmt: skip


# Clocks that cannot be compared -----------------------------------------------------------------------------------


def in_two_files(shown):
    """`upstream` of test_causes with rank 2 in a file of its own, and more all-reduces that say how clocks stand.

    ``shown``: when rank 2's file says that each of these ran, in µs; on rank 1 they ran at 12 to 20.
    """
    run = upstream()
    for k, ran in enumerate(shown):
        for rank, (begin, until) in ((1, (12, 20)), (2, ran)):
            r = run.ranks[rank]
            called = r.call((begin - 1) * US, thread=9, family="other", correlation=500 + k)
            r.op(called, begin * US, until * US, 33 + k, device=rank, name="ncclDevKernel_AllReduce")
            row = {"op": "allreduce", "group": "3", "group_ranks": "[1, 2]", "group_size": 2, "seq": 20 + k}
            r._add("comms", {**row, "size_bytes": 64, "start_ns": begin * US, "end_ns": until * US,
                             "correlation": called})  # fmt: skip
    one, _, other = run.ranks
    one.add_process(run.ranks[1])
    other.info = Recording("another", pid=12, tool="torch").info
    return explained(one, other, rank_of={12: 2})


def test_the_walk_goes_on_in_another_file_where_the_clocks_tell():
    assert tiles(in_two_files([(13, 20), (12, 19)]))[0] == ("upstream_compute", 2, 200, 580)


def test_the_walk_does_not_go_on_in_a_file_whose_clock_has_no_place():
    """Rank 2's file contradicts itself by 6 ms: when it arrived, nobody knows."""
    found = in_two_files([(-3_000, -2_990), (3_000, 3_010)])
    assert tiles(found) == [("peer_wait", 1, 200, 600), ("stream_turnaround", 1, 600, 603)]


def test_items_around_a_jump_of_their_clock():
    """Each stands where the clock in force puts it; those within the jump have no known place, but keep their order."""
    clocks = [Clock(), Clock(steps=((BEGIN + 50 * MS + 300 * US, 3 * MS),))]
    run = recorded(clocks, two_way(clocks, count=100, gpu=True))
    t = trace(*run)
    ends = find_ends(t)
    alignment = align(t, ends)
    items = find_items(t, alignment, ends)
    steps = {s.before: s for s in alignment.domains.steps}
    assert steps
    seen = {"before": 0, "amid": 0, "after": 0}
    rows = pl.DataFrame({"raw_start_ns": items.times.raw_starts(items.n)})
    assert items.times.raw_start(np.arange(items.n)).tolist() == rows["raw_start_ns"].to_list()
    assert items.times.raw_starts(70).tolist() == rows["raw_start_ns"][:70].to_list()
    rows = rows.with_columns(rank=items.lanes["rank"].gather(items.lane))
    every = np.arange(items.n)
    rows = rows.with_columns(clock=pl.Series(items.clock_of(every)))
    for (raw, rank, clock), start, known in zip(
        rows.iter_rows(), items.start, items.times.is_known(every), strict=True
    ):
        mine = [s for s in steps.values() if clock in {s.before, s.after}]
        assert bool(mine) == (rank == 1)
        for s in mine:
            where = "before" if raw <= s.begin_ns else "after" if raw >= s.end_ns else "amid"
            seen[where] += 1
            assert clock == (s.after if where == "after" else s.before)
            assert known == (where != "amid")
            true_ns = raw - (3 * MS if where == "after" else 0)
            assert where == "amid" or abs(start - true_ns) < 200 * US
    assert seen["before"] > 50
    assert seen["after"] > 50

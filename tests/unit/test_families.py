"""Families of edges, each on a built recording where the edge binds and on one where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph.context import Context
from gapscope.graph.families.default_stream import default_stream
from gapscope.graph.items import find_items
from gapscope.testing import Recording, trace
from tests.unit.test_causes import COMPUTE, PLAIN_TILES, TRANSFER, US, Run, ns, of_cause, tiles

# The legacy default stream ----------------------------------------------------------------------------------------


def streams(compute="legacy_default", transfer="blocking", rank=1, run=None, **moments):
    """No event between the two streams of a rank; what the recording says of how they were made."""
    run = run or Run()
    for stream, kind in ((COMPUTE, compute), (TRANSFER, transfer)):
        if kind is not None:
            run.ranks[rank].stream(stream, kind, run.devices[rank])
    return run.handoff(**{"events": False, **moments})


class Eventless(Run):
    """A run in which no stream waits for an event."""

    def handoff(self, seq=1, at=0, events=False, **moments):
        self.source(seq, at, **moments)
        self.destination(seq, at, events=events, **moments)
        return self


DEFAULT_TILES = [*PLAIN_TILES[:-1], ("stream_turnaround", 1, 350, 360)]


def test_the_default_stream_waits_for_a_blocking_stream():
    found = streams(run=Eventless()).explained()
    assert tiles(found) == DEFAULT_TILES
    assert of_cause(found, "evidence", "stream_turnaround") == ["structural"]


def test_a_blocking_stream_waits_for_the_default_stream():
    assert tiles(streams("blocking", "legacy_default", run=Eventless()).explained()) == DEFAULT_TILES


LATE = {"consume": (290, 300), "consume_call": (298, 320), "consumed": (360, 400)}


@pytest.mark.parametrize(
    ("compute", "transfer"),
    [
        ("legacy_default", "non_blocking"),
        ("non_blocking", "blocking"),
        ("blocking", "blocking"),
        ("legacy_default", None),
        (None, "blocking"),
        (None, None),
    ],
)
def test_no_other_two_streams_wait_for_each_other(compute, transfer):
    found = streams(compute, transfer, run=Eventless(), **LATE).explained()
    assert tiles(found) == [("late_launch", 1, 200, 320), ("launch_latency", 1, 320, 360)]


def test_the_order_of_enqueuing_counts_and_the_chain_goes_through_both_streams():
    run = Eventless()
    run.op(1, (3, 4), (10, 352), TRANSFER, name="before")
    run.op(1, (5, 6), (354, 356), COMPUTE, name="waits for it")
    found = streams(run=run, received=(370, 375), consumed=(380, 400)).explained()
    assert tiles(found) == [
        ("consumer_busy", 1, 200, 352), ("stream_turnaround", 1, 352, 354), ("consumer_busy", 1, 354, 356),
        ("stream_turnaround", 1, 356, 370), ("movement", 1, 370, 375), ("stream_turnaround", 1, 375, 380),
    ]  # fmt: skip


def test_what_is_enqueued_later_does_not_hold_the_default_stream():
    run = Eventless()
    streams(run=run)
    run.ranks[1].stream(21, "blocking", 1)
    run.op(1, (72, 73), (100, 355), 21, name="later")
    assert tiles(run.explained()) == DEFAULT_TILES


def test_two_threads_that_enqueue_at_once_are_in_no_order():
    run = Eventless()
    streams(run=run, **LATE)
    for row in run.ranks[1].rows["calls"]:
        if row["start_ns"] == 30_000:  # the copy's call lasts until the consumer's has begun, on another thread
            row.update(end_ns=310_000, thread=2)
    for row in run.ranks[1].rows["ranges"]:
        if "receive" in row["name"]:
            row.update(thread=2, end_ns=312_000)
    assert "stream_turnaround" not in {cause for cause, *_ in tiles(run.explained())}


# Polling ----------------------------------------------------------------------------------------------------------


def polling(tool="nsys", polls=((210, 211), (250, 251), (290, 291)), ended=280, other=None, event=(1, 1, 1)):
    """Rank 0 polls an event before it asks for the transfer; what the event stands for ends after the producer."""
    run = Run(tool)
    r = run.ranks[0]
    run.op(0, (3, 4), (20, ended), 21, name="polled")
    r.event_record(5 * US, 21, 90 if tool == "nsys" else None)
    for (begin, end), which in zip(polls, event, strict=False):
        r.event_query(begin * US, end * US, which, 90 if tool == "nsys" and which == 1 else None)
    if other is not None:
        r.timed_call(other * US, (other + 1) * US, "other")
    calls = sorted(r.rows["calls"], key=lambda row: row["start_ns"])
    r.rows["calls"][:] = calls
    run.source(produce=(6, 10), produce_call=(7, 8))
    run.destination()
    return run


@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_what_a_host_polls_for_holds_it(tool):
    found = polling(tool).explained()
    assert tiles(found) == [("stream_queueing", 0, 200, 280), ("late_submission", 0, 280, 300), *PLAIN_TILES[1:]]
    assert of_cause(found, "op", "stream_queueing") == ["polled"]
    assert of_cause(found, "evidence", "late_submission")[0] == "inferred"


def test_an_operation_that_ends_within_the_query_holds_its_return():
    found = polling(polls=((210, 211), (250, 251), (270, 291))).explained()
    assert tiles(found)[0] == ("stream_queueing", 0, 200, 280)
    assert tiles(found)[1] == ("late_submission", 0, 280, 300)


@pytest.mark.parametrize(
    "not_polling",
    [
        {"polls": ((290, 291),)},  # a single query
        {"other": 260},  # the host did something else in between
        {"ended": 240},  # the query before would have found it ended already
        {"ended": 320},  # it had not ended by then: another operation, or polled for in vain
        {"event": (2, 3, 1)},  # other events
    ],
)
def test_no_polling_holds_no_host(not_polling):
    assert tiles(polling(**not_polling).explained()) == PLAIN_TILES


# Batches of stream memory operations ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuStreamWriteValue32_v2", "cuStreamBatchMemOp_v2"])
def test_a_batch_behind_the_transfer_writes_its_flag(name):
    run = Run()
    run.source(submit=(300, 342))
    run.ranks[0].timed_call(322 * US, 341 * US, "stream_memop", name)
    run.destination()
    assert tiles(run.explained())[1:3] == [("submit_call", 0, 300, 341), ("flag_wait", 1, 341, 345)]


def test_a_batch_ahead_of_the_transfer_writes_no_flag():
    """It waits for the slot; the flag is another call, and the last that may write it counts."""
    run = Run()
    run.ranks[0].timed_call(302 * US, 303 * US, "stream_memop", "cuStreamBatchMemOp_v2")
    assert tiles(run.handoff().explained()) == PLAIN_TILES


def held(ahead):
    """As `slots` of test_causes, with the wait for the slot in a batch ahead of the transfer, or none at all."""
    run = Run()
    for k in range(5):
        at = (k + 1) * 1000
        sent = (505, 515) if k else (210, 220)
        if ahead is not None:
            run.ranks[0].timed_call((at + ahead) * US, (at + ahead + 1) * US, "stream_memop", "cuStreamBatchMemOp")
        moments = {"submit": (20, 40), "send_call": (30, 32), "sent": sent, "received": (sent[1] + 10, sent[1] + 15)}
        run.handoff(k + 1, at, **moments, consumed=(sent[1] + 25, 1500))
    return run.explained()


def test_a_batch_ahead_of_the_transfer_may_wait_for_the_slot():
    found = held(25)
    for k in (2, 3, 4, 5):
        assert tiles(found, f"0>1/0/{k}", at=k * 1000)[:2] == [("slot_wait", 1, 200, 500), ("slot_wait", 0, 500, 505)]


@pytest.mark.parametrize("ahead", [None, 34])
def test_without_a_wait_ahead_of_the_transfer_there_is_no_slot(ahead):
    assert "slot_wait" not in set(held(ahead).tiles["cause"])


# Several messages of one handoff ----------------------------------------------------------------------------------


def test_one_receive_mark_needs_all_messages():
    """Two copies with a mark each; the destination has one receive, and waits for the later of the two."""
    run = Run()
    r0 = run.ranks[0]
    key = "src=0 dst=1 seq=1 step=1"
    r0.mark(f"produce {key}", *ns((1, 10)))
    run.op(0, (2, 4), (5, 20), 7, name="producer")
    for slot, (call, ran) in enumerate([((30, 32), (35, 45)), ((40, 42), (46, 90))]):
        r0.mark(f"submit {key} slot={slot}", *ns((call[0] - 1, call[1] + 1)))
        run.op(0, call, ran, 13, "memcpy", kind="memcpy", copy_kind="PtoP", name="copy PtoP", size_bytes=64)
    run.destination(1, 0, receive=(30, 40), receive_call=(31, 32), received=(95, 99), event=45, consumed=(101, 120))
    found = run.explained()
    assert tiles(found)[2:] == [
        ("launch_latency", 0, 32, 35), ("movement", 0, 35, 45), ("stream_turnaround", 0, 45, 46),
        ("movement", 0, 46, 90), ("flag_wait", 1, 90, 95), ("movement", 1, 95, 99), ("event_release", 1, 99, 101),
    ]  # fmt: skip
    assert found.handoffs["dominant_cause"].to_list() == ["movement"]


# The legacy default stream against a plain version ------------------------------------------------------------------


MADE = {7: "legacy_default", 8: "blocking", 9: "blocking"}


def plain_default_stream(ops):
    """Edges (to, from) by row of (correlation, stream); all are launched by one thread."""
    ids = [correlation for correlation, _ in ops]
    alone = [(correlation, stream, k) for k, (correlation, stream) in enumerate(ops) if ids.count(correlation) == 1]
    found = set()
    for correlation, stream, k in alone:
        before = max((c for c, s, _ in alone if s == stream and c < correlation), default=-1)
        for other, made in MADE.items():
            earlier = [(c, j) for c, s, j in alone if s == other and before < c < correlation]
            if made != MADE[stream] and earlier:
                found.add((k, max(earlier)[1]))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(list(MADE))), max_size=16))
def test_default_stream_edges_are_those_of_the_plain_version(launches):
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 5)
    for stream, kind in MADE.items():
        r.stream(stream, kind)
    ops, correlation = [], 0
    for k, (skip, stream) in enumerate(launches):
        at = 100 * (k + 1)
        if skip == 0 and ops:  # one more of a replayed graph, perhaps in another stream
            r.op(correlation, at + 10, at + 20, stream)
        else:
            correlation = r.call(at)
            r.op(correlation, at + 10, at + 20, stream)
        ops.append((correlation, stream))
    recorded = trace(r)
    ends = find_ends(recorded)
    alignment = align(recorded, ends)
    items = find_items(recorded, alignment, ends)
    edges = default_stream(Context(recorded, alignment, items, ends))
    row = [(int(start) - 110) // 100 for start in items.times.raw_starts(items.n_ops)]
    assert {(row[to // 2], row[source // 2]) for to, source in edges.select("to", "from").rows()} == (
        plain_default_stream(ops)
    )
    assert all(to % 2 == 0 and source % 2 == 1 for to, source in edges.select("to", "from").rows())

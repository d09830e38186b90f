"""Families of edges, each on a built recording where the edge binds and on one where it does not."""

from __future__ import annotations

import pytest

from tests.unit.test_causes import COMPUTE, PLAIN_TILES, TRANSFER, Run, of_cause, tiles

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

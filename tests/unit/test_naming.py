"""How time on the chain is named, on built recordings: one rule each, where it applies and where it does not."""

from __future__ import annotations

import pytest

from tests.unit.test_causes import (
    PLAIN_TILES,
    US,
    Run,
    handoff,
    ns,
    of_cause,
    tiles,
)

# The profiler's own activity --------------------------------------------------------------------------------------


def overhead(begin, until, thread=1, tool="nsys", **moments):
    run = Run(tool)
    run.ranks[0].overhead("Buffer flush", *ns((begin, until)), thread)
    return run.handoff(**moments)


def test_profiler_overhead_is_cut_out_of_host_time():
    found = overhead(220, 270).explained()
    assert tiles(found) == [
        ("late_submission", 0, 200, 220), ("profiler_overhead", 0, 220, 270), ("late_submission", 0, 270, 300),
        *PLAIN_TILES[1:],
    ]  # fmt: skip
    assert of_cause(found, "evidence", "profiler_overhead") == ["recorded"]
    assert of_cause(found, "detail", "profiler_overhead") == ["Buffer flush"]
    assert of_cause(found, "lane", "profiler_overhead") == ["host:1"]
    assert handoff(found)["removable_ns"] == 50


def test_profiler_overhead_in_a_call_and_across_the_events_of_a_handoff():
    found = overhead(290, 315).explained()
    assert tiles(found) == [
        ("late_submission", 0, 200, 290), ("profiler_overhead", 0, 290, 315), ("submit_call", 0, 315, 320),
        *PLAIN_TILES[2:],
    ]  # fmt: skip


def test_profiler_overhead_can_be_the_dominant_cause():
    found = overhead(202, 299).explained()
    about = handoff(found)
    assert (about["dominant_cause"], about["dominant_ns"], about["removable_ns"]) == ("profiler_overhead", 97, 97)
    assert about["next_cause"] == "submit_call"


def test_activities_within_one_another_count_once():
    run = Run()
    run.ranks[0].overhead("Unknown", *ns((210, 260)))
    run.ranks[0].overhead("memory allocation", *ns((220, 250)))
    run.ranks[0].overhead("TLS allocation", *ns((230, 270)))
    found = run.handoff().explained()
    assert [t for t in tiles(found) if t[0] == "profiler_overhead"] == [("profiler_overhead", 0, 210, 270)]
    assert set(of_cause(found, "detail", "profiler_overhead")) == {"memory allocation"}


@pytest.mark.parametrize("thread", [2, 3])
def test_overhead_of_another_thread_is_not_on_the_chain(thread):
    assert tiles(overhead(220, 270, thread).explained()) == PLAIN_TILES


def test_overhead_beside_the_gpus_time_is_not_on_the_chain():
    assert tiles(overhead(326, 334).explained()) == PLAIN_TILES


def test_overhead_without_a_thread_is_of_the_thread_that_was_still_and_called_next():
    found = overhead(220, 270, None, "torch").explained()  # the next call is at 310
    assert [t for t in tiles(found) if t[0] == "profiler_overhead"] == [("profiler_overhead", 0, 220, 270)]
    assert of_cause(found, "evidence", "profiler_overhead") == ["inferred"]


@pytest.mark.parametrize("call", [(240, 241), (271, 272)])
def test_overhead_without_a_thread_is_not_of_a_thread_that_went_on_or_came_later(call):
    """Another thread called meanwhile: then it is not its; or right after: then it is."""
    run = Run("torch")
    run.ranks[0].overhead("Activity Buffer Request", *ns((220, 270)), None)
    run.ranks[0].call(call[0] * US, thread=2, family="other", correlation=100)
    found = run.handoff().explained()
    is_of_other = call[0] > 270
    assert ("profiler_overhead" not in set(found.tiles["cause"])) == is_of_other


def test_overhead_without_a_thread_long_before_any_call_is_nobodys():
    found = overhead(220, 230, None, "torch").explained()  # 80 before the next call, and only 10 long
    assert tiles(found) == PLAIN_TILES

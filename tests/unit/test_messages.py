"""Handoffs of many messages, on built recordings: what bound them is exact."""

from __future__ import annotations

import gapscope
from gapscope.testing import trace
from tests.unit.test_causes import PLAIN, US, Run, ns

MIB = 2**20


def run_of(launches, copies, *, slots=False, before=None, n=3, receive_at=1000):
    """Handoffs whose submit launches copies: ``launches`` and ``copies`` are (start, end) in µs after each began."""
    run = Run()
    for k in range(1, n + 1):
        at, key = k * 10_000, f"src=0 dst=1 seq={k} step={k}"
        r0 = run.ranks[0]
        r0.mark(f"produce {key}", *ns((1, 10), at))
        run.op(0, (at + 2, at + 4), (at + 5, at + 20), 7, name="producer")
        if before:
            run.op(0, (at + 6, at + 7), (at + before[0], at + before[1]), 13, name="other")
        if not slots:
            r0.mark(f"submit {key}", *ns((launches[0][0] - 1, launches[-1][1] + 1), at))
        for slot, (call, ran) in enumerate(zip(launches, copies, strict=True)):
            if slots:
                r0.mark(f"submit {key} slot={slot} bytes={MIB}", *ns((call[0] - 1, call[1] + 1), at))
            run.op(0, (at + call[0], at + call[1]), (at + ran[0], at + ran[1]), 13, "memcpy", kind="memcpy",
                   copy_kind="PtoP", name="copy PtoP", size_bytes=MIB)  # fmt: skip
        run.destination(k, at, receive=(30, 40), receive_call=(31, 32), received=(receive_at, receive_at + 5), event=45,
                        consumed=(receive_at + 15, receive_at + 50))  # fmt: skip
        last_received(run, len(copies) - 1 if slots else 0)
    return run


def last_received(run, slot):
    """Let the last receive be of a slot, and launch a kernel instead of a copy."""
    run.ranks[1].rows["ops"][-2].update(kind="kernel", name="unpack", copy_kind=None)
    mark = [r for r in run.ranks[1].rows["ranges"] if "receive" in r["name"]][-1]
    mark["name"] += f" slot={slot}"


def row(run, name="0>1/0/2"):
    """The numbers of one handoff; times in µs."""
    found = gapscope.analyze(trace(*run.recordings()))
    rows = {r["handoff_id"]: r for r in found.messages.to_dicts()}
    for r in rows.values():
        holes = r["unlaunched_ns"] + r["queued_ns"] + r["latency_ns"] + r["unknown_ns"]
        assert r["span_ns"] == r["moving_ns"] + holes
    chosen = ("messages", "size_bytes", "span_ns", "moving_ns", "holes", "unlaunched_ns", "queued_ns", "latency_ns",
              "unknown_ns", "launch_span_ns", "hole_cause", "hole_cause_ns", "verdict")  # fmt: skip
    numbers = rows[name]
    return [numbers[c] / US if c.endswith("_ns") and numbers[c] is not None else numbers[c] for c in chosen], found


# Each copy is launched 20 after the one before and runs for 5, 3 after its launch.
SLOW_HOST = [(100 + 20 * i, 102 + 20 * i) for i in range(5)]
AFTER_LAUNCH = [(105 + 20 * i, 110 + 20 * i) for i in range(5)]


def test_a_slow_host_is_submission_bound():
    for slots in (False, True):
        numbers, _ = row(run_of(SLOW_HOST, AFTER_LAUNCH, slots=slots))
        # Four holes of 15: 12 until the launch call has returned, 3 after it. The chain passes the last copy alone.
        assert numbers == [5, 5 * MIB, 85, 25, 4, 48, 0, 12, 0, 80, "submit_call", 12, "submission-bound"]


def test_a_slow_link_is_bandwidth_bound():
    launches = [(100 + 3 * i, 102 + 3 * i) for i in range(5)]
    copies = [(105 + 100 * i, 203 + 100 * i) for i in range(5)]
    numbers, found = row(run_of(launches, copies))
    assert numbers == [5, 5 * MIB, 498, 490, 4, 0, 0, 8, 0, 12, "stream_turnaround", 8, "bandwidth-bound"]
    edge = found.summary["messages"][0]
    assert (edge["handoffs"], edge["messages"], edge["verdict"]) == (2, 10, "bandwidth-bound")  # step 1 is start-up
    assert (edge["size_bytes"], edge["moving_ns"], edge["span_ns"]) == (10 * MIB, 980 * US, 996 * US)
    assert "bandwidth-bound" in found._repr_html_()


def test_copies_on_two_streams_that_overlap_count_once():
    launches = [(100, 102), (103, 105), (106, 108)]
    run = run_of(launches, [(110, 150), (120, 160), (150, 170)])
    for r in run.ranks[0].rows["ops"]:
        if r["start_ns"] % (10_000 * US) == 120 * US:
            r["stream"] = 14
    numbers, _ = row(run)
    assert numbers == [3, 3 * MIB, 60, 60, 0, 0, 0, 0, 0, 6, None, None, "bandwidth-bound"]


def test_messages_behind_other_work_are_queue_bound():
    """Another operation of the stream is enqueued between the two copies and runs for 80."""
    run = Run()
    for k in (1, 2, 3):
        at, key = k * 10_000, f"src=0 dst=1 seq={k} step={k}"
        r0 = run.ranks[0]
        r0.mark(f"produce {key}", *ns((1, 10), at))
        run.op(0, (at + 2, at + 4), (at + 5, at + 20), 7, name="producer")
        for slot, (call, ran) in enumerate([((100, 102), (105, 115)), ((110, 112), (200, 210))]):
            r0.mark(f"submit {key} slot={slot}", *ns((call[0] - 1, call[1] + 1), at))
            run.op(0, (at + call[0], at + call[1]), (at + ran[0], at + ran[1]), 13, "memcpy", kind="memcpy",
                   copy_kind="PtoP", name="copy PtoP", size_bytes=MIB)  # fmt: skip
            if slot == 0:
                run.op(0, (at + 105, at + 106), (at + 116, at + 196), 13, name="other")
        run.destination(k, at, receive=(30, 40), receive_call=(31, 32), received=(215, 220), event=45,
                        consumed=(225, 300))  # fmt: skip
        last_received(run, 1)
    numbers, _ = row(run)
    # One hole, from 115 to 200: until 196 the other operation ran.
    assert numbers[2:9] == [105, 20, 1, 0, 81, 4, 0]
    # The chain passes the second copy: the hole's tiles name what it was behind, from when that began.
    assert numbers[-3:] == ["stream_queueing", 80, "queue-bound"]


def test_the_same_transfer_off_the_chain_names_no_cause():
    """The consumer is launched so late that its chain never reaches the source."""
    run = run_of(SLOW_HOST, AFTER_LAUNCH, receive_at=195)
    for r in run.ranks[1].rows["calls"]:
        if r["start_ns"] % (10_000 * US) == PLAIN["consume_call"][0] * US:
            r.update(start_ns=r["start_ns"] + 100 * US, end_ns=r["end_ns"] + 140 * US)
    for r in run.ranks[1].rows["ranges"]:
        if "consume" in r["name"]:
            r["end_ns"] += 200 * US
    numbers, _ = row(run)
    assert numbers[-3:] == [None, None, "submission-bound"]


def test_one_message_is_not_many():
    found = gapscope.analyze(trace(*Run().handoff().handoff(2, 1000).recordings()))
    assert found.messages.height == 0
    assert found.summary["messages"] == []


def test_nccl_messages_move_from_the_later_start_to_the_receives_end():
    """Two sends, received early; the second send comes 40 after the first was received."""
    run = Run()
    for k in (1, 2, 3):
        at, key = k * 10_000, f"src=0 dst=1 seq={k} step={k}"
        r0, r1 = run.ranks[:2]
        r0.mark(f"produce {key}", *ns((1, 10), at))
        run.op(0, (at + 2, at + 4), (at + 5, at + 20), 7, name="producer")
        for slot, call in enumerate([100, 160]):
            r0.mark(f"submit {key} slot={slot} bytes=10000", *ns((call - 1, call + 3), at))
            run.op(0, (at + call, at + call + 2), (at + call + 5, at + call + 12), 13, name="ncclDevKernel_SendRecv")
        r1.mark(f"receive {key} slot=0", *ns((30, 33), at))
        run.op(1, (at + 31, at + 32), (at + 40, at + 115), 13, name="ncclDevKernel_SendRecv")
        r1.mark(f"receive {key} slot=1", *ns((34, 38), at))
        run.op(1, (at + 35, at + 36), (at + 116, at + 175), 13, name="ncclDevKernel_SendRecv")
        r1.mark(f"consume {key}", *ns((50, 70), at))
        run.op(1, (at + 60, at + 62), (at + 180, at + 200), 7, name="consumer")
    numbers, _ = row(run)
    # 105 to 115 and 165 to 175: the receive kernels' own 75 and 59 are mostly waiting.
    assert numbers[:4] == [2, 20_000, 70, 20]
    assert numbers[4:9] == [1, 47, 0, 3, 0]

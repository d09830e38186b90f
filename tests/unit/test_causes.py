"""What holds a gap, on built recordings with one cause each: every tile is exact."""

from __future__ import annotations

from itertools import groupby, pairwise

import polars as pl
import pytest

from gapscope.causes import CAUSES, explain
from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph import build_graph
from gapscope.handoffs import build_handoffs
from gapscope.phases import PHASES, with_phases
from gapscope.testing import Recording, trace

US = 1_000

# Moments in µs. The thread of each rank began with a call at 1; rank 1 has two streams, and an event between them.
PLAIN = {
    "produce": (5, 10), "produce_call": (6, 7), "produced": (100, 200),
    "submit": (300, 330), "send_call": (310, 320), "sent": (325, 335),
    "receive": (20, 40), "receive_call": (30, 32), "received": (345, 350),
    "event": 45, "consume": (50, 70), "wait": 52, "consume_call": (60, 62), "consumed": (360, 400),
}  # fmt: skip
TRANSFER, COMPUTE = 13, 7


def ns(moment, at=0):
    """From µs after ``at`` (µs) to ns."""
    return tuple((at + m) * US for m in moment) if isinstance(moment, tuple) else (at + moment) * US


class Run:
    """Two ranks in one file, on a device each, and any others in further processes."""

    def __init__(self, tool="nsys", devices=(0, 1), **recording):
        self.tool, self.devices = tool, devices
        self.ranks = [Recording("run", pid=10 + rank, tool=tool, **recording) for rank in range(3)]
        for r in self.ranks:
            r.timed_call(*ns((1, 2)), family="other")
        self.events = 0

    def op(self, rank, call, ran, stream, family="launch", **op):
        """Launch an operation with a call (start, end) that ran (start, end); both in µs."""
        correlation = self.ranks[rank].timed_call(*ns(call), family)
        self.ranks[rank].op(correlation, *ns(ran), stream, device=self.devices[rank] if rank < 2 else rank, **op)

    def copy(self, rank, call, ran, stream, copy_kind):
        self.op(rank, call, ran, stream, "memcpy", kind="memcpy", copy_kind=copy_kind, name=f"copy {copy_kind}")

    def source(self, seq=1, at=0, nccl=False, **moments):
        m = {n: ns(v, at) for n, v in {**PLAIN, **moments}.items()}
        in_us = {n: tuple(t // US for t in v) for n, v in m.items() if isinstance(v, tuple)}
        r, key = self.ranks[0], f"src=0 dst=1 seq={seq} step={seq}"
        r.mark(f"produce {key}", *m["produce"])
        self.op(0, in_us["produce_call"], in_us["produced"], COMPUTE, name="producer")
        r.mark(f"submit {key}", *m["submit"])
        if nccl:
            self.op(0, in_us["send_call"], in_us["sent"], TRANSFER, name="ncclDevKernel_SendRecv")
        else:
            self.copy(0, in_us["send_call"], in_us["sent"], TRANSFER, "DtoH")

    def destination(self, seq=1, at=0, nccl=False, events=True, other_device=None, **moments):
        m = {n: ns(v, at) for n, v in {**PLAIN, **moments}.items()}
        in_us = {n: tuple(t // US for t in v) for n, v in m.items() if isinstance(v, tuple)}
        r, key = self.ranks[1], f"src=0 dst=1 seq={seq} step={seq}"
        r.mark(f"receive {key}", *m["receive"])
        if nccl:
            self.op(1, in_us["receive_call"], in_us["received"], TRANSFER, name="ncclDevKernel_SendRecv")
        else:
            self.copy(1, in_us["receive_call"], in_us["received"], TRANSFER, "HtoD")
        self.events += 1
        name = self.events if self.tool == "nsys" else None
        if events:
            r.event_record(m["event"], TRANSFER, name, self.devices[1])
        r.mark(f"consume {key}", *m["consume"])
        if events:
            r.stream_wait(m["wait"], COMPUTE, name, self.devices[1])
        if other_device is not None:
            correlation = r.timed_call(*ns((m["wait"] // US + 2, m["wait"] // US + 3)))
            r.op(correlation, *ns((90, 95), at), COMPUTE, device=other_device, name="elsewhere")
        self.op(1, in_us["consume_call"], in_us["consumed"], COMPUTE, name="consumer")

    def handoff(self, seq=1, at=0, **moments):
        self.source(seq, at, **moments)
        self.destination(seq, at, **moments)
        return self

    def recordings(self):
        first, *others = self.ranks
        for other in others:
            if len(other.rows["calls"]) > 1:
                first.add_process(other)
        return [first]

    def explained(self):
        return explained(*self.recordings(), rank_of={12: 2} if len(self.ranks[2].rows["calls"]) > 1 else None)


def explained(*recordings, rank_of=None):
    """Tiles and handoffs, checked: they tile each gap, and the phases are another view of them."""
    t = trace(*recordings, rank_of=rank_of)
    ends = find_ends(t)
    alignment = align(t, ends)
    handoffs = build_handoffs(t, ends, alignment).table
    found = explain(build_graph(t, alignment, ends), handoffs)
    assert found.handoffs.drop(CAUSE_COLUMNS).equals(handoffs.drop(CAUSE_COLUMNS))
    assert_tiled(found)
    return found


CAUSE_COLUMNS = ["dominant_cause", "dominant_ns", "removable_ns", "next_cause", "consumer_bound", "slack_ns"]


def assert_tiled(found):
    """What holds for all tiles."""
    assert set(found.tiles["cause"]) <= set(CAUSES)
    assert found.tiles["evidence"].null_count() == 0
    for row in with_phases(found.handoffs).to_dicts():
        mine = found.tiles.filter(pl.col("handoff_id") == row["handoff_id"]).sort("start_ns").to_dicts()
        if row["order"] != "ok" or row["gap_ns"] is None or row["gap_ns"] < 0:
            assert mine == []
            continue
        assert sum(t["duration_ns"] for t in mine) == row["gap_ns"]
        assert all(t["duration_ns"] == t["end_ns"] - t["start_ns"] > 0 for t in mine)
        assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(mine))
        if mine:
            assert (mine[0]["start_ns"], mine[-1]["end_ns"]) == (row["producer_finish_ns"], row["consumer_start_ns"])
        if row["movement_ns"] is not None:
            of_phase = {p: sum(t["duration_ns"] for t in mine if t["phase"] == p) for p in PHASES}
            assert of_phase == {p: row[f"{p}_ns"] for p in PHASES}
        sums = {}
        for t in mine:
            sums[t["cause"]] = sums.get(t["cause"], 0) + t["duration_ns"]
        if sums:
            assert row["dominant_ns"] == sums[row["dominant_cause"]] == max(sums.values())
            assert 0 <= row["removable_ns"] <= row["gap_ns"]


def tiles(found, handoff="0>1/0/1", at=0):
    """Tiles of a handoff as (cause, rank, from, to) in µs after ``at``, neighbors of one cause and rank joined."""
    rows = found.tiles.filter(pl.col("handoff_id") == handoff).sort("start_ns").to_dicts()
    joined = []
    for (cause, rank), group in groupby(rows, key=lambda t: (t["cause"], t["rank"])):
        times = [ns for t in group for ns in (t["start_ns"], t["end_ns"])]
        joined.append((cause, rank, times[0] / US - at, times[-1] / US - at))
    return joined


def of_cause(found, column, cause, handoff="0>1/0/1"):
    """Values of a column of tiles of one cause."""
    chosen = found.tiles.filter((pl.col("handoff_id") == handoff) & (pl.col("cause") == cause))
    return chosen.sort("start_ns")[column].to_list()


def handoff(found, name="0>1/0/1"):
    """The row of a handoff, as far as it is about causes; times in µs."""
    row = found.handoffs.filter(pl.col("handoff_id") == name).select(CAUSE_COLUMNS).row(0, named=True)
    return {n: v / US if n.endswith("_ns") and v is not None else v for n, v in row.items()}


END = [("movement", 0, 325, 335), ("flag_wait", 1, 335, 345), ("movement", 1, 345, 350), ("event_release", 1, 350, 360)]
PLAIN_TILES = [
    ("late_submission", 0, 200, 300), ("submit_call", 0, 300, 320), ("launch_latency", 0, 320, 325), *END,
]  # fmt: skip

# The source's side ------------------------------------------------------------------------------------------------


def test_a_plain_handoff_tile_by_tile():
    found = Run().handoff().explained()
    assert tiles(found) == PLAIN_TILES
    assert handoff(found) == {
        "dominant_cause": "late_submission", "dominant_ns": 100, "removable_ns": 100, "next_cause": "submit_call",
        "consumer_bound": False, "slack_ns": None,
    }  # fmt: skip
    rows = found.tiles.sort("start_ns").to_dicts()
    assert [r["op"] for r in rows] == [
        "memcpy", "memcpy", "memcpy", "copy DtoH", "copy DtoH", "copy HtoD", "copy HtoD", "consumer",
    ]  # fmt: skip
    assert [r["lane"] for r in rows] == [
        "host:1", "host:1", "host:1", "gpu0:stream13", "gpu0:stream13", "gpu1:stream13", "gpu1:stream13",
        "gpu1:stream7",
    ]  # fmt: skip
    assert [r["evidence"] for r in rows] == [
        "structural", "structural", "recorded", "recorded", "recorded", "declared", "recorded", "recorded",
    ]  # fmt: skip
    assert rows[0]["detail"] == "uninstrumented host time before memcpy"


def test_late_submission():
    found = Run().handoff(submit=(1300, 1330), send_call=(1310, 1320), sent=(1325, 1335), received=(1345, 1350),
                          consumed=(1360, 1400)).explained()  # fmt: skip
    assert tiles(found)[0] == ("late_submission", 0, 200, 1300)
    assert handoff(found)["removable_ns"] == 1100


def test_submit_call():
    found = Run().handoff(submit=(150, 330)).explained()
    assert tiles(found) == [("submit_call", 0, 200, 320), ("launch_latency", 0, 320, 325), *END]
    assert handoff(found)["dominant_cause"] == "submit_call"


def test_stream_queueing_names_the_occupant():
    run = Run()
    run.op(0, (3, 4), (50, 310), TRANSFER, name="occupant")
    found = run.handoff(submit=(20, 40), send_call=(30, 32), sent=(312, 322), received=(332, 337),
                        consumed=(347, 400)).explained()  # fmt: skip
    assert tiles(found) == [
        ("stream_queueing", 0, 200, 310), ("stream_turnaround", 0, 310, 312), ("movement", 0, 312, 322),
        ("flag_wait", 1, 322, 332), ("movement", 1, 332, 337), ("event_release", 1, 337, 347),
    ]  # fmt: skip
    assert of_cause(found, "op", "stream_queueing") == ["occupant"]
    assert of_cause(found, "lane", "stream_queueing") == ["gpu0:stream13"]


def test_head_of_line_names_the_other_handoff():
    run = Run()
    run.source(1, submit=(11, 19), send_call=(12, 13), produced=(20, 30), sent=(40, 310))
    run.source(2, produce=(20, 25), produce_call=(21, 22), submit=(30, 40), send_call=(31, 32), sent=(312, 322))
    run.destination(1, received=(315, 316), consumed=(330, 331))
    run.destination(2, receive=(80, 90), receive_call=(81, 82), event=92, consume=(93, 99), wait=94,
                    consume_call=(95, 96), received=(332, 337), consumed=(347, 400))  # fmt: skip
    found = run.explained()
    assert tiles(found, "0>1/0/2")[:3] == [
        ("head_of_line", 0, 200, 310), ("stream_turnaround", 0, 310, 312), ("movement", 0, 312, 322),
    ]  # fmt: skip
    assert of_cause(found, "detail", "head_of_line", "0>1/0/2") == ["of handoff 0>1/0/1"]
    assert handoff(found, "0>1/0/2")["dominant_cause"] == "head_of_line"


# Flags and slots --------------------------------------------------------------------------------------------------


def test_flag_wait_ends_at_the_later_of_copy_and_write_call():
    run = Run()
    run.source(submit=(300, 342))
    run.ranks[0].timed_call(*ns((322, 341)), "stream_memop", "cuStreamWriteValue32_v2")
    run.destination()
    found = run.explained()
    assert tiles(found) == [
        ("late_submission", 0, 200, 300), ("submit_call", 0, 300, 341), ("flag_wait", 1, 341, 345), *END[2:],
    ]  # fmt: skip


def slots(n=5, release=True, **late):
    """Handoffs through one slot: each consumer runs until the next producer has long finished."""
    run, period = Run(), 1000
    for k in range(n):
        at = (k + 1) * period
        held = k > 0 and release
        sent = (505, 515) if held else (210, 220)
        received = (sent[1] + 10, sent[1] + 15)
        run.ranks[0].timed_call(*ns((25, 26), at), "stream_memop", "cuStreamWaitValue32_v2")
        moments = {"submit": (20, 40), "send_call": (30, 32), "sent": sent, "received": received}
        moments["consumed"] = (received[1] + 10, period + 500 if release else received[1] + 20)
        run.handoff(k + 1, at, **{**moments, **late})
    return run


def test_slot_wait():
    found = slots().explained()
    for k in (2, 3, 4, 5):
        assert tiles(found, f"0>1/0/{k}", at=k * 1000) == [
            ("slot_wait", 1, 200, 500), ("slot_wait", 0, 500, 505), ("movement", 0, 505, 515),
            ("flag_wait", 1, 515, 525), ("movement", 1, 525, 530), ("event_release", 1, 530, 540),
        ]  # fmt: skip
        assert of_cause(found, "op", "slot_wait", f"0>1/0/{k}") == ["consumer", "copy DtoH"]
        assert of_cause(found, "evidence", "slot_wait", f"0>1/0/{k}")[1] == "inferred"
        assert handoff(found, f"0>1/0/{k}")["dominant_cause"] == "slot_wait"
    assert "slot_wait" not in {cause for cause, *_ in tiles(found, "0>1/0/1", at=1000)}


def test_a_slot_can_be_the_next_cause():
    found = slots(consume=(790, 803), consume_call=(795, 800), consumed=(805, 1500)).explained()
    for k in (2, 3, 4, 5):
        about = handoff(found, f"0>1/0/{k}")
        assert (about["dominant_cause"], about["dominant_ns"], about["removable_ns"]) == ("late_launch", 600, 270)
        assert about["next_cause"] == "slot_wait"


def test_no_slot_wait_where_transfers_never_waited():
    assert "slot_wait" not in set(slots(release=False).explained().tiles["cause"])


def test_one_held_transfer_is_not_enough_to_infer_a_slot():
    assert "slot_wait" not in set(slots(n=2).explained().tiles["cause"])


# The destination's side -------------------------------------------------------------------------------------------


def test_late_receive():
    run = Run().handoff(receive=(430, 455), receive_call=(440, 450), received=(455, 500), event=460, wait=472,
                        consume=(470, 490), consume_call=(480, 482), consumed=(505, 550))  # fmt: skip
    found = run.explained()
    assert tiles(found) == [
        ("late_receive", 1, 200, 450), ("launch_latency", 1, 450, 455), ("movement", 1, 455, 500),
        ("event_release", 1, 500, 505),
    ]  # fmt: skip
    about = handoff(found)
    assert (about["dominant_cause"], about["consumer_bound"]) == ("late_receive", True)
    # The copy would have waited for the flag: from 335 to where it could start, 5 after it (as measured) 340.
    assert (about["removable_ns"], about["next_cause"]) == (115, "late_submission")
    assert about["slack_ns"] is None or about["slack_ns"] >= 0


def test_late_launch():
    found = Run().handoff(consume=(550, 580), consume_call=(560, 570), consumed=(575, 600)).explained()
    assert tiles(found) == [("late_launch", 1, 200, 570), ("launch_latency", 1, 570, 575)]
    assert handoff(found) == {
        "dominant_cause": "late_launch", "dominant_ns": 370, "removable_ns": 220, "next_cause": "late_submission",
        "consumer_bound": True, "slack_ns": 220,
    }  # fmt: skip


def test_consumer_busy_and_its_headroom():
    """Busy for 268 after the producer; the data is there 225 after it: without the occupant, 43 sooner."""
    run = Run()
    run.op(1, (3, 4), (90, 468), COMPUTE, name="occupant")
    found = run.handoff(submit=(375, 405), send_call=(385, 395), sent=(400, 410), received=(420, 425),
                        consumed=(471, 500)).explained()  # fmt: skip
    assert tiles(found) == [("consumer_busy", 1, 200, 468), ("stream_turnaround", 1, 468, 471)]
    assert set(of_cause(found, "op", "consumer_busy")) == {"occupant"}
    assert handoff(found) == {
        "dominant_cause": "consumer_busy", "dominant_ns": 268, "removable_ns": 43, "next_cause": "late_submission",
        "consumer_bound": True, "slack_ns": 43,
    }  # fmt: skip


def test_an_unrelated_operation_that_starts_with_the_consumer_is_not_the_consumer():
    run = Run()
    run.op(1, (3, 4), (360, 390), 3, name="unrelated")
    assert tiles(run.handoff().explained()) == PLAIN_TILES


def test_slack_where_the_consumer_starts_right_as_its_stream_is_free():
    run = Run()
    run.op(1, (3, 4), (90, 471), COMPUTE, name="occupant")
    about = handoff(run.handoff(consumed=(471, 500)).explained())
    assert (about["consumer_bound"], about["slack_ns"]) == (True, 121)  # available at 350


def test_a_second_constraint_as_late_leaves_nothing_to_gain():
    run = Run()
    run.op(1, (3, 4), (90, 350), COMPUTE, name="occupant")
    about = handoff(run.handoff().explained())
    assert about["dominant_cause"] == "late_submission"  # the event: on equal times the edge holds
    assert about["removable_ns"] == 0
    assert about["next_cause"] == "consumer_busy"


def test_launch_latency():
    found = Run().handoff(sent=(345, 355), received=(365, 370), consumed=(380, 390)).explained()
    assert ("launch_latency", 0, 320, 345) in tiles(found)


@pytest.mark.parametrize(("tool", "evidence"), [("nsys", "recorded"), ("torch", "inferred")])
def test_event_release(tool, evidence):
    found = Run(tool).handoff(consumed=(390, 400)).explained()
    assert tiles(found)[-1] == ("event_release", 1, 350, 390)
    assert of_cause(found, "evidence", "event_release") == [evidence]


@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_the_same_stream_number_on_another_device_of_the_process_is_another_stream(tool):
    run = Run(tool)
    run.source()
    run.destination(other_device=5, consume=(57, 70))
    assert tiles(run.explained()) == PLAIN_TILES


def test_stream_turnaround():
    run = Run()
    run.op(1, (3, 4), (90, 352), COMPUTE, name="occupant")
    assert tiles(run.handoff().explained())[-2:] == [("consumer_busy", 1, 200, 352), ("stream_turnaround", 1, 352, 360)]


def test_unexplained():
    found = Run().handoff(consumed=(1350, 1400)).explained()
    assert tiles(found) == [*PLAIN_TILES[:-1], ("unexplained", 1, 350, 1350)]
    assert handoff(found)["dominant_cause"] == "unexplained"


def test_a_long_residual_is_unexplained_though_events_lie_in_it():
    """Launched at 290, started at 375, and nothing recorded held it for these 85."""
    found = Run().handoff(events=False, consume_call=(280, 290), consume=(270, 292), received=(335, 340),
                          consumed=(375, 400)).explained()  # fmt: skip
    assert tiles(found) == [("late_launch", 1, 200, 290), ("unexplained", 1, 290, 375)]


def test_the_first_call_of_a_thread_has_nothing_before_it():
    run = Run()
    run.handoff()
    for table in ("calls", "ranges"):  # all but the send is of another thread
        for row in run.ranks[0].rows[table]:
            if row["start_ns"] < 300 * US:
                row["thread"] = 2
    found = run.explained()
    assert tiles(found)[:2] == [("unexplained", 0, 200, 310), ("submit_call", 0, 310, 320)]
    assert set(of_cause(found, "evidence", "unexplained")) == {"unknown"}


# On the host ------------------------------------------------------------------------------------------------------


def on_hosts(send, received, at, returned=None):
    """A handoff between hosts over gloo, each moment in µs; the thread of rank 1 then does nothing until ``at``.

    ``returned``: when the call within the receive came back, if sooner.
    """
    r0, r1 = Recording("run", pid=10), Recording("run", pid=11)
    key = "src=0 dst=1 seq=1 step=1 device=cpu"
    for r in (r0, r1):
        r.timed_call(*ns((1, 2)), family="other")
    r0.mark(f"produce {key}", *ns((100, 200)))
    r0.mark(f"submit {key}", *ns((send, send + 10)))
    r0.message("gloo:send", *ns((send, send + 10)))
    r1.mark(f"receive {key}", *ns((50, received)))
    r1.message("gloo:recv", *ns((50, returned or received)))
    r1.mark(f"consume {key}", *ns((at, at + 100)))
    return explained(r0.add_process(r1))


def test_a_consumer_on_the_host():
    found = on_hosts(send=300, received=320, at=500)
    assert tiles(found) == [("late_submission", 0, 200, 300), ("movement", 1, 300, 320), ("late_launch", 1, 320, 500)]
    about = handoff(found)
    assert (about["dominant_cause"], about["dominant_ns"], about["consumer_bound"]) == ("late_launch", 180, False)


def test_a_consumer_on_the_host_could_start_sooner():
    about = handoff(on_hosts(send=300, received=320, at=500))
    assert (about["removable_ns"], about["next_cause"]) == (180, "late_submission")


def test_a_gap_of_zero_on_the_host():
    found = on_hosts(send=200, received=200, at=200, returned=190)
    assert found.handoffs["order"].to_list() == ["ok"]
    assert found.tiles.height == 0


# Beyond the two ---------------------------------------------------------------------------------------------------


def test_nccl_receive_waits_for_its_peer_and_the_walk_goes_on_there():
    found = Run().handoff(nccl=True, received=(150, 335), consumed=(340, 400)).explained()
    assert tiles(found) == [
        ("late_submission", 0, 200, 300), ("submit_call", 0, 300, 320), ("launch_latency", 0, 320, 325),
        ("movement", 1, 325, 335), ("event_release", 1, 335, 340),
    ]  # fmt: skip
    assert of_cause(found, "evidence", "movement") == ["declared"]
    assert handoff(found)["removable_ns"] == 100


def test_nccl_receive_after_its_peer_is_late_itself():
    found = Run().handoff(nccl=True, submit=(20, 40), send_call=(30, 32), sent=(205, 470), receive=(430, 455),
                          receive_call=(440, 450), received=(455, 470), event=460, consume=(461, 464), wait=462,
                          consume_call=(463, 464), consumed=(475, 500)).explained()  # fmt: skip
    assert tiles(found) == [
        ("late_receive", 1, 200, 450), ("launch_latency", 1, 450, 455), ("movement", 1, 455, 470),
        ("event_release", 1, 470, 475),
    ]  # fmt: skip


def shared_device(n=12, idle=True, device=0):
    """Two processes that take turns; each consumer starts 140 after all was ready."""
    run = Run(devices=(0, device))
    for k in range(1, n + 1):
        run.handoff(k, k * 1000, consumed=(490, 890 if idle else 1095))
    return run


def test_device_sharing():
    found = shared_device().explained()
    for k in (2, 7, 12):
        assert tiles(found, f"0>1/0/{k}", at=k * 1000) == [*PLAIN_TILES[:-1], ("device_sharing", 1, 350, 490)]
        assert of_cause(found, "detail", "device_sharing", f"0>1/0/{k}") == ["after producer of rank 0"]


def test_two_devices_are_not_shared():
    assert "device_sharing" not in set(shared_device(device=1).explained().tiles["cause"])


def test_few_changes_or_short_idle_are_no_sharing():
    assert "device_sharing" not in set(shared_device(n=10).explained().tiles["cause"])
    assert "device_sharing" not in set(shared_device(idle=False).explained().tiles["cause"])


def test_devices_of_two_hosts_are_not_shared():
    """A pipeline that goes to and fro never overlaps, and each rank numbers its only device 0."""
    found = two_files(n=12, devices=(0, 0), hosts=("a", "b"), submit=(300, 330), send_call=(310, 320), sent=(325, 335),
                      received=(345, 350), consumed=(490, 600))  # fmt: skip
    assert found.tiles.height > 12
    assert "device_sharing" not in set(found.tiles["cause"])


def upstream():
    """The consumer's stream has an all-reduce with rank 2, which computes until 580."""
    run = Run("torch")
    run.destination(consumed=(603, 650))
    run.source()
    sums = [(1, (3, 4), (90, 600)), (2, (20, 21), (585, 600))]
    run.op(2, (10, 11), (100, 580), COMPUTE, name="elsewhere")
    for rank, call, ran in sums:
        run.op(rank, call, ran, COMPUTE, name="ncclDevKernel_AllReduce_Sum")
        r = run.ranks[rank]
        row = {"op": "allreduce", "group": "3", "group_ranks": "[1, 2]", "group_size": 2, "seq": 7, "size_bytes": 64}
        r._add("comms", {**row, "start_ns": ran[0] * US, "end_ns": ran[1] * US,
                         "correlation": r.rows["ops"][-1]["correlation"]})  # fmt: skip
    r = run.ranks[1]  # in order of the calls
    for table in ("calls", "ops"):
        r.rows[table].sort(key=lambda row: row["start_ns"])
    in_order = {row["correlation"]: n for n, row in enumerate(r.rows["calls"], 1)}
    for table in ("calls", "ops", "syncs", "comms"):
        for row in r.rows[table]:
            row["correlation"] = in_order[row["correlation"]]
    return run


def test_upstream_compute():
    found = upstream().explained()
    assert tiles(found) == [
        ("upstream_compute", 2, 200, 580), ("stream_turnaround", 2, 580, 585), ("consumer_busy", 1, 585, 600),
        ("stream_turnaround", 1, 600, 603),
    ]  # fmt: skip
    assert of_cause(found, "op", "upstream_compute")[0] == "elsewhere"


def test_a_host_message_is_waited_for():
    """The sender of a token comes late: rank 1 can launch its receive only then."""
    run = Run("torch")
    run.source(submit=(20, 40), send_call=(30, 32), sent=(205, 215))
    r0, r1 = run.ranks[:2]
    r0._add(
        "ranges", {"kind": "annotation", "thread": 1, "start_ns": 500 * US, "end_ns": 510 * US, "name": "gloo:send"}
    )
    r1._add("ranges", {"kind": "annotation", "thread": 1, "start_ns": 10 * US, "end_ns": 520 * US, "name": "gloo:recv"})
    run.destination(receive=(530, 545), receive_call=(535, 540), received=(545, 560), event=551, consume=(552, 558),
                    wait=553, consume_call=(554, 555), consumed=(570, 600))  # fmt: skip
    found = run.explained()
    assert tiles(found) == [
        ("submit_call", 0, 200, 500), ("metadata_wait", 1, 500, 520), ("late_receive", 1, 520, 540),
        ("launch_latency", 1, 540, 545), ("movement", 1, 545, 560), ("event_release", 1, 560, 570),
    ]  # fmt: skip
    assert of_cause(found, "op", "metadata_wait") == ["gloo:recv"]


def collective(late, waited=False):
    """An all-reduce of three ranks that marks name; one comes 300 late.

    The kernel is launched inside submit and receive, one in the other; or (``waited``) inside submit alone, and the
    receive launches what unpacks it.
    """
    run = Run()
    for rank, r in enumerate(run.ranks):
        key, more = f"group=tp seq=1 step=1 rank={rank}", 300 if rank == late else 0
        r.mark(f"produce {key}", *ns((3, 10)))
        run.op(rank, (5, 7), (100, 200 + rank), COMPUTE, name="producer")
        r.mark(f"submit {key}", *ns((210 + more, 230 + more)))
        r.mark(f"receive {key}", *ns((235 + more, 239 + more) if waited else (211 + more, 229 + more)))
        run.op(rank, (215 + more, 220 + more), (225 + more, 560), TRANSFER, name="ncclDevKernel_AllReduce")
        if waited:
            run.op(rank, (236 + more, 237 + more), (562, 565), TRANSFER, name="unpack")
        r.event_record((241 + more) * US, TRANSFER, rank + 1, rank)
        r.mark(f"consume {key}", *ns((242 + more, 250 + more)))
        r.stream_wait((243 + more) * US, COMPUTE, rank + 1, rank)
        run.op(rank, (244 + more, 245 + more), (570, 600), COMPUTE, name="consumer")
    return run


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_collective_names_the_last_to_arrive(late):
    found = collective(late).explained()
    waiting = [rank for rank in range(3) if rank != late]
    assert found.handoffs["handoff_id"].sort().to_list() == [f"tp/0/1@{rank}" for rank in waiting]
    assert set(found.handoffs["src_rank"]) == {late}
    for rank in waiting:
        assert tiles(found, f"tp/0/1@{rank}") == [
            ("late_submission", late, 200 + late, 510), ("submit_call", late, 510, 520),
            ("launch_latency", late, 520, 525), ("movement", rank, 525, 560), ("event_release", rank, 560, 570),
        ]  # fmt: skip
        assert handoff(found, f"tp/0/1@{rank}")["removable_ns"] == 300  # then the next to arrive


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_collective_waits_in_its_submit_kernel_too(late):
    found = collective(late, waited=True).explained()
    for rank in {0, 1, 2} - {late}:
        assert handoff(found, f"tp/0/1@{rank}")["dominant_cause"] == "late_submission"
        assert tiles(found, f"tp/0/1@{rank}")[0] == ("late_submission", late, 200 + late, 510)


# The same whatever else is there ----------------------------------------------------------------------------------


def busy():
    """A run with several causes: a slot, a late submission, a busy consumer."""
    run = slots()
    run.handoff(6, 7000)
    run.op(1, (8003, 8004), (8090, 8468), COMPUTE, name="occupant")
    run.handoff(7, 8000)
    return run


COMPARED = ["handoff_id", "start_ns", "end_ns", "cause", "rank", "op", "lane", "phase", "evidence", "detail"]


def test_the_order_of_rows_does_not_matter():
    one, other = busy(), busy()
    for r in other.ranks:
        for rows in r.rows.values():
            rows.reverse()
    a, b = one.explained(), other.explained()
    assert a.tiles.select(COMPARED).equals(b.tiles.select(COMPARED))
    assert a.handoffs.equals(b.handoffs)


def test_an_unrelated_stream_and_process_do_not_matter():
    one, other = busy(), busy()
    for at in range(1000, 9000, 170):
        for rank in (0, 1):
            r = other.ranks[rank]
            correlation = r.call(at * US, thread=5, correlation=100_000 + at)
            r.op(correlation, (at + 3) * US, (at + 100) * US, 21, device=rank, name="unrelated")
    stranger = Recording("run", pid=99)
    for at in range(1000, 9000, 130):
        stranger.kernel(at * US, (at + 1) * US, (at + 90) * US)
        stranger.rows["ops"][-1]["device"] = 0
    other.ranks[0].add_process(stranger)
    a, b = one.explained(), other.explained()
    assert a.tiles.select(COMPARED).equals(b.tiles.select(COMPARED))
    assert a.handoffs.select(CAUSE_COLUMNS).equals(b.handoffs.select(CAUSE_COLUMNS))


def test_twice_the_times_are_twice_the_tiles():
    one, other = busy(), busy()
    for r in other.ranks:
        r.on_clock(lambda t: 2 * t)
    a, b = one.explained().tiles, other.explained().tiles
    times = ["start_ns", "end_ns", "duration_ns"]
    same = [c for c in COMPARED if c not in times]
    assert a.select(same).equals(b.select(same))
    assert a.select(pl.col(times) * 2).equals(b.select(times))


def two_files(shift=0, n=8, devices=(0, 1), hosts=(None, None), **moments):
    """A run as two files, with tokens back, of which the second stands elsewhere in time; every other send is late."""
    run = Run(devices=devices)
    for k in range(1, n + 1):
        late = 300 if k % 2 else 0
        m = {t: tuple(v + late for v in PLAIN[t]) for t in ("submit", "send_call", "sent", "received", "consumed")}
        run.handoff(k, k * 2000, **{**m, **moments})
    for k in range(1, n + 1):  # answers: what rank 1 sends, rank 0 has 4 after
        at, key = k * 2000 + 800, f"src=1 dst=0 seq={k} step={k}"
        ends = ((1, "produce", at), (1, "submit", at + 20), (0, "receive", at + 30), (0, "consume", at + 50))
        for rank, mark, begin in ends:
            run.ranks[rank].mark(f"{mark} {key}", begin * US, (begin + 5) * US)
            run.copy(rank, (begin + 1, begin + 2), (begin + 6, begin + 12), 30, "HtoD")
    one, two = run.ranks[:2]
    one.info, two.info = (Recording(f"run_{r}", pid=10 + r, host=hosts[r]).info for r in (0, 1))
    two.shift(shift)
    return explained(one, two)


def test_a_shifted_file_has_the_same_causes():
    plain, shifted = two_files(0), two_files(5_000_000_000)
    forward = pl.col("handoff_id").str.starts_with("0>1")
    bound = shifted.handoffs.filter(forward)["uncertainty_ns"].max()
    assert bound is not None
    assert bound < 100 * US
    assert plain.handoffs["status"].to_list() == shifted.handoffs["status"].to_list()
    for k in range(1, 9):
        name = f"0>1/0/{k}"
        a, b = ({c: s for c, s in _sums(f, name).items() if s > bound} for f in (plain, shifted))
        assert a.keys() == b.keys() == {"late_submission"}
        assert handoff(plain, name)["dominant_cause"] == handoff(shifted, name)["dominant_cause"]
        assert abs(a["late_submission"] - b["late_submission"]) <= bound


def _sums(found, name):
    mine = found.tiles.filter(pl.col("handoff_id") == name).group_by("cause").agg(pl.col("duration_ns").sum())
    return dict(mine.iter_rows())

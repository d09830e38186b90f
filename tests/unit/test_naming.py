"""How time on the chain is named, on built recordings: one rule each, where it applies and where it does not."""

from __future__ import annotations

import polars as pl
import pytest

from gapscope.causes import headroom
from gapscope.causes.summary import summarize_causes
from gapscope.schema import EXPOSURE, UNITS, dtypes
from tests.unit.test_causes import (
    COMPUTE,
    PLAIN_TILES,
    TRANSFER,
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


# Communication whose peer is not known ----------------------------------------------------------------------------

RECEIVED = {"received": (150, 335), "consumed": (340, 400)}


def lonely(seq=1, at=0, run=None, **moments):
    """A receive with NCCL of which no send kernel is recorded."""
    run = run or Run()
    run.source(seq, at)
    run.destination(seq, at, nccl=True, **{**RECEIVED, **moments})
    return run


def test_one_receive_without_a_peer_is_waiting_and_moving_not_split():
    found = lonely().explained()
    assert tiles(found) == [("peer_wait", 1, 200, 335), ("event_release", 1, 335, 340)]
    assert set(of_cause(found, "detail", "peer_wait")) == {"peer not known: wait and transfer, not split"}
    assert set(of_cause(found, "evidence", "peer_wait")) == {"inferred"}


def sized(run):
    """Let all marks tell the size."""
    for r in run.ranks:
        for row in r.rows["ranges"]:
            row["name"] += " bytes=4096"
    return run


def test_of_several_receives_the_shortest_tells_what_moving_takes():
    run = lonely()
    lonely(2, 1000, run, receive=(20, 330), receive_call=(310, 320), received=(325, 337), event=331, consume=(332, 339),
           wait=333, consume_call=(334, 335), consumed=(342, 400))  # fmt: skip
    found = sized(run).explained()
    assert tiles(found)[0] == ("peer_wait", 1, 200, 323)
    assert tiles(found)[1:] == [("movement", 1, 323, 335), ("event_release", 1, 335, 340)]
    assert set(of_cause(found, "detail", "peer_wait")) == {"peer not known"}
    assert set(of_cause(found, "evidence", "movement")) == {"inferred"}
    assert ("movement", 1, 325, 337) in tiles(found, "0>1/0/2", 1000)


def test_receives_of_unknown_or_other_size_tell_nothing():
    run = lonely()
    lonely(2, 1000, run, received=(323, 335))
    assert tiles(run.explained())[0] == ("peer_wait", 1, 200, 335)
    other = lonely()
    lonely(2, 1000, other, received=(323, 335))
    for row in other.ranks[0].rows["ranges"] + other.ranks[1].rows["ranges"]:
        row["name"] += f" bytes={row['start_ns'] // (1000 * US)}"
    assert tiles(other.explained())[0] == ("peer_wait", 1, 200, 335)


def test_a_receive_with_its_peer_is_not_guessed_at():
    run = Run().handoff(nccl=True, **RECEIVED)
    assert "peer_wait" not in set(sized(run).explained().tiles["cause"])


def test_a_collective_of_others_before_the_consumer():
    """An all-reduce with a rank that is not recorded runs on the consumer's stream."""
    run = Run("torch")
    for call, ran in (((3, 4), (20, 30)), ((9, 10), (90, 352))):
        run.op(1, call, ran, COMPUTE, name="ncclDevKernel_AllReduce_Sum")
        r = run.ranks[1]
        row = {"op": "allreduce", "group": "3", "group_ranks": "[1, 2]", "group_size": 2, "size_bytes": 64}
        r._add("comms", {**row, "start_ns": ran[0] * US, "end_ns": ran[1] * US,
                         "correlation": r.rows["ops"][-1]["correlation"]})  # fmt: skip
    found = run.handoff().explained()
    assert tiles(found) == [
        ("peer_wait", 1, 200, 342), ("consumer_busy", 1, 342, 352), ("stream_turnaround", 1, 352, 360),
    ]  # fmt: skip
    assert set(of_cause(found, "op", "peer_wait")) == {"ncclDevKernel_AllReduce_Sum"}
    assert set(of_cause(found, "evidence", "consumer_busy")) == {"inferred"}


def test_a_send_of_others_is_no_waiting():
    run = Run("torch")
    run.op(1, (9, 10), (90, 352), COMPUTE, name="ncclDevKernel_SendRecv")
    row = {"op": "send", "group": "3", "peer": 2, "size_bytes": 64, "start_ns": 90 * US, "end_ns": 352 * US}
    run.ranks[1]._add("comms", {**row, "correlation": run.ranks[1].rows["ops"][-1]["correlation"]})
    assert tiles(run.handoff().explained())[0] == ("consumer_busy", 1, 200, 352)


# Messages between hosts -------------------------------------------------------------------------------------------


def message(begin, until, sent=None, rank=1, transport="", others=0, **moments):
    """A message that rank 1 receives on its host, in µs; ``sent``: when rank 0 sends it, if that is recorded."""
    run = Run("torch")
    run.ranks[rank].message("gloo:recv", *ns((begin, until)))
    if sent is not None:
        run.ranks[1 - rank].message("gloo:send", *ns((sent, sent + 5)))
    late = {"receive": (430, 455), "receive_call": (440, 450), "received": (455, 500), "event": 460, "wait": 472,
            "consume": (470, 490), "consume_call": (480, 482), "consumed": (505, 550)}  # fmt: skip
    run.handoff(**{**late, **moments})
    for row in run.ranks[0].rows["ranges"] + run.ranks[1].rows["ranges"]:
        row["name"] += f" transport={transport}" if transport and row["name"].startswith("gapscope") else ""
    for k in range(others):
        run.ranks[0].message("gloo:recv", *ns((600 + k, 601 + k)))
    return run.explained()


REST = [("late_receive", 1, 420, 450), ("launch_latency", 1, 450, 455), ("movement", 1, 455, 500),
        ("event_release", 1, 500, 505)]  # fmt: skip


def test_a_control_message_ahead_of_the_receive_is_metadata():
    found = message(100, 420, sent=400)
    assert ("metadata_wait", 1, 400, 420) in tiles(found)
    assert tiles(found)[-4:] == REST
    assert of_cause(found, "evidence", "metadata_wait") == ["inferred"]


def test_a_message_after_its_sender_is_no_late_receive():
    """The sender was there before: all of it is the message."""
    assert tiles(message(300, 420, sent=250))[-5:] == [("metadata_wait", 1, 300, 420), *REST]


def test_a_message_that_began_before_the_receive_is_not_its_data():
    """Rank 0 sends it only when the receive has begun."""
    found = message(390, 445, sent=440, receive=(430, 475), receive_call=(447, 450))
    assert ("metadata_wait", 1, 440, 445) in tiles(found)


@pytest.mark.parametrize(("transport", "cause"), [("gloo", "movement"), ("nccl", "metadata_wait"), ("", "movement")])
def test_a_message_within_the_receive_is_its_data_where_hosts_move_that(transport, cause):
    found = message(432, 438, sent=431, transport=transport)
    assert (cause, 1, 432, 438) in tiles(found)


@pytest.mark.parametrize(("begin", "cause"), [(300, "metadata_wait"), (431, "peer_wait")])
def test_a_message_of_an_unknown_sender_is_not_split(begin, cause):
    found = message(begin, 439, others=1)
    assert (cause, 1, begin, 439) in tiles(found)
    assert set(of_cause(found, "detail", cause)) == {"peer not known: wait and transfer, not split"}
    assert set(of_cause(found, "evidence", cause)) == {"inferred"}


# Collectives that are one operation, launched in submit -----------------------------------------------------------


def one_shot(late, receive=None, seqs=(1,), name="one_shot_all_reduce"):
    """An all-reduce of three ranks by one kernel that submit launches; ``receive``: what there is of it (µs)."""
    run = Run()
    for seq in seqs:
        at = 1_000 * (seq - 1)
        for rank, r in enumerate(run.ranks):
            key, more = f"group=tp seq={seq} step={seq} rank={rank}", 300 if rank == late else 0
            r.mark(f"produce {key}", *ns((3, 10), at))
            run.op(rank, (at + 5, at + 7), (at + 100, at + 200 + rank), COMPUTE, name="producer")
            r.mark(f"submit {key}", *ns((210 + more, 230 + more), at))
            run.op(rank, (at + 215 + more, at + 220 + more), (at + 225 + more, at + 560), COMPUTE, name=name)
            if receive is not None:
                r.mark(f"receive {key}", *ns((receive[0] + more, receive[1] + more), at))
            r.mark(f"consume {key}", *ns((242 + more, 250 + more), at))
            run.op(rank, (at + 244 + more, at + 245 + more), (at + 570, at + 600), COMPUTE, name="consumer")
    return run


@pytest.mark.parametrize("receive", [None, (232, 240)])
@pytest.mark.parametrize("late", [0, 2])
def test_a_collective_of_one_operation_is_available_when_that_ends(late, receive):
    found = one_shot(late, receive).explained()
    for rank in {0, 1, 2} - {late}:
        row = found.handoffs.filter(pl.col("dst_rank") == rank).row(0, named=True)
        assert (row["status"], row["order"], row["available_ns"]) == ("complete", "ok", 560 * US)
        assert row["available_source"] == "derived"
        assert tiles(found, f"tp/0/1@{rank}") == [
            ("late_submission", late, 200 + late, 510), ("submit_call", late, 510, 520),
            ("launch_latency", late, 520, 525), ("movement", rank, 525, 560), ("stream_turnaround", rank, 560, 570),
        ]  # fmt: skip


def test_a_lost_receive_of_a_collective_is_not_replaced_by_its_submit():
    """Two of three collectives have a receive that launches something on rank 1; the other lacks it there."""
    run = one_shot(0, (232, 240), seqs=(1, 2, 3))
    for seq in (1, 3):
        at = 1_000 * (seq - 1)
        run.op(1, (at + 234, at + 235), (at + 562, at + 565), COMPUTE, name="unpack")
    for rows in run.ranks[1].rows.values():
        rows.sort(key=lambda row: row.get("start_ns") or 0)
    found = run.explained().handoffs.filter(pl.col("dst_rank") == 1).sort("seq")
    assert found["available_ns"].to_list() == [565 * US, None, 2_565 * US]
    assert found["status"].to_list() == ["complete", "incomplete", "complete"]


# Choices that the clocks leave open -------------------------------------------------------------------------------


def summarized(found, tiles):
    nothing = (pl.DataFrame(schema=dtypes(t)) for t in (UNITS, EXPOSURE))
    return summarize_causes(found.handoffs.with_columns(steady=pl.lit(value=True)), tiles, *nothing)


@pytest.mark.parametrize(("choices", "uncertain"), [((), 0), ((335,), 135), ((325, 335), 135), ((200,), 0)])
def test_what_hangs_on_a_choice_with_a_runner_up(choices, uncertain):
    """The gap is from 200 to 360; the tiles that begin at ``choices`` have a runner-up."""
    found = Run().handoff().explained()
    chosen = pl.col("start_ns").is_in([at * US for at in choices])
    marked = found.tiles.with_columns(runner_up=pl.when(chosen).then(pl.lit("another")))
    [edge] = summarized(found, marked)["edges"]
    assert (edge["gap_ns"], edge["uncertain_ns"]) == (160 * US, uncertain * US)


def test_pieces_of_one_stretch_are_one_choice():
    """The send call begins within it; the choice is where the whole stretch begins."""
    found = Run().handoff().explained()
    of_host = (pl.col("lane") == "host:1") & (pl.col("start_ns") < 310 * US)
    marked = found.tiles.with_columns(runner_up=pl.when(of_host).then(pl.lit("another")))
    [edge] = summarized(found, marked)["edges"]
    assert edge["uncertain_ns"] == 0


# What the schedule put first --------------------------------------------------------------------------------------


def two_stages(came=395, mb=(0, 1), named=True, first=(380, 600)):
    """Rank 1 issues the stage of handoff 2 (``first``) before that of handoff 1, whose data came at 350.

    ``came``: when the copy of handoff 2's data began, on a stream of its own.
    """
    run = Run()
    run.source()
    run.source(2, produce=(203, 207), produce_call=(204, 205), produced=(210, 240), submit=(322, 328),
               send_call=(324, 326), sent=(came - 10, came - 5))  # fmt: skip
    r1, key = run.ranks[1], "src=0 dst=1 seq={0} step={0}"
    for seq, posted, ran, stream in ((1, 20, (345, 350), TRANSFER), (2, 30, (came, came + 5), 14)):
        r1.mark(f"receive {key.format(seq)}", *ns((posted, posted + 5)))
        run.copy(1, (posted + 1, posted + 2), ran, stream, "HtoD")
        r1.event_record((posted + 6) * US, stream, seq, 1)
    stages = ((2, first, (first[1] - 8, first[1] - 6), (610, 615)), (1, (612, 630), (620, 622), (627, 700)))
    for seq, (begin, end), call, ran in stages:
        r1.mark(f"consume {key.format(seq)}", *ns((begin, end)))
        r1.stream_wait((begin + 1) * US, COMPUTE, seq, 1)
        run.op(1, call, ran, COMPUTE, name="consumer")
    for r in run.ranks if named else ():
        for row in r.rows["ranges"]:
            row["name"] += f" mb={mb[0] if 'seq=1' in row['name'] else mb[1]}"
            row["name"] = row["name"].replace("step=1", "step=5").replace("step=2", "step=5")
    return run.explained()


def test_a_stage_that_was_put_first_though_its_data_came_later_is_the_schedule():
    found = two_stages()
    assert tiles(found) == [
        ("late_launch", 1, 200, 380), ("schedule", 1, 380, 600), ("late_launch", 1, 600, 622),
        ("launch_latency", 1, 622, 627),
    ]  # fmt: skip
    assert set(of_cause(found, "detail", "schedule")) == {"the stage of handoff 0>1/0/2 first"}
    assert handoff(found)["dominant_cause"] == "schedule"
    assert "schedule" not in {cause for cause, *_ in tiles(found, "0>1/0/2")}


@pytest.mark.parametrize(
    "not_scheduled",
    [
        {"came": 335},  # in the order in which the data came: the consumer is slow
        {"mb": (1, 1)},  # the same microbatch
        {"named": False},  # nothing tells of microbatches
    ],
)
def test_other_stages_first_are_not_the_schedule(not_scheduled):
    assert "schedule" not in {cause for cause, *_ in tiles(two_stages(**not_scheduled))}


def test_a_stage_that_was_over_before_the_data_came_held_nothing():
    assert "schedule" not in {cause for cause, *_ in tiles(two_stages(first=(300, 340)))}


@pytest.mark.parametrize(
    ("causes", "sides", "bound"),
    [
        (["consumer_busy", "movement"], ["dst", "dst"], True),
        (["consumer_busy", "movement"], ["src", "dst"], False),
        (["unexplained", "movement"], ["dst", "dst"], None),
        (["unexplained", "movement"], ["dst", "src"], False),
    ],
)
def test_what_nothing_explains_may_have_been_the_source(causes, sides, bound):
    steps = pl.DataFrame(
        {"walk": [0, 0], "item": [3, 4], "what": [1, 1], "start_ns": [0, 5], "end_ns": [5, 9], "side": sides,
         "item_rank": [1, 1], "cause": causes}
    )  # fmt: skip
    assert headroom._bounds(steps)["consumer_bound"].to_list() == [bound]

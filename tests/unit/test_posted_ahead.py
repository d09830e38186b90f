"""Receives that are posted ahead and sends that queue: what holds which handoff, on built recordings."""

import pytest

from tests.unit.test_causes import COMPUTE, TRANSFER, Run, handoff, ns, of_cause, tiles

SEND_RECV = "ncclDevKernel_SendRecv"


def posted_ahead(tool, sent, received, consumed, waits=("one", "two")):
    """Two receives are posted, then each is waited for right before its consumer; µs of the second transfer."""
    run = Run(tool)
    run.source(1, nccl=True)
    run.source(2, nccl=True, produce=(12, 18), produce_call=(13, 14), produced=(201, 210), submit=(331, 336),
               send_call=(332, 334), sent=sent)  # fmt: skip
    r = run.ranks[1]
    keys = {name: f"src=0 dst=1 seq={seq} step=1" for seq, name in enumerate(("one", "two"), 1)}
    events = {name: seq if tool == "nsys" else None for seq, name in enumerate(keys, 1)}
    for at, name, ran in ((20, "one", (33, 345)), (30, "two", received)):
        r.mark(f"receive {keys[name]}", *ns((at, at + 8)))
        run.op(1, (at + 1, at + 2), ran, TRANSFER, name=SEND_RECV)
        r.event_record((at + 4) * 1_000, TRANSFER, events[name], 1)
    r.mark(f"consume {keys['one']}", *ns((50, 60)))
    for k, name in enumerate(waits[:-1] or waits):
        r.stream_wait((51 + k) * 1_000, COMPUTE, events[name], 1)
    run.op(1, (55, 56), consumed, COMPUTE, name="consumer")
    r.mark(f"consume {keys['two']}", *ns((70, 80)))
    r.stream_wait(72_000, COMPUTE, events["two"], 1)
    run.op(1, (75, 76), (600, 610), COMPUTE, name="consumer")
    return run.explained()


OWN = [
    ("late_submission", 0, 200, 300), ("submit_call", 0, 300, 320), ("launch_latency", 0, 320, 325),
    ("movement", 1, 325, 345), ("event_release", 1, 345, 355),
]  # fmt: skip


@pytest.mark.parametrize("tool", ["nsys", "torch"])
@pytest.mark.parametrize(
    ("sent", "received", "evidence"),
    [((425, 535), (346, 545), "inferred"), ((337, 348), (346, 353), "declared")],
    ids=["still open", "over as well"],
)
def test_a_consumer_waits_for_its_own_receive_not_for_one_posted_later(tool, sent, received, evidence):
    found = posted_ahead(tool, sent, received, (355, 400))
    assert tiles(found, "0>1/0/1") == OWN
    known = "recorded" if tool == "nsys" else evidence
    assert of_cause(found, "evidence", "event_release", "0>1/0/1") == [known]


@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_a_consumer_that_waits_for_two_receives_is_held_by_the_later(tool):
    found = posted_ahead(tool, (337, 348), (346, 353), (355, 400), waits=("one", "two", "then two"))
    assert tiles(found, "0>1/0/1")[-1] == ("event_release", 1, 353, 355)
    assert of_cause(found, "detail", "head_of_line", "0>1/0/1") == ["of handoff 0>1/0/2"]


def test_a_transfer_that_vanishes_does_so_on_both_ranks():
    """A small send behind a large one: its own call was over at 160, but for the large one it would start then."""
    run = Run()
    run.source(1, nccl=True, produced=(20, 30), submit=(11, 19), send_call=(12, 13), sent=(40, 310))
    run.source(2, nccl=True, produce=(20, 25), produce_call=(21, 22), produced=(100, 110), submit=(140, 170),
               send_call=(150, 160), sent=(312, 322))  # fmt: skip
    run.ranks[1].mark("receive src=0 dst=1 seq=1 step=1", *ns((14, 19)))
    run.op(1, (15, 16), (35, 312), TRANSFER, name=SEND_RECV)
    run.destination(2, nccl=True, receive=(80, 90), receive_call=(81, 82), received=(313, 325), event=92,
                    consume=(93, 99), wait=94, consume_call=(95, 96), consumed=(330, 340))  # fmt: skip
    found = run.explained()
    about = handoff(found, "0>1/0/2")
    assert (about["dominant_cause"], about["next_cause"]) == ("head_of_line", "late_submission")
    # The send would start 2 after its call, as after the one before it; its receive end 12 later, the consumer 5 later.
    assert about["removable_ns"] == 330 - 179

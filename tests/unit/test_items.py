"""Items of the graph: which host time launched what, and on which clocks items stand."""

from __future__ import annotations

import pytest

from tests.unit.test_causes import COMPUTE, END, TRANSFER, Run, ns, tiles

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

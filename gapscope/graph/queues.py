"""Operations that follow one another on a stream and were launched from what moves as one: one node, the last of them.

Each waits for its launch and for the one before it. By how much sooner the last comes is then a function of two: by how
much sooner what launched all of them does, and what the first waited for on the stream. With residuals that stay it is
the lesser of both, each with some slack. With floors it has one threshold: as long as the launches are less than
`TURN_NS` sooner than the stream is they hold, and it is that and `CALLED_NS` sooner; then the stream does.

A queue ends before an operation with which there would be a second threshold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import LAUNCH, NONE, STREAM, part

Ints = npt.NDArray[np.int64]

QUEUE = len(TYPES) + 1
"""Kind of both ways to a queue: from what launched it, and from what was before it on the stream."""

# What is known of a queue.
TURN_NS = 0  # with floors: so much sooner than the stream the launches have to be for the stream to hold the last;
CALLED_NS, BASE_NS = 1, 2  # by how much sooner than these the last is then
CALLED_PAST, BASE_PAST = 3, 4  # what held the first operation that did not wait for that way; NONE: all of them did
ROW = 5  # that much is kept of it
CALLED_SLACK, BASE_SLACK = 5, 6  # by how much sooner than the last each way is satisfied
CALLED, BASE = 7, 8  # which of the nodes that are kept they come from
ITEM = 9  # the last operation; NONE: no queue is open
FIELDS = 10

_NEVER = 2**61


@part
def begin(queue: Ints, called: int, base: int) -> None:
    """Begin a queue behind two nodes that are kept; as yet it is what was before it on the stream."""
    queue[TURN_NS], queue[CALLED_NS], queue[BASE_NS] = -_NEVER, 0, 0
    queue[CALLED_PAST], queue[BASE_PAST] = NONE, NONE
    queue[CALLED_SLACK], queue[BASE_SLACK] = _NEVER, 0
    queue[CALLED], queue[BASE] = called, base


@part
def follow(queue: Ints, item: int, at: int, launch: int, stream: int, launched_by: int, floor: Ints) -> bool:  # noqa: PLR0917
    """Add an operation to a queue; tell whether that could be done.

    Args:
        queue: The queue.
        item: The operation.
        at: When it began.
        launch: When the way from its launch was satisfied.
        stream: When the one from the operation before it on the stream was.
        launched_by: The node that the way from its launch comes from.
        floor: See `gapscope.graph.forward.Forward`.
    """
    since = max(launch, stream)
    launch_slack, stream_slack, passed = since - launch, since - stream, at - since
    # The other way than the last: by how much less passes once it is. On equal times the stream was the last.
    by_stream = stream_slack == 0
    launch_gain = passed - max(min(passed, floor[LAUNCH]), 0) if by_stream else np.int64(0)
    stream_gain = np.int64(0) if by_stream else passed - max(min(passed, floor[STREAM]), 0)
    # Where the launches hold what is before, and where the stream does.
    is_launched = launch_slack < stream_slack + queue[CALLED_NS]
    turn = stream_slack + queue[BASE_NS] - launch_slack
    if turn > queue[TURN_NS]:
        if queue[TURN_NS] > -_NEVER and not is_launched:
            return False
        queue[TURN_NS], queue[CALLED_NS] = turn, launch_slack + launch_gain
    elif is_launched:
        queue[CALLED_NS] = launch_slack + launch_gain
    else:
        queue[CALLED_NS] += stream_slack + stream_gain
    queue[BASE_NS] += stream_slack + stream_gain
    if launch_slack <= queue[CALLED_SLACK] + stream_slack:
        queue[CALLED_SLACK] = launch_slack
        queue[CALLED_PAST] = 2 * item - 1 if by_stream else NONE
    else:
        queue[CALLED_SLACK] += stream_slack
        if queue[CALLED_PAST] == NONE and not by_stream:
            queue[CALLED_PAST] = launched_by
    queue[BASE_SLACK] += stream_slack
    if queue[BASE_PAST] == NONE and not by_stream:
        queue[BASE_PAST] = launched_by
    queue[ITEM] = item
    return True

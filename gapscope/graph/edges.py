"""Edges: what had to be over before something could begin (or end)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.kernels import numbered

Ints = npt.NDArray[np.int64]

TYPES = (
    "launch",  # call -> operation that it launched
    "stream",  # operation -> the next on its stream
    "thread",  # host item -> the next on its thread
    "event",  # last operation before an event record -> first operation after a wait for it
    "sync",  # operation -> return of the call that waited for it
    "flag",  # write of a memory flag -> operation behind the wait for it
    "ack",  # consumer's release of a slot -> transfer that needs it
    "send_recv",  # start of a send -> end of its receive
    "collective",  # start on one rank -> end on another
    "host_message",  # send call -> return of the receive
    "default_stream",  # operation in the legacy default stream, or before it
)
"""What an edge is, in the order of their numbers."""

EVIDENCE = ("recorded", "structural", "declared", "inferred", "assumed", "unknown")
"""How an edge is known, strongest first: an id in the trace, a documented ordering rule, marks, a unique match, a
threshold."""

TYPE = {name: number for number, name in enumerate(TYPES)}
LEVEL = {name: number for number, name in enumerate(EVIDENCE)}

EDGE = {"to": pl.Int64, "from": pl.Int64, "ready_ns": pl.Int64, "type": pl.Int8, "evidence": pl.Int8}
"""Nodes (twice an item's number, plus one for its end), when the edge was satisfied on the common timebase, and the
numbers of type and evidence."""


@dataclass(frozen=True)
class Edges:
    """Edges grouped by the node that they lead to.

    Attributes:
        to: Node that each leads to, ascending.
        held: The nodes that an edge leads to, as `gapscope.graph.kernels.place` takes them.
        first: ``first[k]`` to ``first[k + 1]`` are the edges that lead to the k-th of these.
        source: Node that each comes from.
        ready: When each was satisfied.
        kind: Number of the type of each.
        level: Number of the evidence of each.
    """

    to: Ints
    held: Ints
    first: npt.NDArray[np.int32]
    source: Ints
    ready: Ints
    kind: npt.NDArray[np.int8]
    level: npt.NDArray[np.int8]


def edges(frame: pl.DataFrame, kind: str, evidence: str | pl.Expr) -> pl.DataFrame:
    """Return edges of one type.

    Args:
        frame: Has ``to``, ``from`` (nodes; rows where one is null are left out) and ``ready_ns``.
        kind: One of `TYPES`.
        evidence: One of `EVIDENCE`, or an expression that gives one.
    """
    level = pl.lit(evidence) if isinstance(evidence, str) else evidence
    return (
        frame.drop_nulls(["to", "from", "ready_ns"])
        .with_columns(
            type=pl.lit(TYPE[kind], dtype=pl.Int8), evidence=level.replace_strict(LEVEL, return_dtype=pl.Int8)
        )
        .select(pl.col(n).cast(t) for n, t in EDGE.items())
    )


def grouped(parts: list[pl.DataFrame], nodes: int) -> Edges:
    """Return edges grouped by node; of equal ones the first stays."""
    frame = pl.concat([pl.DataFrame(schema=EDGE), *parts])
    frame = frame.drop_nulls().unique(["to", "from", "type"], keep="first", maintain_order=True).sort("to", "from")
    to = frame["to"].to_numpy()
    begins = np.flatnonzero(to[1:] != to[:-1]) + 1
    first = np.concatenate([[0] * bool(len(to)), begins, [len(to)]]).astype(np.int32)
    return Edges(
        to,
        numbered(to[first[:-1]], nodes),
        first,
        frame["from"].to_numpy(),
        frame["ready_ns"].to_numpy(),
        frame["type"].to_numpy(),
        frame["evidence"].to_numpy(),
    )

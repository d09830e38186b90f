"""What handoffs the operations of a chain belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.facts import handoff_names
from gapscope.graph import Graph
from gapscope.graph.kernels import NONE, fixed, leaf, numbered, place

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

MOVES = ("submit", "receive")


@dataclass(frozen=True)
class Membership:
    """The brackets of all operations that a submit or receive launched.

    Attributes:
        held: These operations, as `gapscope.graph.kernels.place` takes them.
        first: ``first[k]`` to ``first[k + 1]`` are the brackets (of any kind) of the k-th, in order of time.
        handoff: Handoff of each bracket, see `gapscope.graph.context.Context.handoffs`.
        moves: Whether each bracket is a submit or receive.
    """

    held: Ints
    first: Indices
    handoff: Indices
    moves: Bools

    @classmethod
    def of(cls, graph: Graph) -> Membership:
        """Return that of a graph."""
        ops = graph.context.deciding_ops
        moved = ops.filter(pl.col("mark").is_in(MOVES))["item"]
        found = graph.context.brackets_of(moved).sort("item", maintain_order=True)
        item, moves = found["item"].to_numpy(), found["mark"].is_in(MOVES)
        first = np.flatnonzero(np.concatenate([[True] * bool(len(item)), item[1:] != item[:-1]]))
        handoff = found["handoff"].cast(pl.Int32).to_numpy()
        held = numbered(item[first], graph.items.n)
        return cls(held, np.append(first, len(item)).astype(np.int32), handoff, moves.to_numpy())


def with_membership(graph: Graph, membership: Membership, facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add what handoffs the operations of the steps belong to.

    That is ``moves`` (a submit or receive of this handoff launched it), ``other`` (number of another one whose transfer
    it is; `NONE`), ``stage_of`` (where a slot was waited for: of which handoff it is the consuming stage) and
    ``passes_own`` (seen from the consumer, the chain passes the handoff's own transfer before).

    Args:
        graph: The graph.
        membership: Its result of `Membership.of`.
        facts: Result of `gapscope.causes.facts.handoff_facts`; ``handoff`` is looked at.
        steps: By walk, in order of time.
    """
    moves, passes_own = np.empty((2, steps.height), np.bool_)
    other = np.empty(steps.height, np.int32)
    of = (membership.held, membership.first, membership.handoff, membership.moves)
    walk, item = steps["walk"].to_numpy(), steps["item"].fill_null(NONE).to_numpy()
    _find(*(fixed(values) for values in (*of, facts["handoff"].to_numpy(), walk, item)), moves, other, passes_own)
    return steps.with_columns(
        moves=pl.Series(moves), other=pl.Series(other), stage_of=_stages(graph, steps), passes_own=pl.Series(passes_own)
    )


@leaf
def _find(  # noqa: PLR0917 - what is known of operations, steps, and room for the answer
    held: Ints,
    first: Indices,
    handoff: Indices,
    moving: Bools,
    number: Indices,
    walk: Ints,
    item: Indices,
    moves: Bools,
    other: Indices,
    passes_own: Bools,
) -> None:
    """Write down for each step ``moves``, ``other`` and ``passes_own``."""
    passed = False
    for s in range(len(item) - 1, -1, -1):
        # The source's work is ahead of this transfer only if the chain passes the transfer on its way to it; else the
        # consumer needed the result of that work as well.
        if s + 1 < len(walk) and walk[s + 1] != walk[s]:
            passed = False
        moves[s], other[s], own = False, NONE, number[walk[s]]
        at = NONE if item[s] < 0 else place(held, item[s])
        if at != NONE:
            of_own, of_any = NONE, NONE  # the first bracket of this handoff, and the first that moves data of any
            for k in range(first[at + 1] - 1, first[at] - 1, -1):
                of_own = k if handoff[k] == own else of_own
                of_any = k if moving[k] else of_any
            moves[s] = of_own != NONE and moving[of_own]
            # One kernel may carry the messages of several handoffs; of this one's own transfer no other is named.
            if of_any != NONE and handoff[of_any] != own and not moves[s]:
                other[s] = handoff[of_any]
        passed = passed or moves[s]
        passes_own[s] = passed


def _stages(graph: Graph, steps: pl.DataFrame) -> pl.Series:
    """Return of which handoff the item of each step that waits for a slot is the consuming stage; null: of none."""
    stage = pl.Series("stage_of", [None], dtype=pl.String).new_from_index(0, steps.height)
    waits = (steps["is_slot"] & steps["item"].is_not_null()).arg_true()
    if len(waits):
        of_rows = pl.DataFrame({"item": steps["item"].gather(waits)})
        ops = graph.context.brackets_of(of_rows["item"])
        ops = ops.filter((pl.col("mark") == "consume") & pl.col("group").is_null())
        ops = ops.with_columns(
            pl.col("item").cast(of_rows.schema["item"]), stage_of=handoff_names(graph, ops["handoff"])
        )
        ops = ops.unique("item", keep="first", maintain_order=True).select("item", "stage_of")
        stage.scatter(waits, of_rows.join(ops, on="item", how="left", maintain_order="left")["stage_of"])
    return stage

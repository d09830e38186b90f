"""Which communication without marks becomes a handoff."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gapscope.events import Ends
from gapscope.findings import Finding
from gapscope.trace import Trace
from gapscope.unmarked.copies import peer_copies
from gapscope.unmarked.ends import SIDE, both, ends_of
from gapscope.unmarked.groups import groups
from gapscope.unmarked.host import host_transfers
from gapscope.unmarked.messages import messages
from gapscope.unmarked.notes import notes_on_unmarked

_MANY = 2**31  # more channels than anyone counts: such a number is no neighbor of those that are given here
_GPU = ["source", "process", "device", "stream"]
_PLACE = ["source", "process", "thread"]


def with_unmarked(
    trace: Trace, marked: Ends | None, *, wanted: bool, comm_kernels: Sequence[str] = ()
) -> tuple[Ends | None, list[Finding]]:
    """Return the ends of handoffs with those that no mark names.

    Args:
        trace: The recordings.
        marked: What the marks name; None: nothing.
        wanted: Take communication without marks also where there are marks. Without any, it is always taken.
        comm_kernels: Patterns of names of kernels that are collectives of the ranks that run them.
    """
    if marked is not None and not wanted and not comm_kernels:
        return marked, []
    everything = marked is None or wanted
    collectives, rooted, alone = groups(trace, comm_kernels, only_declared=not everything)
    parts = [messages(trace), host_transfers(trace), peer_copies(trace), rooted] if everything else []
    parts.append(collectives)
    sides = _apart(parts)
    primary = trace.processes.filter("primary").select("source", "process")
    sides = sides.join(primary, on=["source", "process"], how="semi", maintain_order="left")
    first_id = 0
    if marked is not None:
        sides = _beside(marked, _without(sides, marked))
        first_id = 1 + int(marked.marks["mark_id"].max() or 0)  # type: ignore[arg-type]
    findings = notes_on_unmarked(trace, sides, alone, everything=everything)
    if not sides.height:
        return marked, findings
    return both(marked, ends_of(trace, sides, first_id)), findings


def _apart(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return all sides, with channels of their own for each kind of communication between two ranks."""
    used, apart = 0, [pl.DataFrame(schema=SIDE)]
    for part in parts:
        is_pair = pl.col("group").is_null()
        apart.append(part.with_columns(pl.when(is_pair).then(pl.col("channel") + used).otherwise("channel")))
        highest = apart[-1].filter(is_pair)["channel"].max()
        used = used if highest is None else int(highest) + 1  # type: ignore[arg-type]
    return pl.concat(apart)


def _without(sides: pl.DataFrame, marked: Ends) -> pl.DataFrame:
    """Leave out what marks name: operations launched inside a submit or receive, and gloo calls within one."""
    transfer = pl.col("mark").is_in(["submit", "receive"])
    brackets = marked.brackets.filter(transfer).select("mark_id", *_PLACE, begin="start_ns", until="end_ns")
    launched = marked.launched.join(brackets, on="mark_id")
    named = launched.select(*_GPU, op_start="start_ns").unique()
    sides = sides.join(named, on=[*_GPU, "op_start"], how="anti", maintain_order="left")
    near = (
        sides.with_row_index("_row")
        .sort("host_ns")
        .join_asof(
            brackets.drop("mark_id").sort("begin"),
            left_on="host_ns",
            right_on="begin",
            by=_PLACE,
            check_sortedness=False,
        )
    )
    is_inside = (pl.col("host_ns") <= pl.col("until")).fill_null(value=False) & pl.col("correlation").is_null()
    inside = near.filter(is_inside)["_row"].implode()
    return sides.with_row_index("_row").filter(~pl.col("_row").is_in(inside)).drop("_row")


def _beside(marked: Ends, sides: pl.DataFrame) -> pl.DataFrame:
    """Give what no mark names channels that no mark uses."""
    used = marked.marks.filter(pl.col("channel") < _MANY)["channel"].max()
    return sides.with_columns(pl.col("channel") + (0 if used is None else int(used) + 1))  # type: ignore[arg-type]

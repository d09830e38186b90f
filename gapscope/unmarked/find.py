"""Which communication without marks becomes a handoff."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gapscope.events import Ends
from gapscope.findings import Finding, plural
from gapscope.trace import Trace
from gapscope.unmarked.ends import SIDE, both, ends_of
from gapscope.unmarked.groups import groups
from gapscope.unmarked.host import host_transfers
from gapscope.unmarked.messages import messages

_CORRELATION = ["source", "process", "correlation"]
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
    collectives, alone = groups(trace, comm_kernels)
    parts = [collectives]
    if marked is None or wanted:
        parts += [messages(trace), host_transfers(trace)]
    else:
        parts = [collectives.filter(pl.col("evidence") == "declared")]
        alone = alone.filter(pl.col("by") == "declared")
    sides = pl.concat([pl.DataFrame(schema=SIDE), *parts])
    primary = trace.processes.filter("primary").select("source", "process")
    sides = sides.join(primary, on=["source", "process"], how="semi", maintain_order="left")
    first_id = 0
    if marked is not None:
        sides = _beside(marked, _without(sides, marked))
        first_id = 1 + int(marked.marks["mark_id"].max() or 0)  # type: ignore[arg-type]
    findings = _notes(sides, alone, trace)
    if not sides.height:
        return marked, findings
    return both(marked, ends_of(trace, sides, first_id)), findings


def _without(sides: pl.DataFrame, marked: Ends) -> pl.DataFrame:
    """Leave out what a mark encloses: operations launched inside a bracket, and gloo calls within one."""
    brackets = marked.brackets.select("mark_id", *_PLACE, begin="start_ns", until="end_ns", of="mark")
    launched = marked.launched.join(brackets, on="mark_id").select(
        "source", "process", correlation="call_correlation"
    )
    transfers = brackets.filter(pl.col("of").is_in(["submit", "receive"])).sort("begin")
    sides = sides.join(launched.drop_nulls().unique(), on=_CORRELATION, how="anti", maintain_order="left")
    near = sides.with_row_index("_row").sort("host_ns").join_asof(
        transfers.drop("mark_id", "of"), left_on="host_ns", right_on="begin", by=_PLACE, check_sortedness=False
    )
    is_inside = (pl.col("host_ns") <= pl.col("until")).fill_null(value=False) & pl.col("correlation").is_null()
    inside = near.filter(is_inside)["_row"].implode()
    return sides.with_row_index("_row").filter(~pl.col("_row").is_in(inside)).drop("_row")


def _beside(marked: Ends, sides: pl.DataFrame) -> pl.DataFrame:
    """Give what no mark names channels that no mark uses."""
    used = marked.marks["channel"].max()
    return sides.with_columns(pl.col("channel") + (0 if used is None else int(used) + 1))  # type: ignore[arg-type]


def _notes(sides: pl.DataFrame, alone: pl.DataFrame, trace: Trace) -> list[Finding]:
    """Return what could not be paired, and how the rest was."""
    notes = []
    unsure = sides.filter("is_ambiguous").group_by("rank", "end", "transport").agg(n=pl.len())
    for row in unsure.sort("rank", "end").iter_rows(named=True):
        what = "send" if row["end"] == "src" else "receive"
        notes.append(
            Finding(
                "unpaired_communication",
                "warning",
                f"{plural(row['n'], what)} of rank {row['rank']} over {row['transport']} cannot be paired: neither a "
                "number nor an order that both ranks recorded alike says which belongs to which.",
                "They are `ambiguous`. Step marks around each step (`gapscope::step step=3`) let what is complete in "
                "both recordings be paired step by step; handoff marks name each one.",
                rank=row["rank"],
                count=row["n"],
            )
        )
    for row in alone.iter_rows(named=True):
        notes.append(
            Finding(
                "unpaired_collectives",
                "warning",
                f"{plural(row['n'], row['op'] + ' kernel')} of rank {row['rank']} without the same one on another "
                "rank: no handoff is made of them.",
                "Name the recordings of all ranks of the group; step marks let what is complete be paired step by step.",
                rank=row["rank"],
                count=row["n"],
            )
        )
    by_order = sides.filter((pl.col("origin") == "order") & ~pl.col("is_ambiguous") & (pl.col("end") != "dst"))
    if by_order.height:
        notes.append(
            Finding(
                "paired_by_order",
                "info",
                f"{plural(by_order.height, 'message')} paired by order alone: the recordings name no peer, and the "
                "ranks that communicate are taken for each other's.",
                "Handoff marks name the ends of each one.",
                count=by_order.height,
            )
        )
    host = sides.filter((pl.col("before_source") == "estimated") & (pl.col("end") == "src"))
    if host.height:
        notes.append(
            Finding(
                "host_bounds",
                "info",
                f"{plural(host.height, 'message')} between hosts without a record of the work around them: producer "
                "and consumer are taken to end and begin with the calls (source `estimated`).",
                "Marks `produce` and `consume` around the stages tell the difference.",
                count=host.height,
            )
        )
    return notes

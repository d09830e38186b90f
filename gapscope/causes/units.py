"""Steps and requests: the units whose ends users feel, from their marks, over all ranks.

A step ends when the last rank has ended it: when its mark closed there, or when the last GPU operation launched inside
that mark ended, if that is later (a host runs ahead of its GPU where nothing makes it wait). It begins where its work
does: on the earliest of the ranks that do not begin it by waiting. A rank whose first handoff of the step is one that
it receives may open its mark long before, while the others are still in the step before.

A request has its own mark; its steps are those that name it (`requests=`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph import Graph
from gapscope.graph.kernels import fixed, leaf, part
from gapscope.schema import UNITS, dtypes

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_UNIT = ["job", "id"]
_THREAD = ["source", "process", "thread"]
NO_NODE = -1
_END = {"position": pl.Int64, "node": pl.Int64, "end_ns": pl.Int64}
_FOUND = {"last": pl.Int64, "over_ns": pl.Int64, "first": pl.Int64}


@dataclass(frozen=True)
class Units:
    """Steps and requests.

    Attributes:
        table: Table ``units`` of `gapscope.schema`.
        last: Node of the graph that each ended with; -1: nothing is recorded of it.
        first: What its first rank's thread did last before it began; -1: nothing is recorded of it.
        ends: What every rank ended it with: ``position`` (of the unit in the table), ``node``, ``end_ns`` (when that
            rank had ended it, no earlier than the node). A unit ends with the last of them.
    """

    table: pl.DataFrame
    last: Ints
    first: Ints
    ends: pl.DataFrame

    def of_steps(self, low: int | None, high: int | None) -> Units:
        """Return those with a step from ``low`` to ``high``, both included; None: open."""
        if low is None and high is None:
            return self
        first, last = (
            (np.iinfo(np.int64).min if low is None else low),
            (np.iinfo(np.int64).max if high is None else high),
        )
        inside = pl.element().is_between(first, last)
        chosen = self.table.select(pl.col("steps").list.eval(inside).list.any().fill_null(value=False)).to_series()
        mask = chosen.to_numpy()
        kept = pl.DataFrame({"position": np.flatnonzero(mask), "now": np.arange(mask.sum())})
        ends = self.ends.join(kept, on="position", maintain_order="left")
        ends = ends.select(position="now", node="node", end_ns="end_ns")
        return Units(self.table.filter(chosen), self.last[mask], self.first[mask], ends)


def find_units(graph: Graph, handoffs: pl.DataFrame) -> Units:
    """Return the steps and requests that marks name, ordered by start.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``, all of the run: they tell which ranks begin a step by waiting, and which units
            are start-up.
    """
    marks = _unit_marks(graph)
    if not marks.height:
        nothing = np.zeros(0, np.int64)
        return Units(pl.DataFrame(schema=dtypes(UNITS)), nothing, nothing, pl.DataFrame(schema=_END))
    marks = _with_last(graph, marks)
    steps = _steps(marks.filter(pl.col("mark") == "step"), handoffs)
    requests = _requests(marks, steps)
    both = pl.concat([_finish(steps, "step"), _finish(requests, "request")])
    both = _with_steady(both, handoffs).sort("unit", "start_ns", "id", nulls_last=True)
    table = both.select(pl.col(n).cast(t) for n, t in dtypes(UNITS).items())
    last, first = (both[c].fill_null(NO_NODE).to_numpy().astype(np.int64) for c in ("last", "first"))
    ends = both.select(position=pl.int_range(pl.len(), dtype=pl.Int64), ends="ends").explode("ends").unnest("ends")
    return Units(table, last, first, ends.drop_nulls().select(pl.col(n).cast(t) for n, t in _END.items()))


def _unit_marks(graph: Graph) -> pl.DataFrame:
    """Return one row per mark of a unit, on the common timebase; its times are null if its clock has no place there."""
    text = pl.col("fields").str.extract(r"(?:^|\s)id=(\S+)", 1)
    # A request in compact form has its id from the mark log, if there is one (`gapscope.marks.logs`).
    own_id = pl.when(pl.col("mark") == "step").then(pl.col("step").cast(pl.String)).otherwise(text)
    marks = _placed(graph, pl.col("mark").is_in(["step", "request"])).with_columns(
        id=own_id, requests=pl.col("fields").str.extract(r"(?:^|\s)requests=(\S+)", 1)
    )
    marks = marks.filter(pl.col("id").is_not_null())
    return marks.select(
        "mark", *_UNIT, "step", "requests", "rank", *_THREAD, "start_ns", "end_ns"
    ).with_row_index("mark_id")  # fmt: skip


def _placed(graph: Graph, wanted: pl.Expr) -> pl.DataFrame:
    """Return some marks of primary processes with their times on the common timebase, as far as these are known."""
    trace, alignment = graph.context.trace, graph.context.alignment
    primary = trace.processes.filter("primary").select("source", "process")
    marks = trace.marks.filter(wanted).join(primary, on=["source", "process"], how="semi", maintain_order="left")
    marks = alignment.domains.with_domain(marks, None, "", "clock")
    shift = alignment.offsets(marks["clock"], marks["start_ns"])
    return marks.with_columns(pl.col("start_ns") + shift, pl.col("end_ns") + shift)


def _with_last(graph: Graph, marks: pl.DataFrame) -> pl.DataFrame:
    """Add ``last`` and ``first``, and let ``end_ns`` be when the GPU work of each mark had ended.

    ``last`` is the node that a mark's work ended with, ``first`` what its thread did last before it opened.
    """
    timed = _on_threads(graph, marks).sort("low", "start_ns", "end_ns")
    found = [_last_on_host(graph, of_thread) for of_thread in timed.partition_by("low", maintain_order=True)]
    nothing = pl.DataFrame(schema={"mark_id": marks.schema["mark_id"], **_FOUND})
    both = pl.concat([nothing, *found]).with_columns(_latest_launched(graph, timed))
    # The last GPU operation that was launched inside the mark, if it ended after that.
    is_later = (pl.col("latest_ns") > pl.col("over_ns")).fill_null(value=False)
    both = both.select(
        "mark_id",
        "first",
        last=pl.when(is_later).then(2 * pl.col("operation") + 1).otherwise("last"),
        over_ns=pl.when(is_later).then("latest_ns").otherwise("over_ns"),
    )
    joined = marks.join(both, on="mark_id", how="left")
    return joined.sort("mark_id").with_columns(end_ns=pl.max_horizontal("end_ns", "over_ns")).with_columns(
        end_ns=pl.when(pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns"))).then("end_ns")
    ).drop("over_ns")  # fmt: skip


def _last_on_host(graph: Graph, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, last, over_ns, first`` for the marks of one thread, by what that thread did alone."""
    first, until = graph.items.n_ops + int(marks["low"][0]), graph.items.n_ops + int(marks["high"][0])
    begin, end = (marks[c].to_numpy() for c in ("start_ns", "end_ns"))
    node = _done_before(graph, first, until, np.concatenate([begin, end]))
    return marks.select(
        "mark_id",
        last=pl.Series(node[len(begin) :]),
        over_ns=pl.col("end_ns").cast(pl.Int64),
        first=pl.Series(node[: len(begin)]),
    )


def _latest_launched(graph: Graph, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``operation, latest_ns`` for each mark: the operation launched inside that ended last; null: none was.

    Args:
        graph: The graph.
        marks: Ordered by ``low``, ``start_ns``; ``low`` and ``high`` are the numbers of their thread's host items.
    """
    items = graph.items
    latest, operation = np.full(marks.height, NO_NODE, np.int64), np.full(marks.height, NO_NODE, np.int64)
    _find_latest(graph.call, items.start, items.end, *_stretches(graph, marks), latest, operation)
    nothing = pl.Series(operation == NO_NODE)
    return pl.DataFrame(
        {"operation": pl.Series(operation).set(nothing, None), "latest_ns": pl.Series(latest).set(nothing, None)}
    )


def _stretches(graph: Graph, marks: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return where among the host items of their threads marks begin, where their threads end, and their ends.

    Args:
        graph: The graph.
        marks: Ordered by ``low``, ``start_ns``; ``low`` and ``high`` are the numbers of their thread's host items.
    """
    items = graph.items
    until = items.n_ops + marks["high"].to_numpy().astype(np.int64)
    low = np.empty(marks.height, np.int64)
    for (thread,), of_thread in marks.with_row_index("n").group_by("low", maintain_order=True):
        rows = slice(int(of_thread["n"][0]), int(of_thread["n"][-1]) + 1)
        first = items.n_ops + int(thread)
        starts = items.start[first : until[rows][0]]
        low[rows] = first + np.searchsorted(starts, of_thread["start_ns"].to_numpy(), side="left")
    return fixed(low), fixed(until), fixed(marks["end_ns"].to_numpy())


@part
def _opened_before(call: int, k: int, low: Ints) -> int:
    """Return the last mark that was opened before a call; looked for from another on."""
    # Operations of a stream come in the order in which they were enqueued: most are of the mark of the one before.
    if k < 0 or low[k] > call or (k + 1 < len(low) and low[k + 1] <= call):
        return int(np.searchsorted(low, call, side="right")) - 1
    return k


@leaf
def _find_latest(  # noqa: PLR0917 - operations, marks and room for the answer
    call: Indices, start: Ints, ended: Ints, low: Ints, until: Ints, end: Ints, latest: Ints, operation: Ints
) -> None:
    """Write down of each mark the operation launched inside that ended last (of several the last), and when."""
    k = -1
    for op in range(len(call)):
        c = call[op]
        k = _opened_before(c, k, low)
        if k < 0 or c >= until[k] or start[c] > end[k]:
            continue
        if operation[k] == NO_NODE or ended[op] >= latest[k]:
            latest[k], operation[k] = ended[op], op


def _done_before(graph: Graph, first: int, until: int, at_ns: Ints) -> Ints:
    """Return the node of a thread that came last before each time: of all starts and ends of its items the last one.

    Args:
        graph: The graph.
        first: Number of the thread's first host item.
        until: Number after its last.
        at_ns: Times; of several equal ones the node is the same.
    """
    order, node = np.argsort(at_ns, kind="stable"), np.empty(len(at_ns), np.int64)
    start, end = (values[first:until] for values in (graph.items.start, graph.items.end))
    in_order = np.empty(len(at_ns), np.int64)
    _find_done(fixed(start), fixed(end), fixed(at_ns[order]), first, np.empty(until - first, np.int32), in_order)
    node[order] = in_order
    return node


@leaf
def _find_done(  # noqa: PLR0917 - a thread's items, times and room for the answer
    start: Ints, end: Ints, at_ns: Ints, first: int, running: Indices, node: Ints
) -> None:
    """Write down the node that came last before each time; times are ordered, ``running`` is room for item numbers."""
    i, n, last = 0, 0, -1  # items that began, how many of them are running, and of the others the one that ended last
    for k in range(len(at_ns)):
        n_before, n = n, 0
        for r in range(n_before):
            if end[running[r]] > at_ns[k]:
                running[n] = running[r]
                n += 1
            else:
                last = _later(end, last, running[r])
        while i < len(start) and start[i] <= at_ns[k]:
            if end[i] > at_ns[k]:
                running[n] = i
                n += 1
            else:
                last = _later(end, last, i)
            i += 1
        if i == 0:
            node[k] = NO_NODE
        elif last < 0 or end[last] < start[i - 1]:
            node[k] = 2 * (first + i - 1)
        else:
            node[k] = 2 * (first + last) + 1


@part
def _later(end: Ints, one: int, two: int) -> int:
    """Return which of two items ended later, of equal ones the later item; the first may be none (-1)."""
    if one < 0 or end[two] > end[one] or (end[two] == end[one] and two > one):
        return two
    return one


def step_marks(graph: Graph) -> Indices:
    """Return the number of the step mark that each operation was launched inside; -1: it was inside none."""
    marks = _placed(graph, (pl.col("mark") == "step") & pl.col("step").is_not_null())
    marks = _on_threads(graph, marks).sort("low", "start_ns", "end_ns")
    found = np.full(graph.items.n_ops, NO_NODE, np.int32)
    _find_marks(graph.call, graph.items.start, *_stretches(graph, marks), found)
    return found


@leaf
def _find_marks(  # noqa: PLR0917 - operations, marks and room for the answer
    call: Indices, start: Ints, low: Ints, until: Ints, end: Ints, found: Indices
) -> None:
    """Write down the mark that each operation was launched inside."""
    k = -1
    for op in range(len(call)):
        k = _opened_before(call[op], k, low)
        if k >= 0 and call[op] < until[k] and start[call[op]] <= end[k]:
            found[op] = k


def _on_threads(graph: Graph, marks: pl.DataFrame) -> pl.DataFrame:
    """Return marks that have both ends, with ``low`` and ``high``: where their thread's host items begin and end."""
    # Host items of a thread stand together, ordered by start: what began inside a mark is a stretch of numbers.
    before = graph.items.n_ops
    numbers = graph.items.lanes.filter("is_host").select(
        *_THREAD, low=(pl.col("first") - before).cast(pl.UInt32), high=(pl.col("until") - before).cast(pl.UInt32)
    )
    both_ends = pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null()
    return marks.filter(both_ends).join(numbers, on=_THREAD, nulls_equal=True, maintain_order="left")


def _steps(marks: pl.DataFrame, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per step: ``job, id, rank`` (that ended it), ``start_ns, end_ns, last, steps, requests``."""
    ranks = marks.join(_waiting(handoffs), on=["job", "step", "rank"], how="left", nulls_equal=True)
    # A rank that recorded only earlier or only later steps took part in this one unseen.
    seen = marks.group_by("job", "rank").agg(low=pl.col("step").min(), high=pl.col("step").max())
    seen = seen.group_by("job").agg(earliest=pl.col("low").max(), latest=pl.col("high").min())
    ranks = ranks.join(seen, on="job", how="left", nulls_equal=True)
    is_seen = pl.col("step").is_between(pl.col("earliest"), pl.col("latest")).all()
    waits = pl.col("waits").fill_null(value=False)
    begins = pl.when(waits.all()).then(pl.col("start_ns").min()).otherwise(pl.col("start_ns").filter(~waits).min())
    return ranks.sort("end_ns", "rank", nulls_last=True).group_by(_UNIT, maintain_order=True).agg(
        # Ranks of which one has no end, or no place on the timebase, have no common end.
        start_ns=pl.when((pl.col("start_ns").null_count() == 0) & is_seen).then(begins),
        end_ns=pl.when((pl.col("end_ns").null_count() == 0) & is_seen).then(pl.col("end_ns").last()),
        rank=pl.col("rank").last(),
        last=pl.col("last").last(),
        first=pl.when(waits.all()).then(pl.col("first").sort_by("start_ns").first()).otherwise(
            pl.col("first").filter(~waits).sort_by(pl.col("start_ns").filter(~waits)).first()
        ),
        ends=pl.struct(node=pl.col("last").cast(pl.Int64), end_ns=pl.col("end_ns").cast(pl.Int64)),
        steps=pl.col("step").unique(),
        requests=pl.col("requests").drop_nulls().str.split(",").explode().unique(),
    )  # fmt: skip


def _waiting(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return ``job, step, rank, waits``: whether a rank's first handoff of a step is one that it receives."""
    pairs = handoffs.filter(pl.col("step").is_not_null() & (pl.col("kind") == "p2p"))
    schema = {"job": pl.String, "step": pl.Int64, "rank": pl.Int32, "waits": pl.Boolean}
    if not pairs.height:
        return pl.DataFrame(schema=schema)
    sent = pairs.select("job", "step", rank="src_rank", sent="producer_finish_ns", got=pl.lit(None, dtype=pl.Int64))
    got = pairs.select("job", "step", rank="dst_rank", sent=pl.lit(None, dtype=pl.Int64), got="consumer_start_ns")
    ends = pl.concat([sent, got]).group_by("job", "step", "rank").agg(pl.col("sent", "got").min())
    waits = pl.col("got").is_not_null() & (pl.col("sent").is_null() | (pl.col("got") < pl.col("sent")))
    return ends.select(pl.col(n).cast(t, strict=False) for n, t in schema.items() if n != "waits").with_columns(
        waits=ends.select(waits).to_series()
    )


def _requests(marks: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per request, with the columns of `_steps`.

    It ended with the last of its steps that were over before it; without one, with what its mark's own thread did.
    """
    own = marks.filter(pl.col("mark") == "request").sort("end_ns", "rank", nulls_last=True)
    own = own.group_by(_UNIT, maintain_order=True).agg(
        start_ns=pl.when(pl.col("start_ns").null_count() == 0).then(pl.col("start_ns").min()),
        end_ns=pl.when(pl.col("end_ns").null_count() == 0).then(pl.col("end_ns").last()),
        rank=pl.col("rank").last(),
        last=pl.col("last").last(),
        first=pl.col("first").sort_by("start_ns").first(),
        ends=pl.struct(node=pl.col("last").cast(pl.Int64), end_ns=pl.col("end_ns").cast(pl.Int64)),
    )
    named = steps.select(
        step=pl.col("steps").list.first(), id="requests", step_rank="rank", step_end_ns="end_ns", step_last="last",
        step_ends="ends",
    ).explode("id")  # fmt: skip
    # Jobs (prefill, decode) share their requests.
    all_steps = own.join(named.filter(pl.col("id").is_not_null()), on="id", how="left")
    over = pl.col("step_end_ns") <= pl.col("end_ns")
    of_steps = all_steps.sort("step_end_ns").group_by(_UNIT).agg(
        steps=pl.col("step").drop_nulls().unique().sort(),
        step_last=pl.col("step_last").filter(over).last(),
        step_rank=pl.col("step_rank").filter(over).last(),
        step_ends=pl.col("step_ends").filter(over).last(),
    )  # fmt: skip
    joined = own.join(of_steps, on=_UNIT, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(
        last=pl.coalesce("step_last", "last"),
        rank=pl.coalesce("step_rank", "rank"),
        ends=pl.coalesce("step_ends", "ends"),
    )


def _finish(units: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Return the columns of table ``units`` but ``steady``, and what it began and ended with."""
    columns = {n: t for n, t in dtypes(UNITS).items() if n != "steady"}
    units = units.with_columns(unit=pl.lit(unit))
    return units.select(
        *(pl.col(n).cast(t) for n, t in columns.items()), pl.col("last", "first").cast(pl.Int64), "ends"
    )


def _with_steady(units: pl.DataFrame, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Add ``steady``: no handoff of its steps, or none that began within it where steps are not said, is start-up."""
    early = handoffs.filter(~pl.col("steady"))
    by_step = early.select("job", step="step").drop_nulls("step").unique()
    rows = units.with_row_index("row")
    named = rows.select("row", "job", step="steps").explode("step").filter(pl.col("step").is_not_null())
    hit = named.join(by_step, on=["job", "step"], how="semi", nulls_equal=True)["row"]
    begun = early.filter(pl.col("step").is_null())["consumer_start_ns"].drop_nulls().sort().to_numpy()
    start, end = (rows[c].fill_null(0).to_numpy() for c in ("start_ns", "end_ns"))
    inside = np.searchsorted(begun, end, side="left") > np.searchsorted(begun, start, side="left")
    is_early = pl.col("row").is_in(hit.implode()) | pl.Series(inside)
    return rows.with_columns(steady=~is_early).drop("row")

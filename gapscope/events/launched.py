"""Which GPU operations were launched inside which mark.

By API call and correlation id on the same process and thread, never by overlap in time on the GPU. Where a
tool records no call for an operation, its own GPU span of the same mark identifies it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import NONE, Rows, constant, places, stretches
from gapscope.events.enclosing import (
    BRACKETS,
    LANE,
    PROCESS,
    STAGE,
    TRANSFER,
    Calls,
    Enclosed,
    by_thread,
    enclosed,
)
from gapscope.events.launches_compiled import UNTIMED, telling_rows
from gapscope.events.losses import weak_sources
from gapscope.events.nesting import disjoint_levels
from gapscope.lanes import lanes_of
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_CORRELATION = [*PROCESS, "correlation"]
_GPU = [*PROCESS, "device", "stream"]
BY = pl.Enum(["call", "autograd", "span"])
"""How it is known that a bracket launched an operation."""

_FEW = 64
"""Numbers of devices below which they are taken as they are."""

Indices = npt.NDArray[np.int32]


def launched_inside(trace: Trace, marks: pl.DataFrame, nested: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (mark, operation launched inside it) that tells something about the mark.

    There are millions of others, of which nobody asks more than what is around a call
    (`gapscope.events.enclosing.enclosed`). All operations of a ``submit`` or ``receive`` are here; of a ``produce`` or
    ``consume`` those that may decide its times: what started first or ended last on each device, what has no time, a
    graph. Where a file has lost something, all are: marks are then compared by what they launched.

    Args:
        trace: The recordings.
        marks: Bracket marks with ``mark_id, mark, source, process, thread, start_ns, end_ns`` (closed), and
            the key columns.
        nested: Result of `gapscope.events.enclosing.nested_receives`.

    Returns:
        ``mark_id, call_ns, call_correlation, start_ns, end_ns, device, stream, kind, copy_kind, name, by``: ``call_ns``
        is the start of the launching call, null where none is recorded; ``start_ns`` and ``end_ns`` are null where
        the operation has no time or, with ``kind`` null too, no record at all. ``by`` is ``call``, ``autograd``
        (launched by a backward thread of the process while the bracket was open) or ``span``.
        Operations launched inside a ``submit`` or ``receive`` are left out of an enclosing ``produce`` or ``consume``,
        and of a ``consume`` those before the last ``receive`` of its key nested in it.
    """
    launching = trace.scan("calls").filter(pl.col("family").is_in(LAUNCHING))
    calls = by_thread(launching.select("correlation", "start_ns").collect().rechunk(), stretches(launching, LANE))
    is_whole = np.full(1 + int(marks["mark_id"].max() or 0), bool(weak_sources(trace)))  # type: ignore[arg-type]
    is_whole[marks.filter(pl.col("mark").is_in(TRANSFER))["mark_id"].to_numpy()] = True
    by_call = _with_ops(trace, calls, enclosed(trace, marks, nested, calls), is_whole)
    by_span = _ops_in_spans(trace, marks, calls, by_call.schema)
    if not by_span.height:
        return by_call
    # Before or after the receive nested in a consume? Without a call nobody can tell: its time cannot be used.
    deferred = pl.col("mark_id").is_in(nested["mark_id"].implode())
    times = [pl.when(~deferred).then(t).alias(t) for t in ("start_ns", "end_ns")]
    return pl.concat([by_call, by_span.with_columns(times)])


def _with_ops(trace: Trace, calls: Calls, inside: Enclosed, is_whole: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return one row per telling operation that the calls launched; without a record of any, one with nulls.

    Args:
        trace: The recordings.
        calls: The calls.
        inside: Which bracket encloses which.
        is_whole: Of which marks every row is returned.
    """
    ops = trace.scan("ops")
    ids = ops.select("correlation").collect()
    rows = Rows(ids, places=places(ops, ids.height))
    low, high = rows.spans(calls.table, places=calls.places)
    table = ops.select("start_ns", "end_ns", "device", "kind", "copy_kind", "name").collect()
    called = constant(calls.table["start_ns"].to_numpy())
    start, end = (constant(table[c].fill_null(UNTIMED).to_numpy()) for c in ("start_ns", "end_ns"))
    device, n_devices = _numbered(table["device"])
    is_graph = constant((table["kind"] == "graph").fill_null(value=False).to_numpy())
    row, op = telling_rows(
        inside.mark, inside.call, called, low, high, rows.order, start, end, device, n_devices, is_graph, is_whole
    )
    del ids, rows, low, high, start, end, device, is_graph
    of_op = pl.Series(op)
    of_op = of_op.set(of_op == NONE, None).cast(pl.UInt32)
    found = {name: table[name].gather(of_op) for name in ("start_ns", "end_ns", "device")}
    found["stream"] = ops.select("stream").collect().to_series().gather(of_op)
    found |= {name: table[name].gather(of_op) for name in ("kind", "copy_kind", "name")}
    call = pl.Series(inside.call[row])
    by = pl.when(pl.Series(inside.by_autograd[row])).then(pl.lit("autograd", BY)).otherwise(pl.lit("call", BY))
    return pl.DataFrame(
        {
            "mark_id": pl.Series(inside.mark[row]).cast(pl.UInt32),
            "call_ns": calls.table["start_ns"].gather(call),
            "call_correlation": calls.table["correlation"].gather(call),
            **found,
        }
    ).with_columns(by=by)


def _numbered(devices: pl.Series) -> tuple[Indices, int]:
    """Return the device of each operation as a small number, and from what on there are none."""
    lowest, highest = devices.min(), devices.max()
    if devices.null_count() or lowest is None or int(highest) >= _FEW or int(lowest) < 0:  # type: ignore[arg-type]
        lanes, numbers = lanes_of(devices.to_frame(), [devices.name], nulls_last=False)
        return constant(numbers), max(1, lanes.height)
    return constant(devices.to_numpy()), int(highest) + 1  # type: ignore[arg-type]


def _ops_in_spans(trace: Trace, marks: pl.DataFrame, calls: Calls, schema: pl.Schema) -> pl.DataFrame:
    """Return operations without a recorded call that lie in the tool's GPU span of a mark, on its stream.

    Args:
        trace: The recordings.
        marks: Brackets.
        calls: Calls that launch.
        schema: Columns that are returned.
    """
    spans = (
        trace.scan("ranges")
        .filter(pl.col("kind") == "gpu_span")
        .select(*_GPU, text="name", span_start="start_ns", span_end="end_ns")
        .join(marks.select(*PROCESS, "text", "mark_id", "mark").lazy(), on=[*PROCESS, "text"])
        .collect()
    )
    if not spans.height:
        return pl.DataFrame(schema=schema)
    orphans = _orphans(trace, calls).join(spans.select(_GPU).unique(), on=_GPU, how="semi", maintain_order="left")
    orphans = orphans.sort("start_ns")
    parts = []
    for mark in BRACKETS:
        of_mark = spans.filter(pl.col("mark") == mark).rename({"span_start": "start_ns", "span_end": "end_ns"})
        for level in disjoint_levels(of_mark, _GPU):
            found = orphans.join_asof(
                level.select(*_GPU, "mark_id", "mark", "until_ns", span_ns="start_ns").sort("span_ns"),
                left_on="start_ns",
                right_on="span_ns",
                by=_GPU,
                strategy="backward",
                check_sortedness=False,
            )
            parts.append(found.filter(pl.col("end_ns") <= pl.col("until_ns")))
    if not parts:
        return pl.DataFrame(schema=schema)
    found = _orphans_without_transfers(pl.concat(parts), marks)
    return found.with_columns(
        call_ns=pl.lit(None, dtype=pl.Int64), call_correlation="correlation", by=pl.lit("span")
    ).select(pl.col(n).cast(t) for n, t in schema.items())


def _orphans(trace: Trace, launching: Calls) -> pl.DataFrame:
    """Return timed operations of which no call is recorded."""
    ops = trace.scan("ops").select(_CORRELATION).collect()
    # Nearly all are launched by the calls that launch: only the others are looked for among all calls.
    uncalled = np.flatnonzero(Rows(launching.table, places=launching.places).first(ops) == NONE).astype(np.int32)
    wanted = ops[uncalled]["correlation"].unique().implode()
    calls = trace.scan("calls").select(_CORRELATION).filter(pl.col("correlation").is_in(wanted))
    return (
        trace.scan("ops")
        .with_row_index("row")
        .filter(pl.col("row").is_in(pl.Series(uncalled).cast(pl.UInt32).implode()) & pl.col("start_ns").is_not_null())
        .drop("row")
        .join(calls, on=_CORRELATION, how="anti")
        .collect()
    )


def _orphans_without_transfers(found: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of produce and consume the operations of a submit or receive nested in them on the host."""
    hosts = marks.select("mark_id", "thread", h_start="start_ns", h_end="end_ns")
    found = found.join(hosts, on="mark_id", how="left")
    op = [*_GPU, "start_ns", "correlation"]
    stage, transfer = found.filter(pl.col("mark").is_in(STAGE)), found.filter(pl.col("mark").is_in(TRANSFER))
    nested = (
        stage.join(
            transfer.select(*op, "thread", t_start="h_start", t_end="h_end"), on=[*op, "thread"], nulls_equal=True
        )
        .filter((pl.col("t_start") >= pl.col("h_start")) & (pl.col("t_end") <= pl.col("h_end")))
        .select(*op, "mark_id")
        .unique()
    )
    return found.join(nested, on=[*op, "mark_id"], how="anti", nulls_equal=True)

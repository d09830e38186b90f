"""GPU operations of an Nsight Systems export: kernels, copies, fills, and graphs traced as a whole.

Tables CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and _GRAPH_TRACE (Nsight Systems user guide, SQLite schema
reference). Times are nanoseconds; a pair 0/0 means that CUPTI recorded none (CUPTI documentation,
CUpti_ActivityKernel).
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from gapscope.readers.nsys_ids import whole_process, without_sentinel
from gapscope.readers.nsys_order import Part, split_by_process
from gapscope.readers.nsys_reading import NO_PROCESS, Kept, Reading
from gapscope.schema import COPY_KIND, NAME, OP_KIND, reader_dtypes

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
OP_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)

_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_EXPECTED = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_ENDS = ("srcDeviceId", "dstDeviceId")
_UNIFIED = {11: 1, 12: 2, 13: 8}  # ENUM_CUDA_MEMCPY_OPER has copies of unified memory beyond CUPTI's own kinds
_UNNAMED = pl.lit("unnamed", dtype=NAME)

Special = Callable[[pl.DataFrame], dict[str, pl.Expr | pl.Series]]
"""Makes of a piece of a table the columns that are its own."""


def read_ops(reading: Reading, kept: Kept | None = None) -> list[Part]:
    """Return the rows of the table `ops`, in the order of the file.

    Args:
        reading: The export.
        kept: Which rows are wanted; None: all.
    """
    named_by = [c for c in ("demangledName", "shortName") if c in reading.tables.columns(KERNEL)]
    names = reading.names

    def kernels(piece: pl.DataFrame) -> dict[str, pl.Expr | pl.Series]:
        ids = [piece[c] for c in named_by]
        if len(ids) > 1 and ids[0].null_count():
            ids[0] = ids[0].zip_with(ids[0].is_not_null(), ids[1])
        return {"name": names.column(ids[0]) if ids else _UNNAMED, "graph_node": pl.col("graphNodeId")}

    def graphs(piece: pl.DataFrame) -> dict[str, pl.Expr | pl.Series]:
        plain = pl.lit("CUDA graph")
        number = pl.col("graphId")
        return {"name": pl.when(number.is_null()).then(plain).otherwise(pl.format("CUDA graph {}", number)).cast(NAME)}

    expected_name = () if named_by else ("demangledName",)
    return [
        *_read(reading, KERNEL, (*named_by, "graphNodeId"), expected_name, kernels, kept=kept),
        *_read(
            reading, MEMCPY, ("bytes", "copyKind", "graphNodeId", *_ENDS), ("bytes", "copyKind"), _copies, kept=kept
        ),
        *_read(reading, MEMSET, ("bytes", "graphNodeId"), ("bytes",), _fills, kept=kept),
        *_read(reading, GRAPH_TRACE, ("graphId",), (), graphs, kept=kept),
    ]


def _copies(piece: pl.DataFrame) -> dict[str, pl.Expr | pl.Series]:
    kinds = COPY_KIND.categories.to_list()
    number = pl.col("copyKind").replace(_UNIFIED)
    known = pl.when(number.is_between(1, len(kinds) - 1)).then(number).otherwise(0).fill_null(0)
    positions = piece.select(known.cast(pl.UInt32)).to_series()
    labels = pl.Series(["memcpy", *(f"memcpy {k}" for k in kinds[1:])], dtype=NAME)
    return {
        "name": labels.gather(positions),
        "copy_kind": pl.Series(kinds, dtype=COPY_KIND).gather(positions),
        "size_bytes": pl.col("bytes"),
        "graph_node": pl.col("graphNodeId"),
        **{
            name: pl.when(number == kinds.index("PtoP")).then(pl.col(column).cast(pl.Int32, strict=False))
            for name, column in zip(("from_device", "to_device"), _ENDS, strict=True)
        },
    }


def _fills(piece: pl.DataFrame) -> dict[str, pl.Expr | pl.Series]:
    return {
        "name": pl.lit("memset", dtype=NAME),
        "size_bytes": pl.col("bytes"),
        "graph_node": pl.col("graphNodeId"),
    }


def _read(
    reading: Reading,
    table: str,
    own: tuple[str, ...],
    expected: tuple[str, ...],
    special: Special,
    *,
    kept: Kept | None,
) -> list[Part]:
    """Return the rows of one of the four tables.

    Args:
        reading: The export.
        table: Name of the table.
        own: Columns that the table does not share with the other three.
        expected: Those of them that it has to have.
        special: Makes the columns that are the table's own.
        kept: Which rows are wanted; None: all.
    """
    kind = pl.lit("graph" if table == GRAPH_TRACE else table.rsplit("_", 1)[1].lower(), dtype=OP_KIND)

    def normalized(piece: pl.DataFrame) -> tuple[list[Part], int, int, int]:
        untimed = piece.select(reading.untimed().sum()).item()
        frame = piece.with_columns(
            whole_process("globalPid").fill_null(NO_PROCESS).alias("process"),
            pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
            without_sentinel("contextId").alias("context"),
            without_sentinel("streamId").alias("stream"),
            *reading.interval(),
            without_sentinel("correlationId").alias("correlation"),
            kind=kind,
            **special(piece),
        )
        impossible = frame["start_ns"].null_count() - untimed
        frame = frame if kept is None else frame.filter(kept.rows)
        own = frame.select(pl.col(c).cast(t) for c, t in reader_dtypes("ops").items() if c in frame.columns)
        return split_by_process(own), piece.height, untimed, impossible

    near = () if kept is None else kept.near
    pieces = reading.tables.pieces(table, (*_PLACE, *own), normalized, (*_EXPECTED, *expected), near)
    reading.counts.seen += sum(seen for _, seen, _, _ in pieces)
    reading.counts.untimed += sum(untimed for _, _, untimed, _ in pieces)
    reading.counts.impossible += sum(impossible for _, _, _, impossible in pieces)
    return [part for parts, *_ in pieces for part in parts]

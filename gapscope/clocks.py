"""One timebase for all files.

For now this takes each file's own claim of absolute time and says so; a solver that bounds the offsets
between clock domains will fill the same table. What uses it needs only `Alignment`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gapscope.findings import Finding
from gapscope.schema import ALIGNMENT, dtypes
from gapscope.trace import Trace


@dataclass(frozen=True)
class Alignment:
    """Where each file's clock stands on the common timebase.

    Attributes:
        table: Table ``alignment`` of `gapscope.schema`.
        findings: What is missing or weak.
    """

    table: pl.DataFrame
    findings: list[Finding]

    def offsets(self) -> pl.DataFrame:
        """Return ``source, offset_ns, quality``; a null offset cannot be aligned."""
        hosts = self.table.filter(pl.col("domain") == "host")
        return hosts.group_by("source").agg(pl.col("offset_ns").first(), pl.col("quality").first())

    def uncertainty(self, one: pl.Expr, two: pl.Expr) -> pl.Expr:
        """Return the bound of the error between two sources: 0 within one file, null where none is known."""
        return pl.when(one == two).then(pl.lit(0, dtype=pl.Int64)).otherwise(pl.lit(None, dtype=pl.Int64))


def align(trace: Trace) -> Alignment:
    """Return the alignment of all files by their own claims.

    A single file is one clock. Several files with Unix times stand where their wall clocks say, without a
    bound (``wall_only``). A file with an unknown zero among several cannot be placed (``unaligned``).
    """
    sources = trace.sources
    alone = sources.height == 1
    relative = pl.col("clock") == "relative"
    quality = (
        pl.when(pl.lit(alone))
        .then(pl.lit("same_clock"))
        .when(relative)
        .then(pl.lit("unaligned"))
        .otherwise(pl.lit("wall_only"))
    )
    reference = f"{sources['path'][0]}:host" if sources.height else ""
    table = sources.with_columns(
        rank=pl.when(pl.col("ranks").list.len() == 1).then(pl.col("ranks").list.first()),
        domain=pl.lit("host"),
        reference=pl.lit(reference),
        quality=quality,
        method=pl.when(relative)
        .then(pl.lit("none: the zero of the file is unknown"))
        .otherwise(pl.col("clock_origin")),
        n_hard=pl.lit(0),
        n_soft=pl.lit(0),
    ).with_columns(offset_ns=pl.when(pl.col("quality") != "unaligned").then(pl.lit(0)))
    empty = [pl.lit(None).alias(n) for n in ALIGNMENT if n not in table.columns]
    table = table.with_columns(empty).select(pl.col(n).cast(t) for n, t in dtypes(ALIGNMENT).items())
    findings = [
        Finding(
            "unaligned_file",
            "warning",
            "The file has no absolute time and there are other files: it cannot be placed beside them.",
            "Name it alone, or record with a version that writes the session's start time.",
            path=path,
        )
        for path in sources.filter(relative)["path"]
        if not alone
    ]
    return Alignment(table, findings)

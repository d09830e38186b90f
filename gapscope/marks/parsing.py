"""Marks among the ranges of one file: those whose text or payload follows the contract.

Text and compact form of `gapscope_instrumentation.contract` give the same columns.
"""

from __future__ import annotations

import polars as pl
from gapscope_instrumentation.contract import (
    CHANNEL_BITS,
    DEFINITIONS,
    HANDOFF_BRACKETS,
    HANDOFF_POINTS,
    HOST_MEMORY,
    NVTX_DOMAIN,
    PREFIX,
    RANK_BITS,
    SEQ_BITS,
)
from gapscope_instrumentation.contract import (
    MARKS as MARK_NAMES,
)

from gapscope.findings import Finding
from gapscope.schema import MARKS, dtypes

_KEYED = HANDOFF_BRACKETS + HANDOFF_POINTS


def parse_marks(ranges: pl.LazyFrame, path: str) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the marks among the ranges of one file, and findings on those that cannot be used.

    Args:
        ranges: Table ``ranges`` without or with ``source`` and ``rank``.
        path: The file, for findings.

    Returns:
        Table ``marks`` of `gapscope.schema`, columns ``source`` and ``rank`` null; ``seq`` of the compact
        form still modulo 2**26, its groups still numbers (`gapscope.marks.compact` mends both once all files are
        there). Definitions (who speaks, which number stands for which group) are among them.
    """
    own_domain = pl.col("domain").cast(pl.String) == NVTX_DOMAIN
    named = pl.col("name").str.starts_with(PREFIX) | (own_domain & pl.col("name").is_in(MARK_NAMES))
    candidates = ranges.filter(~pl.col("kind").is_in(["gpu_span", "overhead"]) & named).collect()
    compact = own_domain & pl.col("payload").is_not_null()
    compact = (compact & ~pl.col("name").str.contains(" ", literal=True)).fill_null(value=False)
    frame = candidates.with_columns(
        compact=compact,
        mark=pl.col("name").str.strip_prefix(PREFIX).str.extract(r"^(\S+)", 1),
        rest=pl.col("name").str.replace(r"^\S+", ""),
    )
    rest = frame.select("rest").unique()  # of the marks of one handoff it is the same
    rest = rest.with_columns(_text_fields(rest["rest"]))
    frame = frame.drop([c for c in rest.columns if c != "rest"], strict=False)  # ranges have some names of their own
    frame = frame.join(rest, on="rest", how="left", maintain_order="left").with_columns(_compact_fields())
    frame = frame.with_columns(
        channel=pl.coalesce("channel", pl.lit(0)),
        slot=pl.coalesce("slot", pl.lit(0)),
        form=pl.when("compact").then(pl.lit("compact")).otherwise(pl.lit("text")),
        text=pl.col("name"),
        fields=pl.when("compact").then(None).otherwise(pl.col("fields")),
    )
    known = pl.col("mark").is_in(MARK_NAMES + DEFINITIONS)
    pair = pl.col("src").is_not_null() & pl.col("dst").is_not_null()
    keyed = pl.col("seq").is_not_null() & (pair | pl.col("group").is_not_null())
    usable = (known & (keyed | ~pl.col("mark").is_in(_KEYED))).fill_null(value=False)
    bad = frame.filter(~usable)
    findings = []
    if bad.height:
        findings.append(
            Finding(
                "unusable_marks",
                "warning",
                f"{bad.height} marks have an unknown name or no key, the first is {bad['name'][0]!r}.",
                "A handoff mark needs src=, dst= and seq=, or group= and seq=.",
                path=path,
                count=bad.height,
            )
        )
    good = frame.filter(usable).with_columns(
        source=pl.lit(None, dtype=pl.Int32),
        rank=pl.lit(None, dtype=pl.Int32),
        size_bytes=pl.when(pl.col("bytes") >= 0).then("bytes"),
        name="given_name",
        error_ns=pl.lit(None, dtype=pl.Int64),
        asked_ns=pl.lit(None, dtype=pl.Int64),
    )
    return good.select(pl.col(n).cast(t) for n, t in dtypes(MARKS).items()), findings


def without_definitions(marks: pl.DataFrame) -> pl.DataFrame:
    """Return the marks of handoffs and units: without those that only say who speaks."""
    return marks.filter(~pl.col("mark").is_in(DEFINITIONS))


def _text_fields(texts: pl.Series) -> list[pl.Expr]:
    rest = pl.col(texts.name)
    said = texts.str.join("\n").item()

    def value(key: str, pattern: str, begin: str = "") -> pl.Expr:
        if f"{key}={begin}" not in said:  # most keys are nowhere
            return pl.lit(None, dtype=pl.String).alias(key)
        return rest.str.extract(rf"\s{key}={begin}{pattern}", 1).alias(key)

    def text(key: str) -> pl.Expr:
        return value(key, r"(\S+)")

    def number(key: str) -> pl.Expr:
        return text(key).cast(pl.Int64, strict=False)

    def end(key: str) -> pl.Expr:
        rank = value(key, r"(\d+)(?:\s|$)").cast(pl.Int64, strict=False)
        host = value(key, r"(\d+)(?:\s|$)", "host:").cast(pl.Int64, strict=False)
        return pl.coalesce(pl.when(rank < 2**31).then(rank), -1 - host).alias(key)

    numbers = ("channel", "seq", "slot", "step", "mb", "bytes", "src_stage", "dst_stage")
    keys = ("group", "dir", "transport", "device", "job", "kind")
    return [
        rest.str.extract(r"\s(.*)$", 1).alias("fields"),
        end("src"),
        end("dst"),
        *map(number, numbers),
        *map(text, keys),
        text("name").alias("given_name"),  # `name` is taken: of the range itself
        number("rank").alias("stated_rank"),
    ]


def _compact_fields() -> list[pl.Expr]:
    payload = pl.col("payload")

    def bits(shift: int, width: int) -> pl.Expr:
        return payload.floordiv(1 << shift).mod(1 << width)

    is_group = bits(SEQ_BITS + CHANNEL_BITS + 2 * RANK_BITS, 1) == 1
    first = bits(SEQ_BITS + CHANNEL_BITS + RANK_BITS, RANK_BITS)
    pair = pl.col("compact") & ~is_group
    unit = pl.col("mark").is_in(["step", "request"])

    def end(value: pl.Expr) -> pl.Expr:
        return pl.when(value >= HOST_MEMORY).then(HOST_MEMORY - 1 - value).otherwise(value)

    return [
        pl.when(pair & ~unit).then(end(first)).otherwise(pl.col("src")).alias("src"),
        pl.when(pair & ~unit).then(end(bits(SEQ_BITS + CHANNEL_BITS, RANK_BITS))).otherwise(pl.col("dst")).alias("dst"),
        pl.when(pl.col("compact") & is_group & ~unit)
        .then(first.cast(pl.String))
        .otherwise(pl.col("group"))
        .alias("group"),
        pl.when(pl.col("compact") & ~unit)
        .then(bits(SEQ_BITS, CHANNEL_BITS))
        .otherwise(pl.col("channel"))
        .alias("channel"),
        pl.when(pl.col("compact") & ~unit)
        .then(bits(0, SEQ_BITS))
        .when(pl.col("compact") & (pl.col("mark") == "request"))
        .then(payload)
        .otherwise(pl.col("seq"))
        .alias("seq"),
        pl.when(pl.col("compact") & (pl.col("mark") == "step")).then(payload).otherwise(pl.col("step")).alias("step"),
    ]

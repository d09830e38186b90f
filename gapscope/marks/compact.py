"""What does not fit into a compact key: the name of a group, and a sequence number of more than 26 bits.

Both need all marks of a run. A group is named by its definition (``gapscope::group group=tp0 number=17``) or by a
mark log. The sequence number counts modulo 2**26; it is unwrapped over the marks of all ranks together, in order of
time, so that both ends of a handoff get the same number wherever their captures begin. Where a mark log or a mark in
text form has the same number in full, that tells the multiple of 2**26.
"""

from __future__ import annotations

import zlib

import polars as pl
from gapscope_instrumentation.contract import RANK_BITS, SEQ_MODULUS

from gapscope.findings import Finding, plural

_PAIR = ["job", "src", "dst", "group", "channel"]
_ENDS = ["src", "dst", "group", "channel"]


def group_number(name: str) -> int:
    """Return the number that stands for a group in compact form, as the instrumentation chooses it.

    >>> group_number("17"), 0 <= group_number("tp0") < 65536
    (17, True)
    """
    if name.isdecimal() and int(name) < 1 << RANK_BITS:
        return int(name)
    return zlib.crc32(name.encode()) % (1 << RANK_BITS)


def with_group_names(marks: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the marks with groups of the compact form named, and findings on numbers that stand for several groups.

    The process's own definitions and log come first, then those of the others. A number that nothing names, or that two
    groups share, stays a number.

    Args:
        marks: All marks of a run, definitions included.
    """
    compact = (pl.col("form") == "compact") & pl.col("group").is_not_null()
    if not marks.select(compact.any()).item():
        return marks, []
    defined = marks.filter(pl.col("mark") == "group").select(
        "source", "process", name="group", number=pl.col("fields").str.extract(r"(?:^|\s)number=(\d+)", 1)
    )
    others = marks.filter(~compact & (pl.col("mark") != "group") & pl.col("group").is_not_null())
    names = others["group"].unique(maintain_order=True)
    numbers = pl.Series([str(group_number(name)) for name in names], dtype=pl.String)
    said = others.select("source", "process", name="group").unique(maintain_order=True)
    said = said.with_columns(number=pl.col("name").replace_strict(names, numbers, return_dtype=pl.String))
    known = pl.concat([defined, said]).drop_nulls().unique(maintain_order=True)
    own = _only(known, ["source", "process", "number"], "own_name")
    everywhere = _only(known, ["number"], "any_name")
    named = (
        marks.join(own, left_on=["source", "process", "group"], right_on=["source", "process", "number"], how="left",
                   maintain_order="left")
        .join(everywhere, left_on="group", right_on="number", how="left", maintain_order="left")
    )  # fmt: skip
    name = pl.coalesce("own_name", "any_name")
    shared = known.select("number", "name").unique().group_by("number").agg(pl.col("name").sort(), n=pl.len())
    left = named.filter(compact & name.is_null()).select(number="group").unique()
    shared = shared.filter(pl.col("n") > 1).join(left, on="number", how="semi").sort("number")
    findings = [
        Finding(
            "group_number_shared",
            "warning",
            f"Number {row['number']} stands for {plural(row['n'], 'group')} in compact form "
            f"({', '.join(row['name'][:4])}): their handoffs cannot be told apart.",
            "Name the groups by numbers below 65536, or mark in text form (GAPSCOPE_NVTX=text).",
        )
        for row in shared.iter_rows(named=True)
    ]
    named = named.with_columns(group=pl.when(compact).then(pl.coalesce(name, "group")).otherwise("group"))
    return named.drop("own_name", "any_name"), findings


def _only(known: pl.DataFrame, by: list[str], alias: str) -> pl.DataFrame:
    """Return the name of each number that has one name only."""
    names = known.select(*by, "name").unique(maintain_order=True)
    return names.group_by(by).agg(pl.col("name").first().alias(alias), n=pl.len()).filter(pl.col("n") == 1).drop("n")


def unwrap(marks: pl.DataFrame) -> pl.DataFrame:
    """Return the marks with the sequence numbers of the compact form unwrapped."""
    # The number of a step or request is no sequence number of a key.
    is_compact = (pl.col("form") == "compact") & (pl.col("src").is_not_null() | pl.col("group").is_not_null())
    is_compact &= pl.col("seq").is_not_null()
    rows = marks.with_row_index("_row")
    compact = rows.filter(is_compact)
    if not compact.height:
        return marks
    half = SEQ_MODULUS // 2
    step = (pl.col("seq").diff().fill_null(0) + half).mod(SEQ_MODULUS) - half
    unwrapped = pl.col("seq").first() + step.cum_sum()
    compact = compact.sort("start_ns", "seq", "_row").with_columns(seq=unwrapped.over(_PAIR))
    rest = rows.filter(~is_compact)
    compact = compact.with_columns(seq=pl.col("seq") + _missing_multiple(compact, rest))
    return pl.concat([rest, compact.select(rest.columns)]).sort("_row").drop("_row")


def _missing_multiple(compact: pl.DataFrame, rest: pl.DataFrame) -> pl.Series:
    """Return what each unwrapped number lacks, a multiple of 2**26, by the nearest mark that says it in full."""
    full = rest.filter(pl.col("seq").is_not_null())
    if not full.select((pl.col("seq") >= SEQ_MODULUS).any()).item():
        return pl.Series([0], dtype=pl.Int64).new_from_index(0, compact.height)
    low = pl.col("seq").mod(SEQ_MODULUS)
    one = compact.select(*_ENDS, "mark", "job", _mod=low, one="seq", one_ns="start_ns")
    two = full.select(*_ENDS, "mark", _mod=low, two="seq", two_ns="start_ns")
    both = one.join(two, on=[*_ENDS, "mark", "_mod"], nulls_equal=True)
    lacks = both.sort((pl.col("one_ns") - pl.col("two_ns")).abs()).group_by(_PAIR, maintain_order=True).first()
    lacks = lacks.select(*_PAIR, lacks=pl.col("two") - pl.col("one"))
    joined = compact.select(_PAIR).join(lacks, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    return joined["lacks"].fill_null(0)

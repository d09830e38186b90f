"""Two tools recorded the same mark of one process: one range lies inside the other.

Which tool's range is the outer one is not taken on trust: it is the tool whose range of each mark lasts longer, for all
marks. Where that differs from mark to mark, the ranges do not nest and say nothing. Only of the mark log it is
known: the instrumentation opens it last and closes it first, so that its ranges lie inside those of any tool.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.observations import Evidence

_FEWEST = 3
_MARK = ["job", "rank", "mark", "src", "dst", "group", "channel", "seq", "slot", "_unit"]


def nested_ranges(context: Context) -> Evidence:
    """Return what ranges say that two tools recorded."""
    trace = context.trace
    if not context.several_clocks or trace.processes["primary"].all():
        return nothing()
    marks = trace.marks.filter(pl.col("rank").is_not_null() & pl.col("end_ns").is_not_null())
    marks = marks.filter(pl.col("end_ns") > pl.col("start_ns"))
    is_unit = pl.col("mark").is_in(["step", "request"])
    # Compact and log form have no text of their own; marks of units are told apart by their number and fields.
    unit = pl.when(is_unit).then(pl.coalesce(pl.col("step").cast(pl.String), "fields"))
    tools = trace.sources.select("source", is_log=pl.col("tool") == "gapscope")
    marks = context.domains.with_domain(marks, None, "", "domain").with_columns(_unit=unit)
    marks = marks.join(tools, on="source", how="left", maintain_order="left")
    marks = marks.with_columns(text=_name()).select(*_MARK, "text", "domain", "is_log", "start_ns", "end_ns")
    once = marks.filter(pl.len().over([*_MARK, "domain"]) == 1)
    pairs = once.join(once, on=_MARK, nulls_equal=True, suffix="_2").filter(pl.col("domain") != pl.col("domain_2"))
    longer = (pl.col("end_ns") - pl.col("start_ns")) >= (pl.col("end_ns_2") - pl.col("start_ns_2"))
    pair = ["domain", "domain_2"]
    with_log = pairs.filter(pl.col("is_log_2") & ~pl.col("is_log") & longer)
    pairs = pairs.filter(~pl.col("is_log") & ~pl.col("is_log_2"))
    outer = pairs.filter((longer.all() & (pl.len() >= _FEWEST)).over(pair))
    both_ways = outer.join(outer, left_on=pair, right_on=["domain_2", "domain"], how="semi")
    outer = pl.concat([outer.join(both_ways, on=pair, how="anti"), with_log])
    begin = outer.select(
        "text", earlier="domain", later="domain_2", earlier_ns="start_ns", later_ns="start_ns_2", edge=pl.lit("start")
    )
    end = outer.select(
        "text", earlier="domain_2", later="domain", earlier_ns="end_ns_2", later_ns="end_ns", edge=pl.lit("end")
    )
    frame = pl.concat([begin, end])
    texts = (pl.format("{} of {}", "edge", "text"), pl.format("{} of {}", "edge", "text"))
    return context.evidence(frame, "nested", texts, pl.format("{} of {}", "edge", "text"))


def _name() -> pl.Expr:
    """Return what a mark is known by, in words."""
    pair = pl.format("{} {}>{}/{}/{}", "mark", "src", "dst", "channel", "seq")
    group = pl.format("{} {}/{}/{}", "mark", "group", "channel", "seq")
    short = pl.coalesce(pair, group, pl.format("{} {}", "mark", "_unit"), "mark")
    return pl.when(pl.col("form") == "text").then("text").otherwise(short)

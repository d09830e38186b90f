"""Which communication of one rank belongs to which of another, where no sequence number says so.

Ranks of one communicator do the same operations in the same order. So the k-th of one rank is the k-th of the other if
both recorded the same ones. That is known within a step whose mark both recorded whole, if both did equally many
operations in it, of the same kinds and sizes; without steps, only if the whole sequences are equal. Where it is not
known, nothing is paired.
"""

from __future__ import annotations

import polars as pl

from gapscope.trace import Trace


def with_step(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``step``: the step mark of the same process that encloses ``host_ns``; null if none does.

    A number that a process gave to several steps names none of them.
    """
    steps = (
        trace.marks.filter((pl.col("mark") == "step") & pl.col("step").is_not_null() & pl.col("end_ns").is_not_null())
        .with_columns(step=pl.when(pl.len().over("source", "process", "step") == 1).then("step"))
        .select("source", "process", "step", step_start="start_ns", step_end="end_ns")
        .sort("step_start")
    )
    found = rows.sort("host_ns").join_asof(
        steps, left_on="host_ns", right_on="step_start", by=["source", "process"], check_sortedness=False
    )
    inside = (pl.col("host_ns") <= pl.col("step_end")).fill_null(value=False)
    return found.with_columns(step=pl.when(inside).then("step")).drop("step_start", "step_end")


def with_job(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``job`` of the process; null: the default one."""
    jobs = trace.processes.select("source", "process", "job")
    return rows.join(jobs, on=["source", "process"], how="left", maintain_order="left")


def of_job(channel: pl.Expr) -> pl.Expr:
    """Return the text of a channel within its job: ranks of two jobs are different ranks."""
    return pl.coalesce(pl.format("{}: {}", "job", channel), channel)


def other_rank(rank: str) -> pl.Expr:
    """Return the other rank where a job has just two ranks in these rows (column ``job``), else null."""
    own = pl.col(rank).cast(pl.Int64)
    two = own.n_unique().over("job") == 2
    return pl.when(two).then(own.min().over("job") + own.max().over("job") - own)


def paired(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with ``instance``, a text that belonging rows share; without those that cannot be paired.

    Args:
        rows: ``channel`` (what has an order of its own), ``who`` (participant), ``what`` (kind and size, equal for all
            participants; null: not known), ``step``, ``seq`` (null if not recorded), ``order``
            (position among the participant's own).
    """
    known = rows.filter(pl.col("seq").is_not_null()).with_columns(
        instance=pl.format("{} seq {}", "channel", "seq"), _n=pl.len().over("channel", "who", "seq")
    )
    # Numbers of one participant alone say nothing; where others count as well, a number that only one has is alone.
    counted = pl.col("who").n_unique().over("channel") > 1
    numbered = known.filter((pl.col("_n") == 1) & counted).drop("_n")
    rest = rows.filter(pl.col("seq").is_null())
    everyone = rows.group_by("channel").agg(participants=pl.col("who").n_unique())
    stepped = pl.col("step").is_not_null().any().over("channel")
    rest = rest.filter(pl.col("step").is_not_null() | ~stepped).sort("order")
    block = ["channel", "step"]
    rest = rest.with_columns(_k=pl.int_range(pl.len()).over([*block, "who"], order_by="order"))
    lengths = rest.group_by([*block, "who"]).agg(n=pl.len())
    equal = (
        lengths.group_by(block)
        .agg(shortest=pl.col("n").min(), longest=pl.col("n").max(), there=pl.len())
        .join(everyone, on="channel")
        .filter((pl.col("shortest") == pl.col("longest")) & (pl.col("there") == pl.col("participants")))
    )
    rest = rest.join(equal.select(block), on=block, how="semi", nulls_equal=True)
    same = (pl.col("what").drop_nulls().n_unique().over([*block, "_k"]) <= 1).all().over(block)
    place = pl.when(pl.col("step").is_null()).then(pl.lit("")).otherwise(pl.format(" of step {}", "step"))
    rest = rest.filter(same).with_columns(instance=pl.format("{} {}{}", "channel", pl.col("_k") + 1, place))
    return pl.concat([numbered, rest.drop("_k")])

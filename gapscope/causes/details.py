"""What is known of a tile beside its cause, in words.

Few tiles have anything of their own to say: words are put together for those, and once for each name.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.facts import handoff_names
from gapscope.causes.naming import Known
from gapscope.causes.sharing import sharer_names
from gapscope.graph.kernels import HOST_GAP, LEAD, NONE


def details(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return ``detail`` of table ``tiles``.

    Args:
        known: What causes were named by.
        steps: Result of `gapscope.causes.naming.named`.
    """
    own = _of_names(known, steps)
    cause = pl.col("cause")
    said = pl.coalesce(
        "activity",
        pl.when(pl.col("unpaired") == "not split").then(pl.lit("peer not known: wait and transfer, not split")),
        pl.when(cause == "peer_wait").then(pl.lit("peer not known")),
        pl.when(pl.col("sharer").is_not_null()).then(pl.format("after {}", "last")),
        pl.when(cause == "schedule").then(pl.format("the stage of handoff {} first", "stage")),
        pl.format("of handoff {}", "handoff"),
        pl.when((cause == "slot_wait") & pl.col("stage_of").is_not_null()).then(
            pl.format("consuming handoff {}", "stage_of")
        ),
    )
    has_more = pl.any_horizontal(pl.col("overhead", "unpaired", "sharer", "put_first", "stage_of").is_not_null()) | (
        (pl.col("other") != NONE) | cause.is_in(["peer_wait", "movement"])
    )
    row = steps.select(has_more.fill_null(value=False).arg_true()).to_series()
    few = steps.select(
        "walk",
        "start_ns",
        "end_ns",
        "item",
        "cause",
        "overhead",
        "unpaired",
        "sharer",
        "put_first",
        "other",
        "stage_of",
    )[row]
    few = few.with_columns(
        activity=known.activity.table["overhead"].gather(few["overhead"]),
        last=sharer_names(known.graph, known.sharers, few["sharer"]),
        stage=handoff_names(known.graph, known.stages.table["handoff"].gather(few["put_first"])),
        handoff=handoff_names(known.graph, few["other"]),
    )
    found = few.select(said).to_series()
    moving = (few["cause"] == "movement").arg_true()
    rates, else_said = _rates(known, few[moving]), own.gather(row)
    else_said.scatter(moving, rates.zip_with(rates.is_not_null(), else_said.gather(moving)))
    return own.scatter(row, found.zip_with(found.is_not_null(), else_said))


def _of_names(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return what is said of host time that nothing was recorded in."""
    name = steps["name"]
    different = name.unique().drop_nulls()
    code = different.to_physical().to_numpy().astype(np.int64)
    place = np.zeros(code.max(initial=0) + 1, np.int64)
    place[code] = np.arange(len(code))
    row = pl.Series(place[name.to_physical().fill_null(0).to_numpy()]).set(name.is_null(), None)
    words = (
        different.cast(pl.String)
        .to_frame("name")
        .select(
            before=pl.format("uninstrumented host time before {}", "name"),
            after=pl.format("uninstrumented host time after {} began", "name"),
        )
    )
    # One column of words: those of time before a call, then those of time after one.
    at = pl.when(pl.col("what") == HOST_GAP).then(row).when(pl.col("what") == LEAD).then(row + len(different))
    found = pl.concat([words["before"], words["after"]]).gather(steps.select(at).to_series())
    row = (steps["what"] == HOST_GAP).arg_true()
    gaps = steps.select("lane", "overhead", "start_ns", "end_ns")[row]
    beside = known.profiling.beside(gaps)
    most = 2 * beside > gaps["end_ns"] - gaps["start_ns"]
    row, beside = row.filter(most), beside.filter(most)
    if not len(row):
        return found
    longer = pl.DataFrame({"before": found.gather(row), "us": beside // 1_000}).select(
        pl.format("{}; the profiler worked on another thread for {} µs of it", "before", "us")
    )
    return found.scatter(row, longer.to_series())


def _rates(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return bytes and rate of transfers in words; null: not known, or one operation carries several messages."""
    sizes, n = known.graph.items.ops["size_bytes"], known.graph.items.n_ops
    item = steps["item"]
    of_item = sizes.gather(item.set((item >= n).fill_null(value=True), None)).cast(pl.Int64)
    of_walk = known.facts.select(pl.when(pl.col("messages") == 1).then("size_bytes")).to_series().gather(steps["walk"])
    rows = steps.select("walk", "item", ns=pl.col("end_ns") - pl.col("start_ns")).with_columns(
        moved=of_item.zip_with(of_item.is_not_null(), of_walk)
    )
    took = pl.col("ns").sum().over("walk", "item")
    rate = (pl.col("moved") / took).round(3)  # bytes in a nanosecond are gigabytes in a second
    return rows.select(
        pl.when((took > 0) & pl.col("item").is_not_null()).then(pl.format("{} bytes at {} GB/s", "moved", rate))
    ).to_series()

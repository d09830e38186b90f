"""Arrows: which slices and moments belong to one handoff, from its producer to its consumer.

Perfetto draws a flow through its slices and moments in the order of their times. So what would come before the one that
it follows is left out, and what was asked for ahead of time has an arrow of its own.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.exports.packets import flows_of
from gapscope.exports.protobuf import Rows
from gapscope.exports.ranks import Ranks
from gapscope.schema import EVENTS

CHAIN = ("producer_finish", "movement_start", "available", "consumer_start")
"""Events that the data passes, in order."""

ASKED = {"submit": CHAIN[1:], "receive_post": CHAIN[2:]}
"""What is asked for, and the events that can answer: the first that is known does."""

_OPERATIONS = ["kernel", "memcpy", "memset", "graph"]
_PER_HANDOFF = 2 + len(ASKED)


def event_flows(at: dict[str, pl.Series], together: pl.Series) -> pl.DataFrame:
    """Return which events the arrows of each handoff pass.

    Args:
        at: Time of each event of `EVENTS` by handoff, as it is drawn; null: it is not.
        together: Whether its times can be compared.

    Returns:
        ``row`` (position of the handoff), ``event`` (position in `EVENTS`), ``flow``; at least two rows for each flow,
        and no two events of a flow out of order.
    """
    time = {e: s.fill_null(0).to_numpy() for e, s in at.items()}
    there = {e: (s.is_not_null() & together).to_numpy() for e, s in at.items()}
    parts = []
    reached = np.full(len(together), -(2**63), np.int64)
    for event in CHAIN:
        keep = there[event] & (time[event] >= reached)
        reached = np.where(keep, time[event], reached)
        parts.append((event, 1, keep))
    for number, (asked, answers) in enumerate(ASKED.items()):
        open_ = there[asked].copy()
        for answer in answers:
            found = open_ & there[answer]
            right = found & (time[answer] >= time[asked])
            parts += [(asked, 2 + number, right), (answer, 2 + number, right)]
            open_ &= ~found
    rows = [
        pl.DataFrame({"row": np.flatnonzero(keep)}).select(
            pl.col("row").cast(pl.Int64),
            event=pl.lit(EVENTS.index(event), pl.Int64),
            flow=pl.col("row").cast(pl.Int64) * _PER_HANDOFF + kind + 1,
        )
        for event, kind, keep in parts
    ]
    flows = pl.concat(rows)
    return flows.filter(pl.len().over("flow") > 1)


def operation_flows(items: pl.DataFrame, ranks: Ranks, handoffs: pl.DataFrame) -> Rows | None:
    """Return the flows from the operation that ended a producer's work to the one that began its consumer's.

    Only where just one operation of that rank ended, or began, at that time.

    Args:
        items: Items with ``on`` (position in ``ranks.lanes``) and the times that they are drawn at.
        ranks: Whose they are.
        handoffs: Table ``handoffs``, with `gapscope.exports.ranks.Ranks.owners`.
    """
    ends = handoffs.with_row_index("row").filter(pl.col("gap_ns") >= 0)
    whose = ranks.lanes.select("job", pl.col("rank").cast(pl.Int64))
    operations = (
        items.select("on", "start_ns", "end_ns", "kind")
        .with_row_index("item")
        .filter(pl.col("kind").is_in(_OPERATIONS))
    )
    operations = operations.with_columns(whose["job"].gather(operations["on"]), whose["rank"].gather(operations["on"]))
    for side, event, time in (("src", "producer_finish", "end_ns"), ("dst", "consumer_start", "start_ns")):
        at = ends.select(
            pl.col(f"{side}_job_at").alias("job"), pl.col(f"{side}_rank_at").alias("rank"),
            (pl.col(f"{event}_ns") + pl.col(f"{side}_shift_at")).alias(time),
        ).unique()  # fmt: skip
        keys = ["job", "rank", time]
        found = operations.join(at, on=keys, how="semi", nulls_equal=True).group_by(keys).agg(
            pl.col("item").first(), pl.col("start_ns" if time == "end_ns" else "end_ns").first().alias("_other"),
            n=pl.len(),
        )  # fmt: skip
        found = found.filter(pl.col("n") == 1).select(
            pl.col("job").alias(f"{side}_job_at"), pl.col("rank").alias(f"{side}_rank_at"),
            (pl.col(time)).alias(f"{event}_at"), pl.col("item").alias(f"{side}_item"),
            (pl.col("_other") if time == "end_ns" else pl.col("start_ns")).alias(f"{side}_began"),
        )  # fmt: skip
        ends = ends.with_columns((pl.col(f"{event}_ns") + pl.col(f"{side}_shift_at")).alias(f"{event}_at")).join(
            found, on=[f"{side}_job_at", f"{side}_rank_at", f"{event}_at"], nulls_equal=True
        )
    ends = ends.filter(pl.col("src_began") < pl.col("dst_began"))
    if not ends.height:
        return None
    flow = ends["row"].cast(pl.Int64).to_numpy() * _PER_HANDOFF + 1
    item = np.concatenate([ends[c].cast(pl.Int64).to_numpy() for c in ("src_item", "dst_item")])
    return flows_of(items.height, item, np.concatenate([flow, flow]))

"""How long GPUs of one rank sat in communication kernels and waited for another rank to arrive.

That is no part of any one gap: a rank waits longest where the other is busy with work of its own. A kernel waits until
the last of its peers has started; whose start that was is recorded, or inferred as its edge says.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.movements import peers
from gapscope.graph import Graph
from gapscope.schema import WAITING, dtypes


def waiting(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return table ``waiting``: one row per rank and rank that it waited for, the longest first.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``; what came before the first of them that is past start-up is left out.
    """
    items = graph.items
    begin = handoffs.filter("steady")["producer_finish_ns"].min()
    rows = peers(graph).filter(pl.col("latest") == pl.col("sender"))
    if not rows.height or not isinstance(begin, int):
        return pl.DataFrame(schema=dtypes(WAITING))
    start, end = (pl.Series(t) for t in (items.start, items.end))
    ranks, lane = items.lanes["rank"], pl.Series(items.lane)
    rows = rows.filter((pl.col("item") < items.n_ops) & (pl.col("sender") < items.n_ops))
    rows = rows.with_columns(
        rank=ranks.gather(lane.gather(rows["item"])),
        for_rank=ranks.gather(lane.gather(rows["sender"])),
        start_ns=start.gather(rows["item"]),
        end_ns=end.gather(rows["item"]),
    )
    bound = graph.context.alignment.uncertainty(
        pl.Series(items.clock_of(rows["item"].to_numpy())),
        pl.Series(items.clock_of(rows["sender"].to_numpy())),
        rows["from_ns"],
    )
    rows = rows.with_columns(until_ns=pl.min_horizontal("from_ns", "end_ns"), bound=bound)
    rows = rows.filter((pl.col("rank") != pl.col("for_rank")) & (pl.col("start_ns") >= begin))
    # Kernels of several streams may wait at once: each moment counts once.
    reached = pl.col("until_ns").cum_max().shift(fill_value=-(2**62))
    fresh = pl.col("until_ns") - pl.max_horizontal("start_ns", reached)
    found = (
        rows.sort("start_ns")
        .group_by("rank", "for_rank")
        .agg(
            kernels=pl.len().cast(pl.Int64),
            waited_ns=pl.max_horizontal(fresh, pl.lit(0)).sum(),
            uncertainty_ns=pl.when(pl.col("bound").is_not_null().all()).then(pl.col("bound").max()),
        )
        .join(_recorded(graph, begin), on="rank", how="left")
    )
    return found.sort("waited_ns", "rank", "for_rank", descending=[True, False, False]).select(
        pl.col(n).cast(t) for n, t in dtypes(WAITING).items()
    )


def _recorded(graph: Graph, begin: int) -> pl.DataFrame:
    """Return how long each rank's operations were recorded from then on: ``rank, recorded_ns``."""
    items = graph.items
    streams = items.lanes.filter(~pl.col("is_host"))
    last = np.maximum.reduceat(items.end[: items.n_ops], streams["first"].to_numpy())
    ends = streams.select("rank", end_ns=pl.Series(last))
    return ends.group_by("rank").agg(recorded_ns=pl.max_horizontal(pl.col("end_ns").max() - begin, pl.lit(0)))

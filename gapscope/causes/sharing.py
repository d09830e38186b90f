"""Two processes on one GPU take turns: an operation that is ready waits until the device is given to its process.

Without MPS kernels of two processes never overlap, and each change of owner costs (about 140 µs on an H200). No
record says so. Devices of one number of two processes of a host are taken for one if their kernels never overlap
although they alternate many times within each other's recordings; the name is then an inference, the time is exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.cutting import cut_inside
from gapscope.graph import Graph
from gapscope.graph.items import Items
from gapscope.graph.kernels import RESIDUAL

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

FEWEST_CHANGES = 10
FEWEST_IDLE_NS = 20_000
"""Idle time at each change of owner; between kernels of one process it is 1 to 30 µs."""


def with_device_sharing(sharers: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut residuals where another process's kernel left the device, and add ``sharer``: that kernel; null: none.

    Args:
        sharers: Result of `sharers_of`.
        steps: Steps with ``item``, ``what``, ``is_host``.
    """
    if not sharers.height:
        return steps.with_columns(sharer=pl.lit(None, dtype=pl.String))
    steps = steps.join(sharers, on="item", how="left", maintain_order="left")
    is_held = (pl.col("what") == RESIDUAL) & ~pl.col("is_host") & pl.col("sharer_end").is_not_null()
    held = steps.select(is_held.fill_null(value=False)).to_series()
    steps = steps.with_columns(pl.when(held).then(c).alias(c) for c in ("sharer", "sharer_end"))
    steps = cut_inside(steps, steps["sharer_end"])
    return steps.drop("sharer_end")


def sharers_of(graph: Graph) -> pl.DataFrame:
    """Return kernels before which another process's ran last on their device: ``item, sharer, sharer_end``."""
    items = graph.items
    # Hosts number their devices alike. A file that does not name its host is taken to be of the only one that is named.
    of_files = graph.context.trace.sources.select("source", "host")
    named = of_files["host"].drop_nulls().unique()
    if len(named) == 1:
        of_files = of_files.with_columns(host=pl.lit(named[0]))
    # Copies from and to the host run beside kernels of any process; within a device they are work like others.
    is_work = (pl.col("kind") != "memcpy") | (pl.col("copy_kind") == "DtoD").fill_null(value=False)
    owners = items.stream_table.select("source", "process", "device").unique().join(of_files, on="source", how="left")
    owners = owners.with_columns(gpu=pl.struct("host", "device").rank("dense"))
    owners = owners.filter(pl.len().over("gpu") > 1).sort("gpu", "source", "process")
    if not owners.height:
        return pl.DataFrame(schema={"item": pl.Int64, "sharer": pl.String, "sharer_end": pl.Int64})
    works = items.ops.select(is_work).to_series().to_numpy()
    found = []
    for _, here in owners.group_by("gpu", maintain_order=True):
        streams = items.stream_table.join(
            here.with_row_index("owner"), on=["source", "process", "device"], nulls_equal=True, maintain_order="left"
        )
        found.append(_changes(items, streams, works))
    changes = pl.concat(found)
    last = items.ops_at(changes["last"]).select(last_name=pl.col("name").cast(pl.String), last_rank="rank")
    return changes.hstack(last).select(
        pl.col("item").cast(pl.Int64),
        sharer=pl.format("{} of rank {}", "last_name", "last_rank"),
        sharer_end=pl.Series(items.end).gather(changes["last"]),
    )


_CHANGES = {"item": pl.Int32, "last": pl.Int32}


_SHARES = (1 / 64, 1)
"""Of the time of a GPU: where its first part shows that no two processes take turns, the rest is not looked at."""


def _changes(items: Items, streams: pl.DataFrame, is_work: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return the operations of a GPU whose processes take turns before which another's ran last: ``item, last``.

    Args:
        items: Operations and host items.
        streams: ``owner, first, until``: the streams of the GPU.
        is_work: Which operations take turns.
    """
    spans = streams.select("first", "until").rows()
    starts = [items.start[first:until] for first, until in spans]
    begin, end = min(int(s.min()) for s in starts), max(int(s.max()) for s in starts)
    owners = streams["owner"].n_unique()
    shared, changes = pl.DataFrame(), pl.DataFrame()
    for share in _SHARES:
        limit = begin + int((end - begin) * share)
        parts = [first + np.flatnonzero(s <= limit) for (first, _), s in zip(spans, starts, strict=True)]
        kept = [rows[is_work[rows]].astype(np.int32) for rows in parts]
        owner = np.repeat(streams["owner"].to_numpy().astype(np.int32), [len(part) for part in kept])
        changes = _all_changes(items, np.concatenate(kept), owner)
        pairs = changes.group_by("to", "out").agg(n=pl.len(), least=pl.col("idle").min())
        too_short = pairs.filter(pl.col("least") < FEWEST_IDLE_NS)
        refuted = too_short.select(pl.struct(pl.min_horizontal("to", "out"), pl.max_horizontal("to", "out").alias("b")))
        if refuted.to_series().n_unique() == owners * (owners - 1) // 2:
            return pl.DataFrame(schema=_CHANGES)
        back = pairs.rename({"to": "out", "out": "to", "n": "n_back", "least": "least_back"})
        shared = pairs.join(back, on=["to", "out"]).filter(
            (pl.min_horizontal("n", "n_back") >= FEWEST_CHANGES)
            & (pl.min_horizontal("least", "least_back") >= FEWEST_IDLE_NS)
        )
    return changes.join(shared, on=["to", "out"], how="semi").select(pl.col(n).cast(t) for n, t in _CHANGES.items())


def _all_changes(items: Items, of_gpu: Indices, owner: Indices) -> pl.DataFrame:
    """Return where operations change from one owner to another: ``item, last, to, out, idle``.

    Args:
        items: Operations and host items.
        of_gpu: Operations of the GPU.
        owner: Number of the process of each.
    """
    order = np.argsort(items.start[of_gpu], kind="stable")
    item, turn = of_gpu[order], owner[order]
    at = np.flatnonzero(turn[1:] != turn[:-1]) + 1
    over = np.maximum.accumulate(items.end[item])  # all so far had ended by then
    idle = items.start[item[at]] - over[at - 1]
    return pl.DataFrame({"item": item[at], "last": item[at - 1], "to": turn[at], "out": turn[at - 1], "idle": idle})

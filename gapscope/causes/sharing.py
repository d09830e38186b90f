"""Two processes on one GPU take turns: an operation that is ready waits until the device is given to its process.

Without MPS kernels of two processes never overlap, and each change of owner costs (about 140 µs on an H200). No
record says so. Devices of one number of two processes of a host are taken for one if their kernels never overlap
although they alternate many times within each other's recordings; the name is then an inference, the time is exact.
"""

from __future__ import annotations

import polars as pl

from gapscope.graph import Graph
from gapscope.graph.kernels import RESIDUAL

FEWEST_CHANGES = 10
FEWEST_IDLE_NS = 20_000
"""Idle time at each change of owner; between kernels of one process it is 1 to 30 µs."""


def with_device_sharing(graph: Graph, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut residuals where another process's kernel left the device, and add ``sharer``: that kernel; null: none.

    Args:
        graph: The graph.
        steps: Steps with ``item``, ``what``, ``is_host``.
    """
    owner = _last_owner(graph)
    steps = steps.join(owner, on="item", how="left", maintain_order="left")
    held = (pl.col("what") == RESIDUAL) & ~pl.col("is_host") & pl.col("sharer_end").is_not_null()
    inside = held & (pl.col("sharer_end") > pl.col("start_ns")) & (pl.col("sharer_end") < pl.col("end_ns"))
    cut = steps.filter(inside.fill_null(value=False))
    whole = steps.filter(~inside.fill_null(value=False))
    parts = [whole, cut.with_columns(end_ns="sharer_end"), cut.with_columns(start_ns="sharer_end")]
    return (
        pl.concat(parts)
        .with_columns(sharer=pl.when(held.fill_null(value=False)).then("sharer"))
        .drop("sharer_end")
        .sort("walk", "start_ns")
    )


def _last_owner(graph: Graph) -> pl.DataFrame:
    """Return kernels before which another process's ran last on their device: ``item, sharer, sharer_end``."""
    items = graph.items
    # Hosts number their devices alike. A file that does not name its host is taken to be of the only one that is named.
    of_files = graph.context.trace.sources.select("source", "host")
    named = of_files["host"].drop_nulls().unique()
    if len(named) == 1:
        of_files = of_files.with_columns(host=pl.lit(named[0]))
    owners = items.ops.select("source", "process", "device").unique().join(of_files, on="source", how="left")
    devices = owners.with_columns(
        gpu=pl.struct("host", "device").rank("dense"), several=pl.len().over("host", "device")
    )
    devices = devices.filter(pl.col("several") > 1).select("source", "process", "device", "gpu")
    kernels = (
        items.ops.lazy()
        .select("source", "process", "rank", "device", "kind", "copy_kind", "name")
        .with_row_index("item")
        .with_columns(start=pl.Series(items.start[: items.n_ops]), end=pl.Series(items.end[: items.n_ops]))
        .join(devices.lazy(), on=["source", "process", "device"])
        # Copies from and to the host run beside kernels of any process; within a device they are work like others.
        .filter((pl.col("kind") != "memcpy") | (pl.col("copy_kind") == "DtoD").fill_null(value=False))
        .with_columns(owner=pl.struct("source", "process").rank("dense"))
        .sort("gpu", "start", "item")
        .collect()
    )
    before = ["owner", "end", "name", "rank"]
    kernels = kernels.with_columns(pl.col(before).shift().over("gpu").name.prefix("last_")).with_columns(
        idle=pl.col("start") - pl.col("end").cum_max().shift().over("gpu"),
    )
    changes = kernels.filter(pl.col("owner") != pl.col("last_owner"))
    pairs = changes.group_by("gpu", "owner", "last_owner").agg(n=pl.len(), least=pl.col("idle").min())
    back = pairs.rename({"owner": "last_owner", "last_owner": "owner", "n": "n_back", "least": "least_back"})
    shared = pairs.join(back, on=["gpu", "owner", "last_owner"]).filter(
        (pl.min_horizontal("n", "n_back") >= FEWEST_CHANGES)
        & (pl.min_horizontal("least", "least_back") >= FEWEST_IDLE_NS)
    )
    taken = changes.join(shared, on=["gpu", "owner", "last_owner"], how="semi")
    return taken.select(
        pl.col("item").cast(pl.Int64),
        sharer=pl.format("{} of rank {}", pl.col("last_name").cast(pl.String), "last_rank"),
        sharer_end=pl.col("last_end"),
    )

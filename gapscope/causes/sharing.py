"""Two processes on one GPU take turns: an operation that is ready waits until the device is given to its process.

Without MPS kernels of two processes never overlap, and each change of owner costs (about 140 µs on an H200). No
record says so. Devices of one number of two processes of a host are taken for one if their kernels never overlap
although they alternate many times within each other's recordings; the name is then an inference, the time is exact.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph import Graph
from gapscope.graph.items import Items
from gapscope.graph.kernels import RESIDUAL

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

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
    # Copies from and to the host run beside kernels of any process; within a device they are work like others.
    is_work = (pl.col("kind") != "memcpy") | (pl.col("copy_kind") == "DtoD").fill_null(value=False)
    owners = items.streams.table.select("source", "process", "device").unique().join(of_files, on="source", how="left")
    owners = owners.with_columns(gpu=pl.struct("host", "device").rank("dense"))
    owners = owners.filter(pl.len().over("gpu") > 1).sort("gpu", "source", "process")
    found = []
    for _, here in owners.group_by("gpu", maintain_order=True):
        streams = items.streams.table.join(
            here.with_row_index("owner"), on=["source", "process", "device"], nulls_equal=True, maintain_order="left"
        )
        parts = [
            np.arange(first, until, dtype=np.int32)[items.ops[first:until].select(is_work).to_series().to_numpy()]
            for first, until in streams.select("first", "until").iter_rows()
        ]
        owner = np.repeat(streams["owner"].to_numpy().astype(np.int32), [len(part) for part in parts])
        found.append(_changes(items, np.concatenate(parts), owner))
    changes = pl.concat(found) if found else pl.DataFrame(schema=_CHANGES)
    last = items.ops[changes["last"]].select(last_name=pl.col("name").cast(pl.String), last_rank="rank")
    return changes.hstack(last).select(
        pl.col("item").cast(pl.Int64),
        sharer=pl.format("{} of rank {}", "last_name", "last_rank"),
        sharer_end=pl.Series(items.end).gather(changes["last"]),
    )


_CHANGES = {"item": pl.Int32, "last": pl.Int32}


def _changes(items: Items, of_gpu: Indices, owner: Indices) -> pl.DataFrame:
    """Return the operations of a GPU whose processes take turns before which another's ran last: ``item, last``.

    Args:
        items: Operations and host items.
        of_gpu: Operations of the GPU, ascending.
        owner: Number of the process of each.
    """
    order = np.argsort(items.start[of_gpu], kind="stable")
    item, last, idle = _turns(items.start, items.end, of_gpu, owner, order)
    changes = pl.DataFrame(
        {"item": of_gpu[item], "last": of_gpu[last], "to": owner[item], "out": owner[last], "idle": idle}
    )
    pairs = changes.group_by("to", "out").agg(n=pl.len(), least=pl.col("idle").min())
    back = pairs.rename({"to": "out", "out": "to", "n": "n_back", "least": "least_back"})
    shared = pairs.join(back, on=["to", "out"]).filter(
        (pl.min_horizontal("n", "n_back") >= FEWEST_CHANGES)
        & (pl.min_horizontal("least", "least_back") >= FEWEST_IDLE_NS)
    )
    return changes.join(shared, on=["to", "out"], how="semi").select(pl.col(n).cast(t) for n, t in _CHANGES.items())


@nb.njit(cache=True, nogil=True)
def _turns(start: Ints, end: Ints, items: Indices, owner: Indices, order: Ints) -> tuple[Indices, Indices, Ints]:
    """Return where operations of a device change from one owner to another.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        items: Operations of the device.
        owner: Owner of each.
        order: Positions in ``items`` by start.

    Returns:
        Positions of the operations that another owner's came before, of those, and the time since all before had ended.
    """
    now, last, idle = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024, np.int64)
    n, latest = 0, np.int64(-(2**62))
    for k in range(len(order)):
        i = order[k]
        if k > 0 and owner[i] != owner[order[k - 1]]:
            if n == len(now):
                now, last = np.concatenate((now, np.empty(n, np.int32))), np.concatenate((last, np.empty(n, np.int32)))
                idle = np.concatenate((idle, np.empty(n, np.int64)))
            now[n], last[n], idle[n] = i, order[k - 1], start[items[i]] - latest
            n += 1
        latest = max(latest, end[items[i]])
    return now[:n], last[:n], idle[:n]

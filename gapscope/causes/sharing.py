"""Two processes on one GPU take turns: an operation that is ready waits until the device is given to its process.

Without MPS kernels of two processes never overlap, and each change of owner costs (about 140 µs on an H200). No
record says so. Devices of one number of two processes of a host are taken for one if their kernels never overlap
although they alternate many times within each other's recordings; the name is then an inference, the time is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.cutting import cut_inside
from gapscope.graph import Graph
from gapscope.graph.items import Items
from gapscope.graph.kernels import NONE, RESIDUAL, fixed, leaf

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_CHANGES = {"item": pl.Int32, "last": pl.Int32}
_NEVER = np.int64(2**62)

FEWEST_CHANGES = 10
FEWEST_IDLE_NS = 20_000
"""Idle time at each change of owner; between kernels of one process it is 1 to 30 µs."""


def with_device_sharing(sharers: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut residuals where another process's kernel left the device, and add ``sharer``: that kernel; null: none.

    Args:
        sharers: Result of `sharers_of`; ``sharer`` is a row of it.
        steps: Steps with ``item``, ``what``, ``is_host``.
    """
    sharer = np.full(steps.height, NONE, np.int32)
    # Most steps are host time, which is not looked up.
    held = steps.select(((pl.col("what") == RESIDUAL) & ~pl.col("is_host")).fill_null(value=False).arg_true())
    row, items = held.to_series(), sharers["item"].to_numpy()
    if len(items) and len(row):
        item = steps["item"].gather(row).to_numpy()
        at = np.minimum(np.searchsorted(items, item), len(items) - 1)
        sharer[row.to_numpy()] = np.where(items[at] == item, at, NONE)
    steps = steps.with_columns(sharer=pl.Series(sharer)).with_columns(pl.when(pl.col("sharer") != NONE).then("sharer"))
    return cut_inside(steps, sharers["sharer_end"].gather(steps["sharer"]))


def sharers_of(graph: Graph) -> pl.DataFrame:
    """Return kernels before which another process's ran last on their device: ``item``, ascending.

    Also ``last`` and ``sharer_end``: that other kernel, and when it ended.
    """
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
        return pl.DataFrame(schema={"item": pl.Int32, "last": pl.Int32, "sharer_end": pl.Int64})
    works = items.ops.select(is_work).to_series()
    found = []
    for _, here in owners.group_by("gpu", maintain_order=True):
        streams = items.stream_table.join(
            here.with_row_index("owner"), on=["source", "process", "device"], nulls_equal=True, maintain_order="left"
        )
        found.append(_changes(items, streams, works))
    changes = pl.concat(found).sort("item")
    return changes.with_columns(sharer_end=pl.Series(items.end[changes["last"].to_numpy()]))


def sharer_names(graph: Graph, sharers: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """Return in words the kernels that had the device before; null: none.

    Args:
        graph: The graph.
        sharers: Result of `sharers_of`.
        rows: Rows of it; may repeat and hold nulls.
    """
    different = rows.drop_nulls().unique()
    ops = graph.items.ops_at(sharers["last"].gather(different))
    names = ops.select(pl.format("{} of rank {}", pl.col("name").cast(pl.String), "rank")).to_series()
    return rows.replace_strict(different, names, default=None, return_dtype=pl.String)


def _changes(items: Items, streams: pl.DataFrame, is_work: pl.Series) -> pl.DataFrame:
    """Return the operations of a GPU whose processes take turns before which another's ran last: ``item, last``.

    Args:
        items: Operations and host items.
        streams: ``owner, first, until``: the streams of the GPU.
        is_work: Which operations take turns.
    """
    parts = []
    for first, until in streams.select("first", "until").iter_rows():
        ops = is_work[first:until].arg_true().to_numpy().astype(np.int32) + np.int32(first)
        starts = items.start[ops]
        parts.append(ops if (starts[1:] >= starts[:-1]).all() else ops[np.argsort(starts, kind="stable")])
    owner, owners = streams["owner"].to_numpy().astype(np.int64), streams["owner"].n_unique()
    until = np.cumsum([len(part) for part in parts])
    n, least = np.zeros((owners, owners), np.int64), np.full((owners, owners), _NEVER, np.int64)
    turns = _Turns(*(fixed(values) for values in (np.concatenate(parts), until, owner, items.start, items.end)))
    first, nothing = np.concatenate([[0], until[:-1]]), np.zeros((0, 2), np.int32)
    if not _take_turns(turns, first.copy(), n, least, np.zeros(n.shape, np.bool_), nothing):
        return pl.DataFrame(schema=_CHANGES)
    holds = (n >= FEWEST_CHANGES) & (least >= FEWEST_IDLE_NS)
    shared = holds & holds.T
    rows = np.empty((int(n[shared].sum()), 2), np.int32)
    _take_turns(turns, first.copy(), n, least, shared, rows)
    return pl.DataFrame(rows, schema=_CHANGES)


class _Turns(NamedTuple):
    """Operations of a GPU, by stream and in order of their starts.

    Attributes:
        op: Their numbers.
        until: Before which of these each stream ends.
        owner: Owner of each stream.
        start: Start of every item.
        end: End of every item.
    """

    op: Indices
    until: Ints
    owner: Ints
    start: Ints
    end: Ints


@leaf
def _take_turns(  # noqa: C901, PLR0917 - one loop that carries its state
    turns: _Turns, at: Ints, n: Ints, least: Ints, shared: npt.NDArray[np.bool_], rows: Indices
) -> bool:
    """Count the changes from one owner to another and write those down that are asked for.

    Args:
        turns: The operations.
        at: Where each stream begins; is moved on.
        n: Changes to each owner from each other, counted up.
        least: The shortest idle time at one, from its start to the end of all before.
        shared: Changes between which owners are written down: the operation, and the one before it.
        rows: Room for them.

    Returns:
        False: no two owners take turns. The rest was not looked at.
    """
    op, until, owner, start, end = turns
    last, whose, over, k, left = -1, -1, -_NEVER, 0, len(n) * (len(n) - 1) // 2
    while True:
        one, two = -1, -1  # the stream whose next operation starts first, and the one after it; of equal ones the first
        for s in range(len(until)):
            if at[s] == until[s]:
                continue
            if one < 0 or start[op[at[s]]] < start[op[at[one]]]:
                one, two = s, one
            elif two < 0 or start[op[at[s]]] < start[op[at[two]]]:
                two = s
        if one < 0:
            return True
        limit = start[op[at[two]]] if two >= 0 else _NEVER
        while at[one] < until[one]:
            item = op[at[one]]
            if start[item] > limit or (start[item] == limit and two < one):
                break
            to = owner[one]
            if whose >= 0 and to != whose:
                idle = start[item] - over
                if idle < FEWEST_IDLE_NS <= min(least[to, whose], least[whose, to]):
                    left -= 1
                    if left == 0:
                        return False
                n[to, whose] += 1
                least[to, whose] = min(least[to, whose], idle)
                if shared[to, whose]:
                    rows[k, 0], rows[k, 1] = item, last
                    k += 1
            last, whose, over = item, to, max(over, end[item])
            at[one] += 1

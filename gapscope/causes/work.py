"""What ran on the GPUs: copies, kernels that compute, and of communication kernels what is known to be movement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.movements import NCCL, peers, senders
from gapscope.graph import Graph
from gapscope.schema import OP_KIND

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

DEVICE = ["source", "process", "device"]


@dataclass(frozen=True)
class Work:
    """What ran on the GPUs, by number of operation.

    Attributes:
        is_work: Whether an operation is any of it.
        start: When each began to move or compute: of communication kernels, when the last peer had started.
        end: When it ended.
        gpu: GPU of each: a process's device.
        kernels: Operations that compute.
        copies: All others that are work.
        gpus: ``source, process, device, gpu`` of the GPUs with work.
        lanes: One row per stream: ``first, until`` (operations), ``gpu``, ``rank``, ``device``.
    """

    is_work: Bools
    start: Ints
    end: Ints
    gpu: Indices
    kernels: Indices
    copies: Indices
    gpus: pl.DataFrame
    lanes: pl.DataFrame

    def by_lane(self, chosen: Indices | None = None) -> Iterator[tuple[int, Ints, Ints]]:
        """Return GPU, starts and ends of work, stream by stream.

        Args:
            chosen: Operations, ordered; None: all that are work.
        """
        for gpu, first, until in self.lanes.select("gpu", "first", "until").iter_rows():
            if chosen is None:
                mine = first + np.flatnonzero(self.is_work[first:until])
            else:
                mine = chosen[slice(*np.searchsorted(chosen, [first, until]))]
            if len(mine):
                yield gpu, self.start[mine], self.end[mine]


def find_work(graph: Graph) -> Work:
    """Return what ran on the GPUs."""
    items = graph.items
    n, ops = items.n_ops, items.ops
    start, end = items.start[:n].copy(), items.end[:n]
    kinds = OP_KIND.categories.to_list()
    kind = ops["kind"].to_physical().to_numpy()
    names = ops["name"].unique()
    communicating = names.filter(names.cast(pl.String).str.contains(NCCL)).to_physical().to_numpy()
    codes = ops["name"].to_physical().to_numpy()
    of_name = np.zeros(int(codes.max()) + 1 if n else 1, np.bool_)
    of_name[communicating] = True
    is_nccl = of_name[codes]
    is_kernel = kind == kinds.index("kernel")
    is_work = (is_kernel | (kind == kinds.index("memcpy"))) & (end > start)
    known = pl.concat([peers(graph).select("item", "from_ns"), senders(graph)]).filter(pl.col("item") < n)
    known = known.group_by("item").agg(pl.col("from_ns").max())
    item, began = known["item"].to_numpy(), known["from_ns"].to_numpy()
    is_known = np.zeros(n, np.bool_)
    is_known[item] = True
    start[item] = began
    is_work &= ~is_nccl | is_known
    start = np.minimum(start, end)
    lanes = items.lanes.filter(~pl.col("is_host")).drop("is_host", "thread")
    has_work = [bool(is_work[first:until].any()) for first, until in lanes.select("first", "until").iter_rows()]
    gpus = lanes.filter(pl.Series(has_work, dtype=pl.Boolean)).select(DEVICE).unique(maintain_order=True)
    gpus = gpus.with_row_index("gpu").with_columns(pl.col("gpu").cast(pl.Int32))
    lanes = lanes.join(gpus, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")
    lanes = lanes.with_columns(pl.col("gpu").fill_null(-1))
    gpu = np.repeat(lanes["gpu"].to_numpy(), (lanes["until"] - lanes["first"]).to_numpy())
    computes = is_work & is_kernel & ~is_nccl
    return Work(
        is_work, start, end, gpu, np.flatnonzero(computes).astype(np.int32),
        np.flatnonzero(is_work & ~computes).astype(np.int32), gpus, lanes,
    )  # fmt: skip


def window_of_kinds(kind: Indices, length: Ints, kinds: int) -> Ints:
    """Return the window over which overlap with each kind is judged: its median length, at least 1 ns.

    Args:
        kind: Kind of each operation.
        length: Its length.
        kinds: How many kinds there are.
    """
    order, first = by_kind(kind, kinds)
    window = np.ones(kinds, np.int64)
    for number in np.flatnonzero(first[1:] > first[:-1]):
        window[number] = max(1, np.floor(np.median(length[order[first[number] : first[number + 1]]])))
    return window


@nb.njit(cache=True, nogil=True)
def by_kind(kind: Indices, kinds: int) -> tuple[Indices, Ints]:
    """Return row numbers by kind, those of one kind in order, and where each kind begins."""
    first = np.zeros(kinds + 1, np.int64)
    for i in range(len(kind)):
        first[kind[i] + 1] += 1
    for k in range(kinds):
        first[k + 1] += first[k]
    place, order = first.copy(), np.empty(len(kind), np.int32)
    for i in range(len(kind)):
        order[place[kind[i]]] = i
        place[kind[i]] += 1
    return order, first


@nb.njit(cache=True, nogil=True)
def time_of_steps(step: Indices, start: Ints, end: Ints, beside: Ints, steps: int) -> tuple[Ints, Ints, Ints]:
    """Return of each step how many kernels it has, in how much time one ran, and for how long others ran beside them.

    Args:
        step: Step of each kernel.
        start: Start of each kernel.
        end: End of each kernel.
        beside: How long others ran beside each.
        steps: How many steps there are.
    """
    count, length, others = np.zeros(steps, np.int64), np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    order, first = by_kind(step, steps)
    for number in range(steps):
        mine = order[first[number] : first[number + 1]]
        for at in range(1, len(mine)):
            if start[mine[at]] < start[mine[at - 1]]:  # of several streams
                mine = mine[np.argsort(start[mine], kind="mergesort")]
                break
        reached = start[mine[0]] if len(mine) else 0
        for i in mine:
            length[number] += max(0, end[i] - max(start[i], reached))
            reached = max(reached, end[i])
            others[number] += beside[i]
        count[number] = len(mine)
    return count, length, others

"""What ran on the GPUs: copies, kernels that compute, and of communication kernels what is known to be movement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.movements import NCCL, peers, senders
from gapscope.correlation import NONE
from gapscope.graph import Graph
from gapscope.graph.kernels import fixed, leaf
from gapscope.schema import OP_KIND

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

DEVICE = ["source", "process", "device"]

_KERNEL, _COPY = (OP_KIND.categories.to_list().index(kind) for kind in ("kernel", "memcpy"))
_OTHER = -2  # work that does not compute; `NONE` is no work


@dataclass(frozen=True)
class Work:
    """What ran on the GPUs, by number of operation.

    Attributes:
        kind: Kind of each operation that computes, a row of ``kinds``; negative: it does not, `NONE`: it is no work.
        kinds: One row per kind: ``name, rank, device``.
        others: Operations that are other work, ordered.
        start: When each began to move or compute: of communication kernels, when the last peer had started.
        end: When it ended.
        gpus: ``source, process, device, gpu`` of the GPUs with work.
        gpu: GPU (a process's device) of each stream; -1: it has no work.
    """

    kind: Indices
    kinds: pl.DataFrame
    others: Indices
    start: Ints
    end: Ints
    gpus: pl.DataFrame
    gpu: Indices

    def lengths(self, ops: Indices) -> Ints:
        """Return how long operations took."""
        return self.end[ops] - self.start[ops]

    def is_work(self, ops: Ints) -> Bools:
        """Return which operations are work."""
        found: Bools = self.kind[ops] != NONE
        return found


def find_work(graph: Graph) -> Work:
    """Return what ran on the GPUs."""
    items, ops = graph.items, graph.items.ops
    n, streams = items.n_ops, items.lanes.filter(~pl.col("is_host"))
    names = ops["name"].unique()
    name, codes = ops["name"].to_physical().to_numpy(), names.to_physical().to_numpy()
    communicates = names.cast(pl.String).str.contains(NCCL).to_numpy()
    number = np.full(int(codes.max(initial=0)) + 1, NONE, np.int32)
    number[codes[~communicates]] = np.arange(len(codes) - communicates.sum(), dtype=np.int32)
    place = streams.select(pl.struct("rank", "device").rank("dense").cast(pl.Int32) - 1).to_series().to_numpy()
    of_cell = np.full((int(place.max(initial=0)) + 1, len(names)), NONE, np.int32)
    kind, row, has_work = np.empty(n, np.int32), np.empty(of_cell.size, np.int32), np.zeros(len(place), np.bool_)
    sort, ended = ops["kind"].to_physical().to_numpy(), fixed(items.end[:n])
    kinds = _find_kinds(
        sort, name, fixed(items.lane), fixed(items.start), ended, fixed(number), fixed(place), of_cell, kind, row,
        has_work,
    )  # fmt: skip
    start, known = _began(graph)
    others = np.flatnonzero(kind == _OTHER).astype(np.int32)
    is_known = (number[name[others]] != NONE) | np.isin(others, known)
    kind[others[~is_known]], others = NONE, others[is_known]
    has_work[items.lane[others]] = True
    gpus = streams.filter(pl.Series(has_work)).select(DEVICE).unique(maintain_order=True).with_row_index("gpu")
    gpus = gpus.with_columns(pl.col("gpu").cast(pl.Int32))
    gpu = streams.join(gpus, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")["gpu"].fill_null(NONE)
    about = items.ops_at(pl.Series(row[:kinds])).select("name", "rank", "device")
    return Work(fixed(kind), about, others, start, ended, gpus, gpu.to_numpy())


def _began(graph: Graph) -> tuple[Ints, Ints]:
    """Return when operations began to move or compute, and those of which the peers tell it."""
    items, n = graph.items, graph.items.n_ops
    known = pl.concat([peers(graph).select("item", "from_ns"), senders(graph)]).filter(pl.col("item") < n)
    if not known.height:
        return fixed(items.start[:n]), np.zeros(0, np.int64)
    known = known.group_by("item").agg(pl.col("from_ns").max())
    item, start = known["item"].to_numpy(), items.start[:n].copy()
    start[item] = np.minimum(known["from_ns"].to_numpy(), items.end[item])
    return fixed(start), item


@leaf
def _find_kinds(  # noqa: PLR0917 - operations, what is known by name and lane, and room for the answer
    sort: npt.NDArray[np.uint8],
    name: npt.NDArray[np.uint32],
    lane: Indices,
    start: Ints,
    end: Ints,
    number: Indices,
    place: Indices,
    of_cell: npt.NDArray[np.int32],
    kind: Indices,
    row: Indices,
    has_work: Bools,
) -> int:
    """Write down the kind of each operation, a row of each kind, and the streams that compute; return the kinds.

    Kinds are numbered as they come, by the number of their name (-1: it communicates) and the place of their stream.
    """
    kinds = 0
    for op in range(len(kind)):
        kind[op] = NONE
        if end[op] <= start[op] or (sort[op] != _KERNEL and sort[op] != _COPY):
            continue
        if sort[op] == _COPY or number[name[op]] == NONE:
            kind[op] = _OTHER
            continue
        at, which = place[lane[op]], number[name[op]]
        if of_cell[at, which] == NONE:
            of_cell[at, which], row[kinds] = kinds, op
            kinds += 1
        kind[op] = of_cell[at, which]
        has_work[lane[op]] = True
    return kinds


def window_of_kinds(order: Indices, first: Ints, lengths: Callable[[Indices], Ints]) -> Ints:
    """Return the window over which overlap with each kind is judged: its median length, at least 1 ns.

    Args:
        order: See `by_kind`.
        first: See there.
        lengths: Tells how long some of them took.
    """
    window = np.ones(len(first) - 1, np.int64)
    for number in np.flatnonzero(first[1:] > first[:-1]):
        window[number] = max(1, np.floor(np.median(lengths(order[first[number] : first[number + 1]]))))
    return window


def by_kind(kind: Indices, kinds: int) -> tuple[Indices, Ints]:
    """Return row numbers by kind, those of one kind in order, and where each kind begins; negative ones are left out.

    >>> by_kind(np.array([1, 0, -1, 1], np.int32), 2)
    (array([1, 0, 3], dtype=int32), array([0, 1, 3]))
    """
    first, order = np.zeros(kinds + 1, np.int64), np.empty(len(kind), np.int32)
    _order(fixed(kind), first, np.empty(kinds, np.int64), order)
    return order[: first[-1]], first


@leaf
def _order(kind: Indices, first: Ints, place: Ints, order: Indices) -> None:
    for i in range(len(kind)):
        if kind[i] >= 0:
            first[kind[i] + 1] += 1
    for k in range(len(place)):
        place[k] = first[k]
        first[k + 1] += first[k]
    for i in range(len(kind)):
        if kind[i] >= 0:
            order[place[kind[i]]] = i
            place[kind[i]] += 1


def time_of_steps(order: Indices, first: Ints, start: Ints, end: Ints) -> Ints:
    """Return of each step in how much time one of its kernels ran.

    Args:
        order: Kernels by step, see `by_kind`.
        first: See there.
        start: Start of each kernel.
        end: End of each kernel.
    """
    length, in_order = np.zeros(len(first) - 1, np.int64), np.zeros(len(first) - 1, np.bool_)
    _add_up(order, first, start, end, length, in_order)
    several = np.flatnonzero(~in_order)  # their kernels are of several streams
    for number in several:
        mine = order[first[number] : first[number + 1]]
        order[first[number] : first[number + 1]] = mine[np.argsort(start[mine], kind="stable")]
    if len(several):
        _add_up(order, first, start, end, length, in_order)
    return length


@leaf
def _add_up(  # noqa: PLR0917 - kernels and room for the answer
    order: Indices, first: Ints, start: Ints, end: Ints, length: Ints, in_order: Bools
) -> None:
    """Write down the time of those steps whose kernels come in order of their starts, and which these are."""
    for step in range(len(length)):
        length[step], in_order[step] = 0, True
        for at in range(first[step], first[step + 1]):
            i = order[at]
            if at == first[step]:
                reached = start[i]
            elif start[i] < start[order[at - 1]]:
                in_order[step] = False
                break
            length[step] += max(0, end[i] - max(start[i], reached))
            reached = max(reached, end[i])

"""Do operations run slower beside others? Transfers beside other GPU work, kernels and steps beside transfers.

Context, never a tile: an operation that ran slower than its own lonely runs is not thereby what held a gap. Compared
are operations of one kind with each other, as two distributions side by side (`gapscope.causes.groups`).

Three things that would be taken for slowness and are not:

- Waiting. Of communication kernels only what followed the last peer's start is looked at.
- Length itself: what runs longer overlaps more for being longer. So overlap is judged over a window of the same length
  for all of a kind, from each start on: the kind's median. Nothing else in it is *alone*, at least half of it
  *overlapped*; what lies between is in neither group and counted apart.
- Other processes. Only work that an operation's own process put on the same device counts as overlapping: files do not
  say which GPU a device number is, and two processes that take turns on a GPU never run side by side. How long another
  process had the device is `device_sharing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.groups import compared
from gapscope.causes.movements import handoff_movements
from gapscope.causes.overlaps import Others, inside, overlap_of_few
from gapscope.causes.units import step_marks
from gapscope.causes.work import DEVICE, Work, by_kind, find_work, time_of_steps, window_of_kinds
from gapscope.correlation import NONE
from gapscope.events.pairing import KEY
from gapscope.graph import Graph
from gapscope.graph.kernels import fixed, leaf
from gapscope.schema import INTERFERENCE, dtypes

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

LEAST_OVERLAP = 0.5
"""Share of the window that has to be overlapped."""


ALONE, PARTLY, OVERLAPPED = 0, 1, 2


def interference(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return table ``interference``: kinds of operations, alone and beside others.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``; transfers of those that are complete and past start-up are compared.
    """
    work = find_work(graph)
    moved = handoff_movements(graph)
    moves = _moves(graph, moved, handoffs)
    if not moves.height and not len(work.others):
        return pl.DataFrame(schema=dtypes(INTERFERENCE))
    moves = moves.join(work.gpus, on=DEVICE, how="inner", nulls_equal=True, maintain_order="left")
    schema = dtypes(INTERFERENCE)
    found = (_transfers_beside_work(graph, moves, work), *_kernels_beside(graph, moved, work))
    rows = [row for compared_rows in found for row in _compare(compared_rows)]
    return pl.DataFrame([{n: row.get(n) for n in schema} for row in rows], schema=schema)


@dataclass(frozen=True)
class Beside:
    """Operations or steps, and whether others ran beside each.

    Attributes:
        what: ``transfer``, ``kernel`` or ``step``.
        kinds: One row per kind, with the columns that name it; each has some.
        order: Their numbers by kind, see `gapscope.causes.work.by_kind`.
        first: See there.
        lengths: Tells how long some of them took.
        amount: How much of each window others ran in, by number: `ALONE`, `PARTLY` or `OVERLAPPED`.
    """

    what: str
    kinds: pl.DataFrame
    order: Indices
    first: Ints
    lengths: Callable[[Indices], Ints]
    amount: Bytes


def _moves(graph: Graph, moved: pl.DataFrame, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return the movements of complete handoffs past start-up, each with its edge, transport, hop and size class."""
    keys = handoffs.filter(pl.col("steady") & (pl.col("status") == "complete")).select(
        *[k for k in KEY if k not in ("src", "dst")], "transport", "messages", src="src_rank", dst="dst_rank",
        size="size_bytes",
    )  # fmt: skip
    moves = moved.join(keys.filter(pl.col("group").is_null()), on=KEY, nulls_equal=True)
    about = graph.items.ops_at(moves["item"]).select(*DEVICE, "rank", "copy_kind")
    moves = pl.concat([moves, about], how="horizontal")
    # Of several messages without recorded sizes each is taken for an equal part.
    size = pl.coalesce("size_bytes", pl.col("size") // pl.col("messages"))
    return moves.select(
        *DEVICE,
        "item",
        "rank",
        "start_ns",
        "end_ns",
        "transport",
        edge=pl.format("{} → {}", "src", "dst"),
        hop=pl.when("is_nccl")
        .then(pl.lit("nccl"))
        .otherwise(pl.coalesce(pl.col("copy_kind").cast(pl.String), pl.lit("kernel"))),
        # Sizes of a class differ by less than a factor of two.
        size_class=pl.when(size > 0).then(2 ** size.log(2).floor().cast(pl.Int64)),
    )


def _transfers(graph: Graph, moved: pl.DataFrame, work: Work) -> dict[int, Others]:
    """Return what moves bytes from or to each GPU."""
    at = work.others
    here = pl.DataFrame({"group": work.gpu[graph.items.lane[at]], "start_ns": work.start[at], "end_ns": work.end[at]})
    return Others.of(pl.concat([here, _at_peers(graph, moved, work.gpus).select(here.columns)]))


def _at_peers(graph: Graph, moved: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Return copies that another rank's row holds and that write into a GPU here: ``group, start_ns, end_ns``."""
    nothing = pl.DataFrame(schema={"group": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64})
    moves = moved.filter(pl.col("mark") == "submit")
    kinds = graph.items.ops["copy_kind"].gather(moves["item"]).cast(pl.String)
    moves = moves.filter((kinds == "PtoP").fill_null(value=False))
    if not moves.height:
        return nothing
    there = graph.context.deciding_ops.filter(pl.col("mark").is_in(["receive", "consume"]) & pl.col("group").is_null())
    devices = pl.concat(
        [there.select(KEY), graph.items.ops_at(there["item"]).select(DEVICE)], how="horizontal"
    ).unique(KEY, keep="first", maintain_order=True)  # fmt: skip
    found = moves.join(devices, on=KEY, nulls_equal=True).join(gpus, on=DEVICE, nulls_equal=True)
    return found.select("start_ns", "end_ns", group="gpu").select(nothing.columns)


def _transfers_beside_work(graph: Graph, moves: pl.DataFrame, work: Work) -> Beside:
    """Return the movements of handoffs, and whether other copies or kernels ran on their device."""
    columns = ["edge", "transport", "hop", "size_class", "rank", "device"]
    kinds = moves.select(columns).unique(maintain_order=True).with_row_index("kind")
    numbered = moves.join(kinds, on=columns, how="left", nulls_equal=True, maintain_order="left")
    kind = numbered["kind"].to_numpy().astype(np.int32)
    order, first = by_kind(kind, kinds.height)
    start, length = moves["start_ns"].to_numpy(), (moves["end_ns"] - moves["start_ns"]).to_numpy()
    window = window_of_kinds(order, first, length.__getitem__)[kind]
    # What others hold counts, too: a movement that is among them holds itself.
    own = np.where(work.is_work(moves["item"].to_numpy()), np.minimum(length, window), 0)
    beside = np.zeros(len(start), np.int64)
    gpu, of_others = moves["gpu"].to_numpy(), work.gpu[graph.items.lane[work.others]]
    for number in np.unique(gpu):
        mine, others = np.flatnonzero(gpu == number), work.others[of_others == number]
        low, high = start[mine], start[mine] + window[mine]
        beside[mine] += overlap_of_few(low, high, work.start[others], work.end[others], np.zeros(len(others), np.int32))
        for first_op, until in _streams(graph, work, number):
            ops = slice(first_op, until)
            beside[mine] += overlap_of_few(low, high, work.start[ops], work.end[ops], work.kind[ops])
    beside -= own
    amount = np.where(beside == 0, ALONE, np.where(beside >= LEAST_OVERLAP * window, OVERLAPPED, PARTLY))
    return Beside("transfer", kinds.drop("kind"), order, first, length.__getitem__, amount.astype(np.int8))


def _streams(graph: Graph, work: Work, gpu: int) -> Iterator[tuple[int, int]]:
    """Yield from which to before which operation each stream of a GPU goes."""
    streams = graph.items.lanes.filter(~pl.col("is_host")).select("first", "until")
    yield from streams.filter(pl.Series(work.gpu == gpu)).iter_rows()


def _kernels_beside(graph: Graph, moved: pl.DataFrame, work: Work) -> tuple[Beside, Beside]:
    """Return the kernels that compute, and steps of one rank by the time in which their kernels ran.

    Steps with the same number of kernels are taken for the same work. A step ran beside transfers if any of its kernels
    did.
    """
    order, first = by_kind(work.kind, work.kinds.height)
    window = window_of_kinds(order, first, work.lengths)
    step, steps = _steps(graph, work)
    amount, of_step = np.zeros(len(step), np.int8), np.zeros(steps, np.int64)
    for gpu, others in _transfers(graph, moved, work).items():
        for first_op, until in _streams(graph, work, gpu):
            ops = slice(first_op, until)
            _look_beside(
                work.kind[ops], work.start[ops], fixed(step)[ops], amount[ops], fixed(window), others, of_step
            )  # fmt: skip
    kernels = Beside("kernel", work.kinds, order, first, work.lengths, amount)
    order, first = by_kind(step, steps)
    count = first[1:] - first[:-1]
    there = count > 0
    about = graph.items.ops_at(pl.Series(order[first[:-1][there]])).select("rank", "device")
    named = about.select(name=pl.format("steps of {} kernels", pl.Series(count[there])), rank="rank", device="device")
    kinds = named.unique(maintain_order=True).with_row_index("kind")
    kind = named.join(kinds, on=["name", "rank", "device"], how="left", nulls_equal=True, maintain_order="left")["kind"]
    length = time_of_steps(order, first, work.start, work.end)[there]
    amount = np.where(of_step[there] > 0, OVERLAPPED, ALONE).astype(np.int8)
    by = by_kind(kind.to_numpy().astype(np.int32), kinds.height)
    return kernels, Beside("step", kinds.drop("kind"), *by, length.__getitem__, amount)


def _steps(graph: Graph, work: Work) -> tuple[Indices, int]:
    """Return the step of each kernel that computes (-1: of none), and how many there are, some without kernels.

    A mark's kernels on several devices of its process are as many steps.
    """
    streams = graph.items.lanes.filter(~pl.col("is_host"))
    device = streams.select(pl.col("device").rank("dense").over("source", "process").fill_null(0)).to_series()
    of_lane = device.to_numpy().astype(np.int32)
    step = step_marks(graph)
    devices = int(of_lane.max(initial=0)) + 1
    _number_steps(fixed(work.kind), fixed(graph.items.lane), fixed(of_lane), devices, step)
    return step, int(step.max(initial=NONE)) + 1


@leaf
def _number_steps(kind: Indices, lane: Indices, device: Indices, devices: int, step: Indices) -> None:
    """Tell steps on several devices apart, and leave out what does not compute."""
    for op in range(len(step)):
        if kind[op] < 0:
            step[op] = NONE
        elif step[op] != NONE:
            step[op] = step[op] * devices + device[lane[op]]


@leaf
def _look_beside(  # noqa: PLR0917 - kernels, what may run beside them, and room for the answer
    kind: Indices, start: Ints, step: Indices, amount: Bytes, window: Ints, others: Others, of_step: Ints
) -> None:
    """Write down how much of each kernel's window others ran in, and add that to its step."""
    at = (0, 0, 0, 0)
    for k in range(len(kind)):
        if kind[k] < 0:
            continue
        whole = window[kind[k]]
        beside, at = inside(others, at, start[k], start[k] + whole)
        if beside != 0:
            amount[k] = OVERLAPPED if beside >= LEAST_OVERLAP * whole else PARTLY
            if step[k] != NONE:
                of_step[step[k]] += beside


def _compare(rows: Beside) -> Iterator[dict[str, Any]]:
    """Yield one row per kind of which some ran alone and some did not."""
    amount = rows.amount[rows.order]
    some = [np.logical_or.reduceat(amount == which, rows.first[:-1]) for which in (ALONE, OVERLAPPED)]
    kinds = rows.kinds.with_row_index("_kind").filter(pl.Series(some[0] & some[1], dtype=pl.Boolean))
    kinds = kinds.with_columns(pl.col(pl.Categorical()).cast(pl.String))
    for row in kinds.sort(rows.kinds.columns, nulls_last=True).iter_rows(named=True):
        number = row.pop("_kind")
        mine = slice(rows.first[number], rows.first[number + 1])
        one, two = (rows.lengths(rows.order[mine][amount[mine] == which]) for which in (ALONE, OVERLAPPED))
        found = compared(one, two)
        flat = {f"{side}_{n}": v for side in ("alone", "overlapped") for n, v in found.pop(side).items()}
        n = rows.first[number + 1] - rows.first[number]
        yield {"what": rows.what, **row, **flat, **found, "partly_n": int(n) - len(one) - len(two)}


def summarize_interference(table: pl.DataFrame) -> dict[str, Any]:
    """Return ``verdicts`` (kinds per verdict) and ``kinds``: rows of table ``interference``, those that say most first.

    First steps, then transfers, then kernels; of these the slower and faster, then by how much time it is about.
    """
    order = pl.col("verdict").replace_strict(
        {"slower": 0, "faster": 1, "no difference": 2, "too few": 3}, return_dtype=pl.Int8
    )
    what = pl.col("what").replace_strict({"step": 0, "transfer": 1, "kernel": 2}, return_dtype=pl.Int8)
    about = (pl.col("shift_ns").abs() * pl.col("overlapped_n")).fill_null(0)
    rows = table.sort(what, order, -about, "name", "edge", "hop", "size_class", "rank", "device", nulls_last=True)
    counts = table.group_by("verdict").len().sort("len", "verdict", descending=[True, False])
    return {"verdicts": dict(counts.iter_rows()), "kinds": rows.to_dicts()}

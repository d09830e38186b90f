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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.groups import compared
from gapscope.causes.movements import handoff_movements
from gapscope.causes.overlaps import overlap_with
from gapscope.causes.units import step_kernels
from gapscope.causes.work import DEVICE, Work, by_kind, find_work, time_of_steps, window_of_kinds
from gapscope.correlation import NONE
from gapscope.events.pairing import KEY
from gapscope.graph import Graph
from gapscope.schema import INTERFERENCE, dtypes

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

LEAST_OVERLAP = 0.5
"""Share of the window that has to be overlapped."""


def interference(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return table ``interference``: kinds of operations, alone and beside others.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``; transfers of those that are complete and past start-up are compared.
    """
    work = find_work(graph)
    moved = handoff_movements(graph)
    moves = _moves(graph, moved, handoffs)
    if not moves.height and not len(work.copies):
        return pl.DataFrame(schema=dtypes(INTERFERENCE))
    moves = moves.join(work.gpus, on=DEVICE, how="inner", nulls_equal=True, maintain_order="left")
    kernels = _kernels_beside(graph, work, [*work.by_lane(work.copies), *_at_peers(graph, moved, work.gpus)])
    schema = dtypes(INTERFERENCE)
    found = (_transfers_beside_work(moves, work), kernels, _steps_beside(graph, work, kernels))
    rows = [row for compared_rows in found for row in _compare(compared_rows)]
    return pl.DataFrame([{n: row.get(n) for n in schema} for row in rows], schema=schema)


@dataclass(frozen=True)
class Beside:
    """Operations or steps, and how long others ran beside each.

    Attributes:
        what: ``transfer``, ``kernel`` or ``step``.
        kinds: One row per kind, with the columns that name it.
        kind: Kind of each: position in ``kinds``.
        length: How long each took.
        beside: How long others ran in its window.
        is_overlapped: Whether that is much.
    """

    what: str
    kinds: pl.DataFrame
    kind: Indices
    length: Ints
    beside: Ints
    is_overlapped: Bools


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


def _at_peers(graph: Graph, moved: pl.DataFrame, gpus: pl.DataFrame) -> list[tuple[int, Ints, Ints]]:
    """Return, by GPU here, starts and ends of copies that another rank's row holds and that write into it."""
    ops = graph.context.deciding_ops
    if not ops.height:
        return []
    moves = moved.filter(pl.col("mark") == "submit")
    kinds = graph.items.ops[moves["item"]]["copy_kind"].cast(pl.String)
    moves = moves.filter((kinds == "PtoP").fill_null(value=False))
    if not moves.height:
        return []
    there = ops.filter(pl.col("mark").is_in(["receive", "consume"]) & pl.col("group").is_null())
    devices = pl.concat(
        [there.select(KEY), graph.items.ops_at(there["item"]).select(DEVICE)], how="horizontal"
    ).unique(KEY, keep="first", maintain_order=True)  # fmt: skip
    found = moves.join(devices, on=KEY, nulls_equal=True).join(gpus, on=DEVICE, nulls_equal=True)
    return [
        (int(gpu), rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()) for (gpu,), rows in found.group_by("gpu")
    ]


def _transfers_beside_work(moves: pl.DataFrame, work: Work) -> Beside:
    """Return the movements of handoffs, and whether other copies or kernels ran on their device."""
    columns = ["edge", "transport", "hop", "size_class", "rank", "device"]
    kinds = moves.select(columns).unique(maintain_order=True).with_row_index("kind")
    numbered = moves.join(kinds, on=columns, how="left", nulls_equal=True, maintain_order="left")
    kind = numbered["kind"].to_numpy().astype(np.int32)
    start, end = moves["start_ns"].to_numpy(), moves["end_ns"].to_numpy()
    window = window_of_kinds(kind, end - start, kinds.height)[kind]
    beside = overlap_with(moves["gpu"].to_numpy(), start, start + window, work.by_lane())
    # What others hold counts, too: a movement that is among them holds itself.
    beside -= np.where(work.is_work[moves["item"].to_numpy()], np.minimum(end - start, window), 0)
    return Beside("transfer", kinds.drop("kind"), kind, end - start, beside, beside >= LEAST_OVERLAP * window)


def _kernels_beside(graph: Graph, work: Work, transfers: list[tuple[int, Ints, Ints]]) -> Beside:
    """Return the kernels that compute, and whether a transfer ran on their device."""
    kinds, kind = _kinds_of_kernels(graph, work)
    start, length = work.start[work.kernels], work.end[work.kernels] - work.start[work.kernels]
    window = window_of_kinds(kind, length, kinds.height)[kind]
    beside = overlap_with(work.gpu[work.kernels], start, start + window, transfers)
    return Beside("kernel", kinds, kind, length, beside, beside >= LEAST_OVERLAP * window)


def _kinds_of_kernels(graph: Graph, work: Work) -> tuple[pl.DataFrame, Indices]:
    """Return the kinds of kernels (``name, rank, device``), and which each is of."""
    ops, lane = graph.items.ops, graph.items.lane
    lanes = work.lanes.select("rank", "device")
    places = lanes.unique(maintain_order=True).with_row_index("place")
    place = lanes.join(places, on=["rank", "device"], how="left", nulls_equal=True, maintain_order="left")["place"]
    codes = ops["name"].to_physical().to_numpy()
    most = int(codes.max()) + 1 if len(codes) else 1
    numbers = place.to_numpy().astype(np.int64)[lane[work.kernels]] * most + codes[work.kernels]
    is_there = np.zeros(places.height * most, np.bool_)
    is_there[numbers] = True
    row = np.zeros(len(is_there), np.int64)
    row[numbers] = work.kernels  # a row of each kind, whichever
    kind_of = np.cumsum(is_there, dtype=np.int32) - np.int32(1)
    return graph.items.ops_at(pl.Series(row[is_there])).select("name", "rank", "device"), kind_of[numbers]


def _steps_beside(graph: Graph, work: Work, kernels: Beside) -> Beside:
    """Return steps of one rank by the time in which their kernels ran, and whether a transfer ran beside any of them.

    Steps with the same number of kernels are taken for the same work.
    """
    launched = step_kernels(graph)
    mark = np.full(graph.items.n_ops, NONE, np.int32)
    mark[launched["item"].to_numpy()] = launched["mark_id"].to_numpy()
    mark = mark[work.kernels]
    chosen = np.flatnonzero(mark != NONE)
    place = kernels.kinds.select("rank", "device").unique(maintain_order=True).with_row_index("place")
    of_kind = kernels.kinds.join(place, on=["rank", "device"], how="left", nulls_equal=True, maintain_order="left")
    number = of_kind["place"].to_numpy().astype(np.int64)[kernels.kind[chosen]]
    steps, step = np.unique(mark[chosen] * np.int64(max(place.height, 1)) + number, return_inverse=True)
    items = work.kernels[chosen]
    count, length, beside = time_of_steps(
        step.astype(np.int32), work.start[items], work.end[items], kernels.beside[chosen], len(steps)
    )
    about = place[steps % max(place.height, 1)].select("rank", "device")
    named = about.select(name=pl.format("steps of {} kernels", pl.Series(count)), rank="rank", device="device")
    kinds = named.unique(maintain_order=True).with_row_index("kind")
    kind = named.join(kinds, on=["name", "rank", "device"], how="left", nulls_equal=True, maintain_order="left")["kind"]
    return Beside("step", kinds.drop("kind"), kind.to_numpy().astype(np.int32), length, beside, beside > 0)


def _compare(rows: Beside) -> Iterator[dict[str, Any]]:
    """Yield one row per kind of which some ran alone and some did not."""
    n = rows.kinds.height
    is_alone = rows.beside == 0
    alone, overlapped = (np.bincount(rows.kind[is_it], minlength=n) for is_it in (is_alone, rows.is_overlapped))
    both = pl.Series((alone > 0) & (overlapped > 0))
    kinds = rows.kinds.with_row_index("_kind").filter(both).with_columns(pl.col(pl.Categorical()).cast(pl.String))
    order, first = by_kind(rows.kind, n)
    for row in kinds.sort(rows.kinds.columns, nulls_last=True).iter_rows(named=True):
        mine = order[first[row["_kind"]] : first[row["_kind"] + 1]]
        one, two = (rows.length[mine[is_it[mine]]] for is_it in (is_alone, rows.is_overlapped))
        found = compared(one, two)
        flat = {f"{side}_{n}": v for side in ("alone", "overlapped") for n, v in found.pop(side).items()}
        yield {"what": rows.what, **row, **flat, **found, "partly_n": len(mine) - len(one) - len(two)}


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

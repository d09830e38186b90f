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
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.groups import compared
from gapscope.causes.movements import NCCL, handoff_movements, peers, senders
from gapscope.causes.overlaps import overlap
from gapscope.causes.units import step_kernels
from gapscope.events.pairing import KEY
from gapscope.graph import Graph
from gapscope.schema import INTERFERENCE, dtypes

Ints = npt.NDArray[np.int64]

LEAST_OVERLAP = 0.5
"""Share of the window that has to be overlapped."""

_DEVICE = ["source", "process", "device"]


def interference(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return table ``interference``: kinds of operations, alone and beside others.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``; transfers of those that are complete and past start-up are compared.
    """
    work = _work(graph)
    moves = _moves(graph, handoffs)
    if not moves.height and not work.filter(~pl.col("is_kernel")).height:
        return pl.DataFrame(schema=dtypes(INTERFERENCE))
    gpus = work.select(_DEVICE).unique(maintain_order=True).with_row_index("gpu")
    work = work.join(gpus, on=_DEVICE, how="left", nulls_equal=True, maintain_order="left")
    moves = moves.join(gpus, on=_DEVICE, how="inner", nulls_equal=True, maintain_order="left")
    transfers = pl.concat([
        work.filter(~pl.col("is_kernel")).select("gpu", "start_ns", "end_ns"), _at_peers(graph, handoffs, gpus)
    ])  # fmt: skip
    kernels = _kernels_beside(work, transfers)
    rows = [
        *_compare(_transfers_beside_work(moves, work), ["edge", "transport", "hop", "size_class", "rank", "device"]),
        *_compare(kernels, ["name", "rank", "device"]),
        *_compare(_steps_beside(graph, kernels), ["name", "rank", "device"]),
    ]
    schema = dtypes(INTERFERENCE)
    return pl.DataFrame([{n: row.get(n) for n in schema} for row in rows], schema=schema)


def _work(graph: Graph) -> pl.DataFrame:
    """Return copies, kernels that compute, and of communication kernels what is known to be movement."""
    items = graph.items
    start, end = (pl.Series(times[: items.n_ops]) for times in (items.start, items.end))
    ops = items.ops.select(*_DEVICE, "rank", "kind", "name").with_row_index("item")
    ops = ops.with_columns(pl.col("item").cast(pl.Int64), start_ns=start, end_ns=end)
    ops = ops.filter(pl.col("kind").is_in(["kernel", "memcpy"]) & (pl.col("end_ns") > pl.col("start_ns")))
    communicates = ops["name"].unique()
    communicates = communicates.filter(communicates.cast(pl.String).str.contains(NCCL))
    is_nccl = pl.col("name").is_in(communicates.implode())
    ops = ops.with_columns(is_kernel=(pl.col("kind") == "kernel") & ~is_nccl, is_nccl=is_nccl)
    both = pl.concat([peers(graph).select("item", "from_ns"), senders(graph)])
    known = both.group_by("item").agg(pl.col("from_ns").max())
    ops = ops.join(known, on="item", how="left", maintain_order="left")
    ops = ops.filter(~pl.col("is_nccl") | pl.col("from_ns").is_not_null())
    began = pl.min_horizontal(pl.coalesce("from_ns", "start_ns"), "end_ns")
    return ops.with_columns(start_ns=began).drop("from_ns", "kind")


def _moves(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return the movements of complete handoffs past start-up, each with its edge, transport, hop and size class."""
    moves = handoff_movements(graph)
    keys = handoffs.filter(pl.col("steady") & (pl.col("status") == "complete")).select(
        *[k for k in KEY if k not in ("src", "dst")], "transport", "messages", src="src_rank", dst="dst_rank",
        size="size_bytes",
    )  # fmt: skip
    moves = moves.join(keys.filter(pl.col("group").is_null()), on=KEY, nulls_equal=True)
    about = graph.items.ops[moves["item"]].select(*_DEVICE, "rank", "copy_kind")
    moves = pl.concat([moves, about], how="horizontal")
    # Of several messages without recorded sizes each is taken for an equal part.
    size = pl.coalesce("size_bytes", pl.col("size") // pl.col("messages"))
    return moves.select(
        *_DEVICE,
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


def _at_peers(graph: Graph, handoffs: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Return ``gpu, start_ns, end_ns`` of copies that another rank's row holds and that write into a GPU here."""
    ops = graph.context.deciding_ops
    nothing = pl.DataFrame(schema={"gpu": gpus.schema["gpu"], "start_ns": pl.Int64, "end_ns": pl.Int64})
    if not ops.height:
        return nothing
    moves = handoff_movements(graph).filter(pl.col("mark") == "submit")
    kinds = graph.items.ops[moves["item"]]["copy_kind"].cast(pl.String)
    moves = moves.filter((kinds == "PtoP").fill_null(value=False))
    there = ops.filter(pl.col("mark").is_in(["receive", "consume"]) & pl.col("group").is_null())
    devices = pl.concat(
        [there.select(KEY), graph.items.ops[there["item"]].select(_DEVICE)], how="horizontal"
    ).unique(KEY, keep="first", maintain_order=True)  # fmt: skip
    found = moves.join(devices, on=KEY, nulls_equal=True).join(gpus, on=_DEVICE, nulls_equal=True)
    return pl.concat([nothing, found.select(pl.col(n).cast(t) for n, t in nothing.schema.items())])


def _beside(rows: pl.DataFrame, kind: list[str], others: pl.DataFrame, *, holds_itself: bool) -> pl.DataFrame:
    """Add ``beside_ns`` and ``window_ns``: how much of the window after each start others ran in."""
    length = (pl.col("end_ns") - pl.col("start_ns")).median().floor().cast(pl.Int64)
    rows = rows.with_columns(window_ns=pl.max_horizontal(length.over(kind), 1))
    gpu, start, window, end = (rows[c].to_numpy() for c in ("gpu", "start_ns", "window_ns", "end_ns"))
    found = overlap(gpu, start, start + window, others.rename({"gpu": "group"}))
    if holds_itself:
        found = found - np.where(rows["is_among"].to_numpy(), np.minimum(end - start, window), 0)
    return rows.with_columns(beside_ns=pl.Series(found))


def _grouped(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_alone`` and ``is_overlapped``."""
    return rows.with_columns(
        is_alone=pl.col("beside_ns") == 0, is_overlapped=pl.col("beside_ns") >= LEAST_OVERLAP * pl.col("window_ns")
    )


def _transfers_beside_work(moves: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return the movements of handoffs, and whether other copies or kernels ran on their device."""
    moves = moves.with_columns(is_among=pl.col("item").is_in(work["item"].implode()))
    kind = ["edge", "transport", "hop", "size_class", "rank", "device"]
    rows = _beside(moves, kind, work.select("gpu", "start_ns", "end_ns"), holds_itself=True)
    return _grouped(rows).with_columns(what=pl.lit("transfer"), length_ns=pl.col("end_ns") - pl.col("start_ns"))


def _kernels_beside(work: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that compute, and whether a transfer ran on their device."""
    kernels = work.filter("is_kernel")
    rows = _grouped(_beside(kernels, ["name", "rank", "device"], transfers, holds_itself=False))
    return rows.with_columns(what=pl.lit("kernel"), length_ns=pl.col("end_ns") - pl.col("start_ns"))


def _steps_beside(graph: Graph, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return steps of one rank by the time in which their kernels ran, and whether a transfer ran beside any of them.

    Steps with the same number of kernels are taken for the same work.
    """
    rows = kernels.join(step_kernels(graph), on="item", how="inner")
    place = ["mark_id", "rank", "device"]
    rows = rows.sort("start_ns", "item").with_columns(reached=pl.col("end_ns").cum_max().shift().over(place))
    fresh = pl.col("end_ns") - pl.max_horizontal("start_ns", "reached")
    steps = rows.group_by(place, maintain_order=True).agg(
        kernels=pl.len(), length_ns=pl.max_horizontal(fresh, pl.lit(0)).sum(), beside_ns=pl.col("beside_ns").sum()
    )
    return steps.with_columns(
        what=pl.lit("step"),
        name=pl.format("steps of {} kernels", "kernels"),
        is_alone=pl.col("beside_ns") == 0,
        is_overlapped=pl.col("beside_ns") > 0,
    )


def _compare(rows: pl.DataFrame, kind: list[str]) -> Iterator[dict[str, Any]]:
    """Yield one row per kind of which some ran alone and some did not."""
    counted = rows.group_by(kind).agg(pl.col("is_alone", "is_overlapped").any())
    both = counted.filter(pl.col("is_alone") & pl.col("is_overlapped")).select(kind)
    rows = rows.join(both, on=kind, how="semi", nulls_equal=True)
    rows = rows.with_columns(pl.col(pl.Categorical()).cast(pl.String))
    rows = rows.sort(kind, nulls_last=True, maintain_order=True)
    for key, group in rows.group_by(kind, maintain_order=True):
        alone, other = (group.filter(c)["length_ns"].to_numpy() for c in ("is_alone", "is_overlapped"))
        found = compared(alone, other)
        flat = {f"{side}_{n}": v for side in ("alone", "overlapped") for n, v in found.pop(side).items()}
        partly = group.height - len(alone) - len(other)
        yield {"what": group["what"][0], **dict(zip(kind, key, strict=True)), **flat, **found, "partly_n": partly}


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

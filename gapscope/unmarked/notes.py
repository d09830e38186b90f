"""What is to be said about communication without marks, in words."""

from __future__ import annotations

import polars as pl

from gapscope.findings import Finding, plural
from gapscope.trace import Trace

_OPS = {
    "ncclSend": "send", "ncclRecv": "receive", "gloo:send": "send", "gloo:recv": "receive",
    "ncclAllReduce": "all-reduce", "ncclAllGather": "all-gather", "ncclReduceScatter": "reduce-scatter",
    "ncclBroadcast": "broadcast",
}  # fmt: skip
_NCCL = "(?i)nccl|rccl"
_GPU = ["source", "process", "device", "stream"]


def notes_on_unmarked(trace: Trace, sides: pl.DataFrame, alone: pl.DataFrame, *, everything: bool) -> list[Finding]:
    """Return what could not be paired, and how the rest was.

    Args:
        trace: The recordings.
        sides: Columns `gapscope.unmarked.ends.SIDE`.
        alone: ``op, rank, by, n``: collectives without peers.
        everything: All communication was looked at, not declared kernels alone.
    """
    return [
        *_without_ranks(trace),
        *_unpaired(sides),
        *_alone(alone),
        *(_left_out(trace, sides, alone) if everything else []),
        *_partial(sides),
        *_weak(sides),
    ]


def _without_ranks(trace: Trace) -> list[Finding]:
    """Return which processes communicate and have no rank."""
    nameless = trace.processes.filter(pl.col("rank").is_null()).select("source", "process", "pid", "label")
    named = trace.scan("ranges").filter(
        pl.col("name").is_in(list(_OPS)) & pl.col("kind").is_in(["push_pop", "annotation"])
    )
    of_ranges = named.select("source", "process", op=pl.col("name").replace(_OPS))
    recorded = trace.scan("comms").filter(pl.col("op").cast(pl.String) != "coalesced")
    of_records = recorded.filter(pl.col("thread").is_not_null()).select(
        "source", "process", op=pl.col("op").cast(pl.String).replace({"recv": "receive"})
    )
    found = (
        pl.concat([of_ranges, of_records])
        .join(nameless.lazy(), on=["source", "process"])
        .group_by("source", "process", "pid", "label", "op")
        .agg(n=pl.len())
        .sort("source", "process", "op", descending=[False, False, True])
        .collect()
    )
    if not found.height:
        return []
    counts = [plural(n, op) for op, n in found.select("op", "n").iter_rows()]
    # Two files may know processes by the same number.
    each = (
        found.with_columns(counts=pl.Series(counts), pid=pl.coalesce("pid", "process"))
        .group_by("source", "process", "pid", "label", maintain_order=True)
        .agg(pl.col("counts").str.join(", "))
    )
    listed = "; ".join(
        f"{label or 'process'} (pid {pid}): {words}"
        for pid, label, words in each.select("pid", "label", "counts").iter_rows()
    )
    options = " ".join(f"--rank-of {pid}=RANK" for pid in each["pid"].unique(maintain_order=True))
    return [
        Finding(
            "communication_without_ranks",
            "warning",
            f"The rank of {each.height} {'processes' if each.height > 1 else 'process'} that send and receive is not "
            f"known, so nothing is made of it: {listed}.",
            f"The recording does not tell which rank is which. Say so: {options}.",
            count=each.height,
        )
    ]


def _unpaired(sides: pl.DataFrame) -> list[Finding]:
    unsure = sides.filter("is_ambiguous").group_by("rank", "end", "transport").agg(n=pl.len()).sort("rank", "end")
    return [
        Finding(
            "unpaired_communication",
            "warning",
            f"{plural(row['n'], 'send' if row['end'] == 'src' else 'receive')} over {row['transport']} cannot be "
            "paired: no recorded peer or number, and no order that both ranks recorded alike, says which belongs to "
            "which.",
            "They are `ambiguous`. Step marks around each step (`gapscope::step step=3`) let what is complete in both "
            "recordings be paired step by step; handoff marks name each one.",
            rank=row["rank"],
            count=row["n"],
        )
        for row in unsure.iter_rows(named=True)
    ]


def _alone(alone: pl.DataFrame) -> list[Finding]:
    unmet = [
        Finding(
            "no_such_kernel",
            "warning",
            f"--comm-kernel {row['op']}: no kernel of a rank has such a name.",
            "Patterns are searched for anywhere in the name, and upper and lower case differ; (?i) makes them alike.",
        )
        for row in alone.filter(pl.col("n") == 0).iter_rows(named=True)
    ]
    return unmet + [
        Finding(
            "unpaired_collectives",
            "warning",
            f"{plural(row['n'], row['op'] + ' kernel')} without the same one on another rank: no handoff is made of "
            "them.",
            "Name the recordings of all ranks of the group; step marks let what is complete be paired step by step.",
            rank=row["rank"],
            count=row["n"],
        )
        for row in alone.filter(pl.col("n") > 0).iter_rows(named=True)
    ]


def _left_out(trace: Trace, sides: pl.DataFrame, alone: pl.DataFrame) -> list[Finding]:
    """Return how many kernels and copies between ranks are in no handoff, for none of the reasons that are given."""
    ops = trace.scan("ops").filter(pl.col("rank").is_not_null() & pl.col("start_ns").is_not_null())
    peer = (pl.col("copy_kind") == "PtoP").fill_null(value=False)
    moved = ops.filter(pl.col("name").cast(pl.String).str.contains(_NCCL) | peer)
    primary = trace.processes.filter("primary").select("source", "process")
    used = sides.select(*_GPU, start_ns="op_start").drop_nulls("start_ns").unique()
    left = (
        moved.join(primary.lazy(), on=["source", "process"], how="semi")
        .join(used.lazy(), on=[*_GPU, "start_ns"], how="anti", nulls_equal=True)
        .group_by("rank")
        .len()
        .collect()
    )
    told = alone.group_by("rank").agg(told=pl.col("n").sum())
    left = left.join(told, on="rank", how="left").with_columns(n=pl.col("len") - pl.col("told").fill_null(0))
    return [
        Finding(
            "communication_left_out",
            "info",
            f"{plural(row['n'], 'communication operation')} in no handoff without marks: the recording does not tell "
            "with which ranks, or which of several it is.",
            "Handoff marks name the ends of each one.",
            rank=row["rank"],
            count=row["n"],
        )
        for row in left.filter(pl.col("n") > 0).sort("rank").iter_rows(named=True)
    ]


def _partial(sides: pl.DataFrame) -> list[Finding]:
    """Return which collectives have members that are not recorded."""
    rows = sides.filter(pl.col("is_partial").fill_null(value=False) & (pl.col("end") == "both"))
    counts = rows.group_by("job", "group").agg(n=pl.col("seq").n_unique(), ranks=pl.col("rank").unique().sort())
    return [
        Finding(
            "group_not_whole",
            "warning",
            f"{plural(row['n'], 'collective')} of group {row['group']} with recordings of ranks "
            f"{', '.join(map(str, row['ranks']))} alone: which rank was the last to arrive is not known.",
            "Name the recordings of all ranks of the group.",
            count=row["n"],
        )
        for row in counts.sort("job", "group").iter_rows(named=True)
    ]


def _weak(sides: pl.DataFrame) -> list[Finding]:
    """Return how much rests on order alone, and on calls that stand for the work around them."""
    notes = []
    by_order = sides.filter(
        (pl.col("origin") == "order") & (pl.col("evidence") != "declared") & ~pl.col("is_ambiguous")
    ).unique(["job", "src", "dst", "channel", "group", "seq"])
    if by_order.height:
        notes.append(
            Finding(
                "paired_by_order",
                "info",
                f"{plural(by_order.height, 'transfer')} paired by order alone: the recordings name no peer, and the "
                "ranks that communicate are taken for each other's.",
                "Handoff marks name the ends of each one.",
                count=by_order.height,
            )
        )
    unstepped = sides.filter(
        pl.col("step").is_null()
        & (pl.col("evidence") == "inferred")
        & ~pl.col("is_ambiguous")
        & (pl.col("end") != "dst")
    ).unique(["job", "src", "dst", "channel", "group", "seq"])
    if unstepped.height:
        notes.append(
            Finding(
                "paired_without_steps",
                "warning",
                f"{plural(unstepped.height, 'transfer')} paired by their place in the whole recordings: right only if "
                "all ranks recorded the same ones.",
                "`gapscope::step step=3` around each step, one line in the job, lets each step be paired by itself.",
                count=unstepped.height,
            )
        )
    host = sides.filter((pl.col("before_source") == "estimated") & (pl.col("end") == "src"))
    if host.height:
        notes.append(
            Finding(
                "host_bounds",
                "info",
                f"{plural(host.height, 'message')} between hosts without a record of the work around them: producer "
                "and consumer are taken to end and begin with the calls (source `estimated`).",
                "Marks `produce` and `consume` around the stages tell the difference.",
                count=host.height,
            )
        )
    return notes

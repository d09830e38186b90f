"""What is missing from the handoffs, weak or odd, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.events.times import REASONS
from gapscope.findings import Finding, plural
from gapscope.handoffs.status import missing_reasons
from gapscope.schema import EVENTS
from gapscope.trace import Trace

_WORDS = {
    **REASONS,
    "no_mark": "the handoff has no {mark} mark",
    "no_mark_on_edge": "no other handoff of their edge or group has a {mark} mark",
    "rank_not_given": "rank {rank} is not among the recordings",
    "beyond_window": "the rank recorded no {mark} mark there: the handoff lies before or after what it recorded",
}
_HINTS = {
    "no_gpu_record": "Record that rank with CUDA tracing on (nsys -t cuda,nvtx; torch.profiler with "
    "ProfilerActivity.CUDA), or put device=cpu into the marks if the work is on the host.",
    "log_alone": "Record that rank with a profiler (nsys -t cuda,nvtx; torch.profiler with ProfilerActivity.CUDA) or "
    "with times of the device (capture(device_times=True), GAPSCOPE_DEVICE_TIMES=1), or put device=cpu into the "
    "marks if the work is on the host.",
    "before_receive": "Receive before consume begins, or record that rank with a profiler.",
    "no_mark_on_edge": "Put the mark around the code that enqueues that work.",
    "rank_not_given": "Name its file, too.",
    "cut": "Let the job finish writing the file.",
}


def notes_on(frame: pl.DataFrame, trace: Trace) -> list[Finding]:
    """Return the findings about the handoffs.

    Args:
        frame: The handoffs, with the columns that `gapscope.handoffs.build` works with.
        trace: The recordings.
    """
    return [*_missing(frame, trace), *_clocks(frame), *_repeated(frame), *_opaque(frame, trace)]


_LIKELY = r"(?i)(one|two)_?shot|cross_device|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem|symm_?mem"


def note_on_no_marks(trace: Trace) -> Finding:
    """Return what to do where no handoff was found."""
    units = trace.marks.height
    name = pl.col("name").cast(pl.String)
    likely = (
        trace.scan("ops")
        .filter((pl.col("kind") == "kernel") & pl.col("rank").is_not_null())
        .filter(name.str.contains(_LIKELY) & ~name.str.contains("(?i)nccl|rccl"))
        .group_by(name=name.str.extract(r"([A-Za-z_0-9]*(?:" + _LIKELY.removeprefix("(?i)") + r")\w*)", 1), rank="rank")
        .len()
        .group_by("name")
        .len()
        .filter((pl.col("len") > 1) & pl.col("name").is_not_null())
        .sort("name")
        .collect()["name"]
    )
    kernels = (
        f" Kernels of several ranks look like collectives; if they are, --comm-kernel {likely[0]} finds them."
        if len(likely)
        else ""
    )
    return Finding(
        "no_handoff_marks",
        "warning",
        "No handoff marks were found"
        + (f" (only {plural(units, 'step or request mark')})" if units else "")
        + ", and no communication that could be paired between recorded ranks.",
        "Put ranges such as `gapscope::submit src=0 dst=1 seq=7` around the code that enqueues a handoff (NVTX or "
        "torch.profiler.record_function): produce and submit on the source, receive and consume on the destination."
        + kernels,
    )


def _missing(frame: pl.DataFrame, trace: Trace) -> list[Finding]:
    given = trace.processes["rank"].drop_nulls().cast(pl.Int64).implode()
    absent = pl.col("rank").is_not_null() & (pl.col("rank") >= 0) & ~pl.col("rank").is_in(given)
    rows = (
        missing_reasons(frame)
        .with_columns(reason=pl.when(absent).then(pl.lit("rank_not_given")).otherwise("reason"))
        .with_columns(event=pl.when(absent).then(pl.lit("rank")).otherwise("event"))
        .with_columns(mark=pl.when(absent).then(None).otherwise("mark"))
    )
    # One reason for all that a rank's log cannot tell.
    alone = pl.col("reason") == "log_alone"
    rows = rows.with_columns(
        event=pl.when(alone).then(pl.lit("gpu_times")).otherwise("event"),
        mark=pl.when(alone).then(None).otherwise("mark"),
    )
    counts = rows.group_by("event", "mark", "reason", "rank").agg(n=pl.col("handoff").n_unique())
    return [
        Finding(
            f"missing_{row['event']}",
            "info" if row["reason"] in ("beyond_window", "unseen") else "warning",
            f"{plural(row['n'], 'handoff')} without {_what(row)}: "
            f"{_WORDS[row['reason']].format(mark=row['mark'], rank=row['rank'])}.",
            _HINTS.get(row["reason"], ""),
            rank=row["rank"],
            count=row["n"],
        )
        for row in counts.sort("event", "reason", "rank").iter_rows(named=True)
    ]


def _what(row: Mapping[str, Any]) -> str:
    if row["mark"]:
        return str(row["event"])
    return "times of the GPU" if row["event"] == "gpu_times" else "one end"


def _clocks(frame: pl.DataFrame) -> list[Finding]:
    """Return what the order of events says about the clocks of two files, and of violations on one clock."""
    pair = ["src_rank", "dst_rank"]
    backward = pl.min_horizontal(
        pl.col("available_ns") - pl.col("movement_start_ns"), pl.col("consumer_start_ns") - pl.col("producer_finish_ns")
    )
    unbounded = pl.col("gap_uncertainty_ns").is_null()
    cases = (
        (
            "windows_apart",
            pl.col("apart"),
            "{n} from rank {src_rank} to rank {dst_rank} between recordings that were never made at the same time, by "
            "their clocks: no duration between them is given.",
            "Name files of one run; if they are, the clocks of their hosts are far apart.",
        ),
        (
            "clocks_disagree",
            (pl.col("order") == "cannot_tell") & pl.col("aligned") & (backward < 0) & unbounded,
            "{n} from rank {src_rank} to rank {dst_rank} went backward in time, by up to {by_ns:,} ns: the clocks of "
            "the two files disagree by at least that.",
            "No handoff between these two files is counted.",
        ),
        (
            "order_within_uncertainty",
            (pl.col("order") == "cannot_tell") & pl.col("aligned") & (backward < 0) & ~unbounded,
            "{n} from rank {src_rank} to rank {dst_rank} went backward in time by up to {by_ns:,} ns, which is within "
            "the uncertainty of the clocks: their order cannot be told.",
            "They are not counted.",
        ),
        (
            "order_violations",
            pl.col("order") == "violation",
            "{n} from rank {src_rank} to rank {dst_rank} had an event before the one that it needs (the consumer "
            "before the data, or movement before the producer's end).",
            "Check that the marks enclose the code that enqueues the work; if they do, the pipeline has a race.",
        ),
    )
    found = []
    for code, chosen, message, hint in cases:
        rows = frame.filter(chosen).group_by(pair).agg(count=pl.len(), by_ns=-backward.min()).sort(pair)
        found += [
            Finding(code, "warning", message.format(n=plural(r["count"], "handoff"), **r), hint, count=r["count"])
            for r in rows.iter_rows(named=True)
        ]
    return found


def _repeated(frame: pl.DataFrame) -> list[Finding]:
    repeated = frame.filter((pl.col("status") == "ambiguous") & pl.col("origin").is_null()).height
    if not repeated:
        return []
    return [
        Finding(
            "ambiguous_handoffs",
            "warning",
            f"{plural(repeated, 'handoff')} with the same mark, key and slot more than once.",
            "Give each handoff of a pair of ranks its own seq, or each tensor its own slot.",
            count=repeated,
        )
    ]


def _opaque(frame: pl.DataFrame, trace: Trace) -> list[Finding]:
    sources = {e: (pl.col(f"{e}_source") == "estimated").fill_null(value=False) for e in EVENTS}
    # A time of the device from a mark log is no bound of a graph.
    logs = trace.sources.filter(pl.col("tool") == "gapscope")["source"].implode()
    at_source, at_destination = ("producer_finish", "submit", "movement_start"), ("available", "consumer_start")
    by_log = [pl.col("src_source").is_in(logs) & sources[e] for e in at_source]
    by_log += [pl.col("dst_source").is_in(logs) & sources[e] for e in at_destination]
    of_log = pl.any_horizontal(by_log).fill_null(value=False)
    estimated = frame.filter(pl.any_horizontal(sources.values()) & pl.col("origin").is_null())
    timed, opaque = estimated.filter(of_log), estimated.filter(~of_log).height
    early, late = timed.height, timed.filter(sources["producer_finish"] & pl.col("src_source").is_in(logs)).height
    found = []
    if early:
        ended = f" In {late} the source's stream may have been idle when asked, and the producer's end be earlier."
        ended = ended if late else ""
        found.append(
            Finding(
                "device_times",
                "info",
                f"{plural(early, 'handoff')} with times of the device from a mark log: consumer_start is when the "
                "stream was free for the consumer (source `estimated`); its first operation began no earlier, so "
                f"that gaps are lower bounds.{ended}",
                "A profiler records the operation itself.",
                count=early,
            )
        )
    if not opaque:
        return found
    return [
        *found,
        Finding(
            "graph_bounds",
            "warning",
            f"{plural(opaque, 'handoff')} with times from CUDA graphs recorded as one block: they are the graph's "
            "bounds, not those of an operation in it (source `estimated`).",
            "nsys profile --cuda-graph-trace=node records the operations inside.",
            count=opaque,
        ),
    ]

"""The causes of a gap, in one place: what each means, in a sentence."""

from __future__ import annotations

import polars as pl

CAUSES = {
    "late_submission": "the source host had not asked for the transfer yet",
    "submit_call": "host work inside the send call, up to the call that enqueued the transfer or wrote its flag",
    "metadata_wait": "a control message (sizes, objects, tokens) had to arrive first",
    "stream_queueing": "the transfer was enqueued and sat behind other work on its stream",
    "head_of_line": "it sat behind another handoff on the same stream",
    "slot_wait": "the buffer was not free: the consumer had not released an earlier one",
    "late_receive": "the destination host had not launched the receiving operation yet",
    "peer_wait": "a communication kernel ran while a peer had not arrived",
    "movement": "bytes were moving",
    "late_launch": "the receiving operation was launched, and the destination host had not launched the consumer",
    "consumer_busy": "the data was there and the destination's stream was running other work",
    "launch_latency": "launched and ready, not yet started",
    "event_release": "the event it waited for had happened, and it had not started yet",
    "stream_turnaround": "the operation before it on the stream had ended, and it had not started yet",
    "flag_wait": "the memory flag it waited for was written, and it had not started yet",
    "device_sharing": "everything was ready, and another process had the device",
    "schedule": "the data was there, and the schedule had put a stage first whose data came later",
    "upstream_compute": "work of another rank, or of the source once the transfer moved, had to finish first",
    "profiler_overhead": "the profiler's own recorded activity",
    "unexplained": "nothing recorded explains it",
    "unaligned": "the clocks of the ranks cannot be aligned: there is no gap then, and no tile has this cause",
}
"""Cause to what held the gap. `interference` is context and no tile."""

OUTSIDE = {
    "compute": "kernels that ran",
    "transfer": "copies, fills and communication kernels that ran",
    "host": "host time, waits that no record ties to another rank included",
    "latency": "between an operation and what it waited for",
    "unknown": "nothing recorded explains it",
}
"""What the path of a step or request passes outside all gaps (`gapscope.causes.exposure`)."""

CAUSE = pl.Enum(list(CAUSES))

"""Sends and receives of NCCL and RCCL without marks."""

from __future__ import annotations

import polars as pl

from gapscope.comms.p2p import message_ends
from gapscope.comms.pipeline_names import with_pipeline_names
from gapscope.trace import Trace
from gapscope.unmarked.keys import keyed
from gapscope.unmarked.neighbors import with_neighbors


def messages(trace: Trace) -> pl.DataFrame:
    """Return the ends of all messages that NCCL moved, columns `gapscope.unmarked.ends.SIDE`."""
    rows = with_pipeline_names(trace, message_ends(trace)).drop("owner").rename({"group": "communicator"})
    rows = with_neighbors(trace, rows).sort("host_ns", maintain_order=True)
    derived = pl.lit("derived")
    return keyed(
        trace,
        rows.with_columns(
            is_send=pl.col("op") == "send",
            host_end=pl.max_horizontal("host_end", "batch_end"),
            before_source=derived,
            after_source=derived,
            time_source=derived,
            transport=pl.lit("nccl"),
            origin="by",
            evidence=pl.when(pl.col("seq").is_null()).then(pl.lit("inferred")).otherwise(pl.lit("recorded")),
        ),
        separate=["communicator"],
    )

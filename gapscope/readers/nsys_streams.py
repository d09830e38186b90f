"""Streams of an Nsight Systems export: which wait for the legacy default stream of their context, and which do not.

Tables TARGET_INFO_CUDA_STREAM and TARGET_INFO_CUDA_CONTEXT_INFO (its ``nullStreamId``); ``flag`` is CUPTI's
``CUpti_ActivityStreamFlag``, and the export's own ENUM_CUPTI_STREAM_TYPE.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gapscope.readers.nsys_ids import PID_BITS
from gapscope.readers.nsys_raw import Tables
from gapscope.schema import STREAM_KIND, conform

STREAM = "TARGET_INFO_CUDA_STREAM"
CONTEXT = "TARGET_INFO_CUDA_CONTEXT_INFO"
_VM_BITS = 8
_KINDS = {1: "blocking", 2: "non_blocking", 3: "legacy_default"}
_CONTEXT = ["whole", "contextId"]


def read_streams(tables: Tables, numbers: Mapping[int, int]) -> pl.DataFrame:
    """Return the table `streams`.

    Args:
        tables: The stored tables.
        numbers: Number of each process by its whole id.
    """
    who = ("processId", "vmId", "hwId", "contextId")
    streams = tables.read(STREAM, dict.fromkeys((*who, "streamId", "flag"), pl.Int64))
    contexts = tables.read(CONTEXT, dict.fromkeys((*who, "nullStreamId", "deviceId"), pl.Int64))
    whole = (pl.col("hwId").fill_null(0) * (1 << _VM_BITS) + pl.col("vmId").fill_null(0)) * (1 << PID_BITS) + pl.col(
        "processId"
    )
    contexts = (
        contexts.with_columns(whole=whole).drop_nulls(_CONTEXT).unique(_CONTEXT, keep="none", maintain_order=True)
    )
    made = streams.select(
        *_CONTEXT[1:], "streamId", whole=whole, kind=pl.col("flag").replace_strict(_KINDS, default=None)
    )
    null = contexts.select("contextId", "whole", streamId="nullStreamId", kind=pl.lit("legacy_default"))
    every = pl.concat([made, null.select(made.columns)]).drop_nulls(["whole", "contextId", "streamId"])
    # A number that was used again for a stream of another kind says nothing.
    known = every.unique(maintain_order=True).unique([*_CONTEXT, "streamId"], keep="none", maintain_order=True)
    devices = contexts.select(*_CONTEXT, device=pl.col("deviceId").cast(pl.Int32, strict=False))
    known = known.join(devices, on=_CONTEXT, how="left").filter(pl.col("whole").is_in(list(numbers)))
    return conform(
        known.select(
            "device",
            process=pl.col("whole").replace_strict(dict(numbers), return_dtype=pl.Int64),
            context="contextId",
            stream="streamId",
            kind=pl.col("kind").cast(STREAM_KIND),
        ),
        "streams",
    ).sort("process", "context", "stream")

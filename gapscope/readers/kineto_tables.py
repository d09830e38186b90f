"""The normalized tables of one torch.profiler file, from the groups of rows that the scanner kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from gapscope.readers.api_calls import families
from gapscope.readers.kineto_clock import Clock, with_times
from gapscope.readers.kineto_comms import comms_of
from gapscope.readers.kineto_fields import Row
from gapscope.readers.kineto_pids import Processes, find_threads
from gapscope.readers.kineto_rows import TEXT_KEY
from gapscope.schema import COPY_KIND, NAME, OP_KIND, RANGE_KIND, READER_TABLES, SYNC_KIND, conform, empty_reader_table

_OP_KINDS = {Row.KERNEL: "kernel", Row.MEMCPY: "memcpy", Row.MEMSET: "memset"}
_RANGE_KINDS = {Row.ANNOTATION: "annotation", Row.OP: "op", Row.GPU_SPAN: "gpu_span", Row.OVERHEAD: "overhead"}
_SYNC_KINDS = {
    "stream wait event": "stream_wait",
    "event sync": "event_sync",
    "stream sync": "stream_sync",
    "context sync": "device_sync",
    "device sync": "device_sync",
}
_DIRECTION = re.compile(r"\b(HtoD|DtoH|HtoA|AtoH|AtoA|AtoD|DtoA|DtoD|HtoH|PtoP)\b")
_MOST_INT32 = 2**31 - 1
_SORT_FIRST = ("process", "start_ns", "end_ns", "thread", "stream", "correlation")


@dataclass(slots=True)
class Anomalies:
    """Events that are kept with less than they should have, or not at all.

    Attributes:
        untimed: GPU operations that the tool recorded without a time; kept without.
        negative: Events with a negative duration; kept without end, GPU operations without any time.
        alien: Events whose time counts from another zero than the file's; of them only GPU operations are kept, without
            a time.
        alien_dropped: Those of them that are not kept.
        waits: Communication records that only wait for an operation; not kept.
    """

    untimed: int = 0
    negative: int = 0
    alien: int = 0
    alien_dropped: int = 0
    waits: int = 0


@dataclass(slots=True)
class TableBuilder:
    """Builds the tables, one after the other, so that the rows behind each can go."""

    frames: dict[str, pl.DataFrame]
    texts: pl.Series
    processes: Processes
    clock: Clock
    anomalies: Anomalies = field(default_factory=Anomalies)
    calls_in_order: bool = True
    _threads: Mapping[int, int] = field(default_factory=dict)

    def build(self) -> dict[str, pl.DataFrame]:
        """Return the tables of `gapscope.schema.READER_TABLES`; each is in an order of its own, not the file's."""
        threads, self._threads = find_threads(self.frames, self.texts, self.processes)
        calls = self._calls()
        tables = {"processes": self.processes.table, "threads": threads}
        tables["syncs"] = _finished(self._syncs(calls), "syncs")
        tables["calls"] = _finished(calls, "calls")
        del calls
        tables["ranges"] = _finished(self._ranges(), "ranges")
        tables["comms"] = _finished(self._comms(), "comms")
        tables["ops"] = _finished(self._ops(), "ops")
        tables["streams"] = empty_reader_table("streams")  # torch records nothing of how a stream was made
        return {name: tables[name] for name in READER_TABLES}

    def _timed(self, group: str) -> pl.DataFrame:
        """Return a group with its times; what cannot be placed in time is counted and, off the GPU, dropped."""
        frame = with_times(self.frames.pop(group), self.clock)
        if group != "comm_kernels":  # they are counted as operations
            self.anomalies.untimed += int(frame["untimed"].sum())
            self.anomalies.negative += int(frame["negative"].sum())
            self.anomalies.alien += int(frame["alien"].sum())
        if group not in ("ops", "comm_kernels"):
            self.anomalies.alien_dropped += int(frame["alien"].sum())
            frame = frame.filter(~pl.col("alien"))
        return frame

    def _calls(self) -> pl.DataFrame:
        frame = self._timed("calls")
        names = self._names(frame)
        process, thread = self._process(self.processes.host), self._thread()
        frame = frame.with_columns(process, thread, _valid("correlation"), names, families(names))
        backward = pl.col("start_ns").diff().over("process", "thread") < 0  # the rows still stand as in the file
        self.calls_in_order = not frame.select(backward.any()).item()
        return conform(frame, "calls")

    def _syncs(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return recorded synchronizations, and an event record for each call that records an event.

        torch.profiler writes the record of an event only as an API call (from 2026 on also as cuda_event). Which event
        and stream it was is known where a recorded wait names the record, and else null. Such rows have no times, as
        in nsys: the call has them.
        """
        frame = self._timed("syncs")
        is_event = pl.col("row") == Row.EVENT
        untimed = is_event & (pl.col("start_ns") == self.clock.offset_ns)  # before CUDA 12.8 devices gave no time
        by_call = calls.lazy().filter(pl.col("family").is_in(SYNC_KIND.categories.to_list()))
        by_call = by_call.select("process", "correlation", pl.col("family").cast(SYNC_KIND)).drop_nulls()
        of_call = by_call.sort("family").unique(["process", "correlation"], keep="first").collect()
        recorded = frame.with_columns(
            *self._placed(),
            *(_valid(name) for name in ("event", "record_correlation", "wait_on_stream")),
            kind=pl.when(is_event).then(pl.lit("event_record")).otherwise(self._sync_kind(frame)),
            start_ns=pl.when(~untimed).then("start_ns"),
            end_ns=pl.when(~untimed).then("end_ns"),
        ).join(of_call, on=["process", "correlation"], how="left")
        recorded = recorded.with_columns(kind=pl.coalesce("family", pl.col("kind").cast(SYNC_KIND)))
        return pl.concat(
            [
                conform(recorded.drop_nulls("kind"), "syncs"),
                conform(_event_records(of_call, recorded), "syncs"),
            ]
        )

    def _ranges(self) -> pl.DataFrame:
        frame = self._timed("ranges")
        frame = frame.with_columns(device=pl.lit(None, dtype=pl.Int64), stream=self._stream_of_tid(frame["tid"]))
        on_gpu, overhead = pl.col("row") == Row.GPU_SPAN, pl.col("row") == Row.OVERHEAD
        process, device, stream, *_ = self._placed(has_more=False)
        of_other = pl.when(overhead).then(self._process(self.processes.other))
        return frame.with_columns(
            pl.when(on_gpu).then(process).otherwise(of_other.otherwise(self._process(self.processes.host))),
            pl.when(~on_gpu & ~overhead).then(self._thread()).alias("thread"),
            pl.when(on_gpu).then(device),
            pl.when(on_gpu).then(stream),
            pl.col("row").replace_strict(_RANGE_KINDS, return_dtype=RANGE_KIND).alias("kind"),
            self._text(frame["name"]).fill_null("").alias("name"),
        )

    def _comms(self) -> pl.DataFrame:
        host = self._timed("comms")
        named = host.drop_nulls("collective").with_columns(self._process(self.processes.host), self._thread())
        from_host = comms_of(named, self.texts, on_host=True)
        self.anomalies.waits += host.height - from_host.height
        kernels = self._timed("comm_kernels")
        kernels = kernels.with_columns(self._process(self.processes.device), _valid("correlation"))
        parts = [from_host, comms_of(kernels, self.texts, on_host=False)]
        return pl.concat([conform(part, "comms") for part in parts]).with_columns(_valid("external_id"))

    def _ops(self) -> pl.DataFrame:
        frame = self._timed("ops")
        frame = frame.with_columns(stream=pl.coalesce("stream", self._stream_of_tid(frame["tid"])))
        # Every copy names both devices; only between two of them do they tell anything.
        between = (pl.col("row") == Row.MEMCPY) & (pl.col("from") != pl.col("to"))
        ends = {name: pl.col(name.removesuffix("_device")) for name in ("from_device", "to_device")}
        return frame.with_columns(
            *self._placed(),
            *(pl.when(between & c.is_between(0, _MOST_INT32)).then(c).alias(name) for name, c in ends.items()),
            pl.col("row").replace_strict(_OP_KINDS, return_dtype=OP_KIND).alias("kind"),
            self._names(frame),
            pl.when(pl.col("row") != Row.KERNEL).then("bytes").alias("size_bytes"),
            self._copy_kinds(frame).alias("copy_kind"),
            pl.when(pl.col("graph_node") > 0).then("graph_node"),
        )

    def _placed(self, has_more: bool = True) -> list[pl.Expr]:
        """Return where GPU rows belong. The pid of a row that names no device is the device."""
        device = pl.coalesce("device", _mapped("pid", self.processes.numbers))
        device = pl.when(device.is_between(0, _MOST_INT32)).then(device).alias("device")
        more = [_valid("context"), _valid("correlation")] if has_more else []
        return [self._process(self.processes.device), device, _valid("stream"), *more]

    def _stream_of_tid(self, tids: pl.Series) -> pl.Expr:
        """Return the stream that the tid of a GPU row is, a number or a text like ``stream 7``."""
        streams: dict[int, int | None] = {}
        for key in tids.filter(tids <= TEXT_KEY).unique():
            match = re.search(r"(?<![0-9])([0-9]{1,18})\s*$", self.texts[TEXT_KEY - key])
            streams[key] = int(match[1]) if match else None
        return pl.col("tid").replace(streams)

    def _sync_kind(self, frame: pl.DataFrame) -> pl.Series:
        """Return the kind by the tool's own type, which is also the row's name."""
        said = self._text(frame["sync_kind"].zip_with(frame["sync_kind"].is_not_null(), frame["name"]))
        said = said.str.strip_chars().str.to_lowercase()
        return said.replace_strict(_SYNC_KINDS, default=None, return_dtype=pl.String)

    def _process(self, of_pid: Mapping[int, int]) -> pl.Expr:
        return _mapped("pid", of_pid).fill_null(self.processes.main).alias("process")

    def _thread(self) -> pl.Expr:
        return pl.col("tid").replace(dict(self._threads)).alias("thread")

    def _text(self, column: pl.Series) -> pl.Series:
        return self.texts.gather(column.cast(pl.UInt32))

    def _names(self, frame: pl.DataFrame) -> pl.Series:
        """Return the names of rows; kernel names are long, so each distinct one is handled once."""
        ids = frame["name"].unique().sort()
        names = self._text(ids).fill_null("").cast(NAME)
        return names.gather(ids.search_sorted(frame["name"])).alias("name")

    def _copy_kinds(self, frame: pl.DataFrame) -> pl.Series:
        """Return the direction of each copy by its name, or by what ROCm writes beside it."""
        pairs = frame.filter(pl.col("row") == Row.MEMCPY).select("name", "kind")
        known = pairs.unique()
        found = [
            next((m[1] for k in pair if k is not None and (m := _DIRECTION.search(self.texts[k]))), "unknown")
            for pair in known.iter_rows()
        ]
        known = known.with_columns(direction=pl.Series(found, dtype=COPY_KIND))
        return frame.select(pl.when(pl.col("row") == Row.MEMCPY).then("name").alias("name"), "kind").join(
            known, on=["name", "kind"], how="left", nulls_equal=True, maintain_order="left"
        )["direction"]


def _event_records(of_call: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each call that records an event, unless the record itself is in ``recorded``."""
    told = recorded.drop_nulls("record_correlation").group_by("process", "record_correlation")
    where = told.agg(pl.col("event", "device", "context").min(), pl.col("wait_on_stream").min().alias("stream"))
    written = recorded.filter(pl.col("row") == Row.EVENT).select("process", "correlation")
    keys = ["process", "correlation"]
    calls = of_call.filter(pl.col("family") == "event_record").join(written, on=keys, how="anti")
    calls = calls.join(where, left_on=keys, right_on=["process", "record_correlation"], how="left")
    return calls.with_columns(kind=pl.lit("event_record"))


def _mapped(column: str, values: Mapping[int, int | None]) -> pl.Expr:
    if not values:
        return pl.lit(None, dtype=pl.Int64)
    return pl.col(column).replace_strict(list(values), list(values.values()), default=None, return_dtype=pl.Int64)


def _valid(column: str) -> pl.Expr:
    """Return the ids of a column; null where they are one of the numbers that stand for "none": -1, also unsigned."""
    return pl.when((pl.col(column) >= 0) & (pl.col(column) != 2**32 - 1)).then(column)


def _finished(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return the table in its columns and types, in an order that the content alone decides."""
    frame = conform(frame, table)
    keys = [name for name in _SORT_FIRST if name in frame.columns]
    frame = frame.sort(keys, nulls_last=True, maintain_order=True)
    same = frame.select(pl.all_horizontal(pl.col(keys).eq_missing(pl.col(keys).shift())).slice(1).any()).item()
    if same:
        rest = [name for name in frame.columns if name not in keys]
        frame = frame.sort([*keys, *rest], nulls_last=True)
    return frame

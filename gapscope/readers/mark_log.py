"""Reader of the mark log, which the instrumentation writes itself, with no profiler (`*.gslog`).

Marks do not become ranges with text to be parsed again: the reader delivers them as rows of table ``marks``. Only
what the log has in text form (own fields, a job) becomes ranges. Times are of the host's monotonic clock; the log's
anchors, which read it together with Unix time, place them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from gapscope_instrumentation.contract import (
    CONTRACT_VERSION,
    DIRECTIONS,
    HANDOFF_BRACKETS,
    HANDOFF_POINTS,
    LOG_GROUP,
    LOG_HEAD,
    LOG_OPEN,
    LOG_SLOT_BYTES,
    LOG_TEXTS,
    NULL32,
    NULL64,
    PREFIX,
)
from gapscope_instrumentation.contract import MARKS as MARK_NAMES

from gapscope.errors import UnsupportedVersionError
from gapscope.findings import Finding
from gapscope.readers.base import Progress, ReadOptions, SourceInfo, SourceTables
from gapscope.readers.compression import ByteStream
from gapscope.readers.mark_log_clock import LogClock, find_clock
from gapscope.readers.mark_log_slots import DEVICE_TIME, Slots, split_slots
from gapscope.schema import MARKS, READER_TABLES, conform, dtypes, empty_reader_table

_NAME = "gapscope mark log"
_VERSION = 1
_MAGIC = b"gapscope mark log "
_LATEST_NS = 2**62
_KEYED = [MARK_NAMES.index(name) for name in HANDOFF_BRACKETS + HANDOFF_POINTS]
_POINTS = [MARK_NAMES.index(name) for name in HANDOFF_POINTS]
_SAME_BRACKET = ["mark", "thread", "start_ns", "src", "dst", "group", "channel", "seq", "slot", "step"]


class MarkLogReader:
    """Reads mark logs, plain or compressed."""

    name = _NAME
    version = _VERSION

    def sniff(self, path: Path, head: bytes) -> bool:
        """See `gapscope.readers.base.Reader`."""
        return head.startswith(_MAGIC)

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """See `gapscope.readers.base.Reader`.

        Raises:
            UnsupportedVersionError: The log is of another version of the contract.
        """
        stream = ByteStream(path)
        data = b"".join(stream)
        progress(f"reading {path.name}", 0.5)
        _check_version(path, data)
        return _Log(path, data, stream.damage).tables()


MARK_LOG = MarkLogReader()


def _check_version(path: Path, data: bytes) -> None:
    version = data[len(_MAGIC) : LOG_SLOT_BYTES].split(b"\n")[0].strip()
    if not data.startswith(LOG_HEAD) and not LOG_HEAD.startswith(data):
        raise UnsupportedVersionError(
            path,
            f"the mark log is of version {version.decode('ascii', 'backslashreplace')[:20] or '(none)'}, and this "
            f"gapscope reads version {CONTRACT_VERSION}.",
            "Analyze it with the gapscope that wrote it, or record again.",
        )


class _Log:
    """One log, taken apart."""

    def __init__(self, path: Path, data: bytes, damage: str | None) -> None:
        self.path = str(path).encode("utf-8", "backslashreplace").decode()
        body = data[LOG_SLOT_BYTES:]
        self.slots: Slots = split_slots(body)
        self.dropped = dict(self.slots.dropped)
        self.findings: list[Finding] = []
        if len(data) < LOG_SLOT_BYTES or len(body) % LOG_SLOT_BYTES or damage is not None:
            self._drop("damaged", 1)
        self.about = self._process_records()
        self.notes = self._notes()
        self.clock: LogClock = find_clock(self.slots.anchors, self._first_ns())
        self.damage = damage

    def tables(self) -> SourceTables:
        """Return what a reader delivers."""
        process = self._pid() or 0
        words = self._words()
        marks, ranges = self._marks(words).with_columns(process=process), self._text_marks()
        ranges = ranges.with_columns(process=pl.lit(process, dtype=pl.Int64))
        tables = {name: empty_reader_table(name).lazy() for name in READER_TABLES}
        tables["ranges"] = conform(ranges, "ranges").lazy()
        rank = self._number("rank")
        who = {"process": process, "pid": self._pid(), "file_rank": rank}
        tables["processes"] = conform(pl.DataFrame([who], infer_schema_length=None), "processes").lazy()
        self._say_what_was_found()
        times = pl.concat([marks.select("start_ns", "end_ns"), ranges.select("start_ns", "end_ns")])
        windows = times.select(
            process=pl.lit(process, dtype=pl.Int64),
            window_start_ns=pl.col("start_ns").min(),
            window_end_ns=pl.max_horizontal(pl.col("start_ns").max(), pl.col("end_ns").max()),
            n_ops=pl.lit(0, dtype=pl.Int64),
        )
        own = marks.select(pl.col(n).cast(t) for n, t in dtypes(MARKS).items())
        return SourceTables(self._info(), tables, tuple(self.findings), windows, own_marks=own)

    def _info(self) -> SourceInfo:
        clock, gpu = self.clock, self.about.get("gpu")
        gpu = gpu if isinstance(gpu, dict) else {}
        device = gpu.get("device")
        return SourceInfo(
            path=self.path,
            format=_NAME,
            tool="gapscope",
            schema_version=str(CONTRACT_VERSION),
            host=self._text("host"),
            boot_id=self._text("boot_id"),
            clock="relative" if clock.epoch_ns is None else "unix",
            clock_origin=clock.origin,
            epoch_ns=clock.epoch_ns,
            system_clock_ns=clock.system_clock_ns if clock.system_clock_ns > 0 else None,
            claim_error_ns=clock.error_ns,
            gpu_device=device if isinstance(device, int) and 0 <= device < 1 << 16 else None,
            truncated="damaged" in self.dropped,
            events=self.slots.total,
            dropped=self.dropped,
            marks_cost=self._cost(),
        )

    # Marks -----------------------------------------------------------------------------------------------------

    def _marks(self, words: pl.DataFrame) -> pl.DataFrame:
        """Return the marks in the columns of table ``marks`` but ``process``, brackets that closed later once."""
        raw = self.slots.marks
        device = pl.col("type") == DEVICE_TIME
        end = pl.when(pl.col("end_ns") != NULL64).then("end_ns")
        error = pl.when(pl.col("error_ns") != NULL64).then("error_ns")
        known = pl.col("mark") < len(MARK_NAMES)
        possible = pl.col("start_ns").is_between(0, _LATEST_NS) & (
            device | end.is_null() | end.is_between(pl.col("start_ns"), _LATEST_NS)
        )
        of_device = pl.col("mark").is_in(_POINTS) & error.is_between(0, _LATEST_NS).fill_null(value=False)
        good = known & possible & (~device | of_device)
        self._drop("unknown_mark", raw.filter(~known).height)
        self._drop("damaged", raw.filter(known & ~good).height)
        frame = raw.filter(good).with_columns(end_ns=end, error_ns=error.cast(pl.Int64))
        frame = self._with_words(frame, words)
        names = pl.Series(MARK_NAMES)
        shift = self.clock.shift_ns
        frame = frame.with_columns(
            is_open=(pl.col("flags") & LOG_OPEN != 0) & pl.col("end_ns").is_null(),
            asked_ns=pl.when(device & pl.col("end_ns").is_between(0, _LATEST_NS)).then("end_ns"),
            end_ns=pl.when(device).then("start_ns").otherwise("end_ns"),
            error_ns=pl.when(device).then("error_ns"),
        )
        frame = _without_closed_later(frame, _SAME_BRACKET)
        return frame.select(
            source=pl.lit(None, dtype=pl.Int32),
            process=pl.lit(None, dtype=pl.Int64),
            rank=pl.lit(None, dtype=pl.Int32),
            thread="thread",
            mark=names.gather(frame["mark"]),
            job=pl.lit(None, dtype=pl.String),
            src="src",
            dst="dst",
            channel="channel",
            seq="seq",
            group="group",
            slot="slot",
            step="step",
            mb="mb",
            size_bytes=pl.when(pl.col("bytes") >= 0).then("bytes"),
            dir="dir",
            src_stage="src_stage",
            dst_stage="dst_stage",
            kind="kind",
            transport="transport",
            device="device",
            name="name",
            stated_rank=pl.lit(None, dtype=pl.Int64),
            fields=pl.lit(None, dtype=pl.String),
            start_ns=pl.col("start_ns") + shift,
            end_ns=pl.col("end_ns") + shift,
            error_ns="error_ns",
            asked_ns=pl.col("asked_ns") + shift,
            form=pl.lit("log"),
            text=(PREFIX + names).gather(frame["mark"]),
        )

    def _with_words(self, frame: pl.DataFrame, words: pl.DataFrame) -> pl.DataFrame:
        """Return marks with words in the place of their numbers and null in the place of the least values."""
        number, text = words["number"], words["text"]

        def word(column: str) -> pl.Expr:
            return pl.col(column).cast(pl.Int64).replace_strict(number, text, default=None, return_dtype=pl.String)

        is_group = pl.col("flags") & LOG_GROUP != 0
        named = ("kind", "transport", "name", "device")
        unknown = [(pl.col(c) > 0) & word(c).is_null() for c in named]
        without_word = frame.select(pl.sum_horizontal(u.cast(pl.Int64) for u in unknown).sum()).item()
        self._drop("unknown_word", int(without_word or 0))
        small = {
            c: pl.when(pl.col(c) != NULL32).then(pl.col(c).cast(pl.Int64)) for c in ("mb", "src_stage", "dst_stage")
        }
        ends = {c: pl.when((pl.col(c) != NULL32) & ~is_group).then(pl.col(c).cast(pl.Int64)) for c in ("src", "dst")}
        large = {c: pl.when(pl.col(c) != NULL64).then(c) for c in ("seq", "step", "bytes")}
        directions = pl.Series([None, *DIRECTIONS[1:]], dtype=pl.String)
        frame = frame.with_columns(
            **small, **ends, **large,
            group=pl.when(is_group).then(word("src")),
            **{c: word(c) for c in named},
            dir=pl.col("dir").cast(pl.Int64).replace_strict(
                pl.Series(range(len(DIRECTIONS))), directions, default=None, return_dtype=pl.String
            ),
        )  # fmt: skip
        pair = pl.col("src").is_not_null() & pl.col("dst").is_not_null()
        keyed = pl.col("seq").is_not_null() & (pair | pl.col("group").is_not_null())
        usable = keyed | ~pl.col("mark").is_in(_KEYED)
        self._drop("without_key", frame.filter(~usable).height)
        return frame.filter(usable)

    def _text_marks(self) -> pl.DataFrame:
        """Return marks in text form as ranges."""
        frame = self._texts("mark").with_columns(end_ns=pl.when(pl.col("end_ns") != NULL64).then("end_ns"))
        frame = frame.with_columns(is_open=(pl.col("flags") & LOG_OPEN != 0) & pl.col("end_ns").is_null())
        possible = pl.col("start_ns").is_between(0, _LATEST_NS)
        possible &= pl.col("end_ns").is_null() | pl.col("end_ns").is_between(pl.col("start_ns"), _LATEST_NS)
        self._drop("damaged", frame.filter(~possible).height)
        frame = _without_closed_later(frame.filter(possible), ["text", "thread", "start_ns"])
        name = pl.col("text").str.strip_prefix(PREFIX).str.extract(r"^(\S+)", 1)
        shift = self.clock.shift_ns
        return frame.select(
            thread="thread",
            start_ns=pl.col("start_ns") + shift,
            end_ns=pl.col("end_ns") + shift,
            kind=pl.when(name.is_in(HANDOFF_POINTS)).then(pl.lit("instant")).otherwise(pl.lit("start_end")),
            name="text",
        ).sort("start_ns", "end_ns")

    def _first_ns(self) -> int:
        """Return the first time of any mark, on the host's monotonic clock."""
        starts = pl.concat([self.slots.marks["start_ns"], self._texts("mark")["start_ns"]])
        first = starts.filter(starts.is_between(0, _LATEST_NS)).min()
        return first if isinstance(first, int) else 0

    # Texts -----------------------------------------------------------------------------------------------------

    def _texts(self, what: str) -> pl.DataFrame:
        return self.slots.texts.filter(pl.col("what") == LOG_TEXTS.index(what))

    def _words(self) -> pl.DataFrame:
        found = self._texts("word").select(number="thread", text="text")
        return found.unique("number", keep="first", maintain_order=True)

    def _objects(self, what: str) -> list[dict[str, Any]]:
        """Return the JSON objects of one kind; what is none is counted."""
        found = []
        for text in self._texts(what)["text"]:
            try:
                value = json.loads(text)
            except ValueError:
                value = None
            if isinstance(value, dict):
                found.append(value)
            else:
                self._drop("damaged", 1)
        return found

    def _process_records(self) -> dict[str, Any]:
        """Return what the log says about its process; a later record completes an earlier one."""
        about: dict[str, Any] = {}
        for record in self._objects("process"):
            about.update((k, v) for k, v in record.items() if v is not None)
        return about

    def _notes(self) -> list[dict[str, Any]]:
        return [note for note in self._objects("note") if isinstance(note.get("note"), str)]

    def _text(self, key: str) -> str | None:
        value = self.about.get(key)
        return value if isinstance(value, str) and value else None

    def _number(self, key: str) -> int | None:
        value = self.about.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None

    def _pid(self) -> int | None:
        return self._number("pid")

    def _cost(self) -> dict[str, int]:
        """Return what the marks cost: ``brackets`` timed, median ``begin_ns`` and ``end_ns``; empty: not said."""
        wanted = ("brackets", "begin_ns", "end_ns")
        for note in reversed(self.notes):
            values = [note.get(key) for key in wanted]
            if note["note"] == "cost" and all(isinstance(v, int) and v >= 0 for v in values) and note["brackets"]:
                return {key: note[key] for key in wanted}
        return {}

    # What was found --------------------------------------------------------------------------------------------

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def _say_what_was_found(self) -> None:
        self.findings += self.clock.findings(self.path)
        self.findings += [finding for finding in (self._captured(), self._lost_times()) if finding is not None]
        words = {
            "damaged": "{n} slots of the log are damaged or cut off",
            "unknown_type": "{n} slots of the log are of an unknown type",
            "unknown_mark": "{n} marks of the log have an unknown name",
            "unknown_word": "{n} fields of the log stand for a word that it does not define",
            "without_key": "{n} marks of the log have no key",
        }
        for reason, text in words.items():
            if n := self.dropped.get(reason):
                more = f" ({self.damage})" if reason == "damaged" and self.damage else ""
                self.findings.append(
                    Finding(
                        f"log_{reason}",
                        "warning",
                        text.format(n=f"{n:,}") + more + ("; all others were read." if self.slots.total else "."),
                        "The job was killed while it wrote, or the file was copied before it was closed."
                        if reason == "damaged"
                        else "",
                        path=self.path,
                        count=n,
                    )
                )

    def _lost_times(self) -> Finding | None:
        counts = [note.get("count") for note in self.notes if note["note"] == "device_times_lost"]
        lost = sum(count for count in counts if isinstance(count, int))
        if not lost:
            return None
        return Finding(
            "device_times_lost",
            "warning",
            f"{lost:,} times of the device were lost: not there yet when the log was closed, or too many at once.",
            "End the capture after the device is idle (torch.cuda.synchronize()).",
            path=self.path,
            count=lost,
        )

    def _captured(self) -> Finding | None:
        marks = sorted({str(n.get("mark")) for n in self.notes if n["note"] == "captured"})
        if not marks:
            return None
        return Finding(
            "marks_while_capturing",
            "warning",
            f"Marks ({', '.join(marks)}) were called while a CUDA graph was captured: what is captured does not run "
            "then, so they were left out.",
            "Mark around the replay of the graph.",
            path=self.path,
            count=len(marks),
        )


def _without_closed_later(frame: pl.DataFrame, same: list[str]) -> pl.DataFrame:
    """Leave out brackets that were written while open where they were written again when they closed."""
    if not frame["is_open"].any():
        return frame
    rows = frame.with_row_index("_row")
    still = rows.filter("is_open").unique(same, keep="first", maintain_order=True)
    still = still.join(rows.filter(~pl.col("is_open")), on=same, how="anti", nulls_equal=True)
    kept = ~pl.col("is_open") | pl.col("_row").is_in(still["_row"].implode())
    return rows.filter(kept).drop("_row")

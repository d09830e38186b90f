"""Perfetto's trace format: tracks, and the slices and instants on them.

The fields are those of Perfetto's ``protos/perfetto/trace``. All events are of one sequence, in order of time: texts
are interned, and times are written as what has passed since the packet before, on a clock of that sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.exports.protobuf import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    Bytes,
    Ints,
    Rows,
    annotated,
    field,
    put_varint,
    varint_size,
)
from gapscope.exports.stacking import NEVER, Indices, stack_up
from gapscope.loops import loop

_SEQUENCE, _OF_TRACKS = 1, 2  # apart, or events that are of no thread would be taken for the last thread's
_CLEARED, _NEEDS_STATE = 1, 2
_REALTIME, _BOOTTIME, _INCREMENTAL = 1, 6, 64  # clocks; 64 is the first of those that a sequence defines itself
_BEGIN, _END, _INSTANT = 1, 2, 3
_EXPLICIT_ORDER = 3
_BY_KEY = 3  # SiblingMergeBehavior
_CHUNK = 1 << 20  # events written at a time


@dataclass(frozen=True)
class Track:
    """One line of the trace, or a group of such.

    Attributes:
        name: What it is.
        parent: Number of the track that it is beneath; None: beneath none.
        pid: It is the track of a process with that id.
        tid: It is the track of a thread of its parent with that id.
        order: Place among those beneath the same track.
        about: What it shows, in a sentence; None: its name says it.
        beside: Number of the track that it is shown in one with; None: of none, even if one has the same name.
    """

    name: str
    parent: int | None = None
    pid: int | None = None
    tid: int | None = None
    order: int = 0
    about: str | None = None
    beside: int | None = None


@dataclass
class Packets:
    """A trace in the making.

    Attributes:
        tracks: Its tracks; the number of a track is its position here and its uuid less 1.
    """

    tracks: list[Track] = default(default_factory=list)
    _texts: dict[int, dict[str, int]] = default(default_factory=dict)
    _batches: list[_Batch] = default(default_factory=list)

    def track(self, track: Track) -> int:
        """Add a track; return its number."""
        self.tracks.append(track)
        return len(self.tracks) - 1

    def beside(self, lanes: Indices, of_lane: Sequence[int], split: Indices) -> Ints:
        """Return the number of each slice's track, with tracks added for what crosses.

        Args:
            lanes: Lane of each slice.
            of_lane: Number of each lane's track.
            split: Track of each slice within its lane (`stack_up`).
        """
        number = np.asarray(of_lane, np.int64)[lanes] if len(lanes) else np.empty(0, np.int64)
        aside = np.flatnonzero(split)
        if not len(aside):
            return number
        key = lanes[aside].astype(np.int64) << 32 | split[aside]
        added, which = np.unique(key, return_inverse=True)
        numbers = []
        for one in added.tolist():
            base = of_lane[one >> 32]
            first = self.tracks[base]
            # What crosses on a thread is beneath the thread's track, which can hold only what nests.
            parent = base if first.tid is not None else first.parent
            numbers.append(self.track(Track(first.name, parent, order=first.order, beside=base)))
        number[aside] = np.asarray(numbers, np.int64)[which]
        return number

    def slices(
        self,
        rows: pl.DataFrame,
        of_lane: Sequence[int],
        annotations: Sequence[str] = (),
        flows: Rows | None = None,
        *,
        nested: bool = True,
    ) -> None:
        """Add slices.

        Args:
            rows: ``on`` (number of a lane), ``start_ns, end_ns`` (null: it never closed), ``name, category``; by lane,
                start, and longest first.
            of_lane: Number of each lane's track.
            annotations: More columns of ``rows``, shown with a slice where they are not null.
            flows: Flows that pass each slice.
            nested: See `stack_up`.
        """
        lane = rows["on"].to_numpy().astype(np.int32)
        start, end = (rows[c].fill_null(NEVER).to_numpy() for c in ("start_ns", "end_ns"))
        split, turns = stack_up(_fixed(lane), _fixed(start), _fixed(end), nested)
        number = self.beside(lane, of_lane, split)
        which, ends = turns >> 1, (turns & 1).astype(np.bool_)
        at = np.where(ends, end[which], start[which])
        moments = _Moments(which, np.where(ends, _END, _BEGIN).astype(np.uint8), at)
        self._add(rows, number, moments, self._annotated([rows[c] for c in annotations], rows.height, flows))

    def instants(
        self, rows: pl.DataFrame, of_lane: Sequence[int], annotations: Sequence[str] = (), flows: Rows | None = None
    ) -> None:
        """Add moments; those of the same time stay in the order in which they are given.

        Args:
            rows: ``on`` (number of a lane), ``start_ns, name, category``.
            of_lane: Number of each lane's track.
            annotations: As for `slices`.
            flows: As for `slices`.
        """
        number = np.asarray(of_lane, np.int64)[rows["on"].to_numpy()] if rows.height else np.empty(0, np.int64)
        which = np.arange(rows.height, dtype=np.int64)
        moments = _Moments(which, np.full(rows.height, _INSTANT, np.uint8), rows["start_ns"].to_numpy())
        self._add(rows, number, moments, self._annotated([rows[c] for c in annotations], rows.height, flows))

    @property
    def counts(self) -> tuple[int, int]:
        """Number of slices and of instants."""
        kinds = [batch.moments.kind for batch in self._batches]
        return sum(int((k == _BEGIN).sum()) for k in kinds), sum(int((k == _INSTANT).sum()) for k in kinds)

    @property
    def begin_ns(self) -> int:
        """The first moment; 0 if there is none."""
        return min((int(b.moments.at_ns.min()) for b in self._batches if len(b.moments.at_ns)), default=0)

    def written(self, *, unix: bool, shift_ns: int = 0) -> Iterator[bytes]:
        """Return the trace, piece by piece.

        Args:
            unix: Its times are Unix time; else their zero is unknown.
            shift_ns: Added to all times; the trace cannot hold any below zero.
        """
        batches = self._batches
        first_row = np.cumsum([0] + [len(b.events.track) for b in batches])
        moments = _Moments(
            _stacked([b.moments.which + first for b, first in zip(batches, first_row, strict=False)]),
            _stacked([b.moments.kind for b in batches]),
            _stacked([b.moments.at_ns for b in batches]),
        )
        order = np.argsort(moments.at_ns, kind="stable")
        moments = _Moments(moments.which[order], moments.kind[order], moments.at_ns[order])
        events = _Events(*(_stacked([b.events[k] for b in batches]) for k in range(len(_Events._fields))))
        body = _joined([b.body for b in batches])
        begin = int(moments.at_ns[0]) if len(order) else 0
        yield self._head(begin + shift_ns, unix=unix and not shift_ns)
        passed = np.diff(moments.at_ns, prepend=begin)
        for first in range(0, len(order), _CHUNK):
            part = slice(first, first + _CHUNK)
            which, kind = moments.which[part], moments.kind[part]
            size = _put_events((passed[part], which, kind), events, body, np.empty(0, np.uint8))
            out = np.empty(size, np.uint8)
            _put_events((passed[part], which, kind), events, body, out)
            yield out.tobytes()

    def _add(self, rows: pl.DataFrame, track: Ints, moments: _Moments, body: Rows) -> None:
        if rows.height:
            name, category = self._interned(_EVENT_NAMES, rows["name"]), self._interned(_CATEGORIES, rows["category"])
            self._batches.append(_Batch(_Events(track + 1, name, category), body, moments))

    def _annotated(self, columns: Sequence[pl.Series], rows: int, flows: Rows | None) -> Rows:
        values, present = np.zeros((rows, len(columns)), np.int64), np.zeros((rows, len(columns)), np.bool_)
        names, kinds = np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64)
        for k, column in enumerate(columns):
            present[:, k] = column.is_not_null().to_numpy()
            names[k] = self._number(_ANNOTATION_NAMES, column.name)
            kinds[k], values[:, k] = self._encoded(column)
        return annotated(names, kinds, values, present, flows)

    def _encoded(self, column: pl.Series) -> tuple[int, Ints]:
        if column.dtype == pl.Boolean:
            return BOOL, column.fill_null(value=False).cast(pl.Int64).to_numpy()
        if column.dtype.is_integer():
            return INT, column.fill_null(0).cast(pl.Int64).to_numpy()
        if column.dtype.is_float():
            return DOUBLE, column.fill_null(0.0).to_numpy().astype(np.float64).view(np.int64)
        return STRING, self._interned(_ANNOTATION_TEXTS, column)

    def _interned(self, table: int, column: pl.Series) -> Ints:
        """Return the interned numbers of texts; 0 for null."""
        column = column.cast(pl.String).cast(pl.Categorical) if column.dtype != pl.Categorical else column
        different = column.drop_nulls().unique()
        codes = different.to_physical().to_numpy()
        numbers = np.zeros(int(codes.max()) + 2 if len(codes) else 1, np.int64)
        numbers[codes] = [self._number(table, text) for text in different.cast(pl.String)]
        which = column.to_physical().cast(pl.Int64).fill_null(len(numbers) - 1).to_numpy()
        return np.asarray(numbers[which], np.int64)

    def _number(self, table: int, text: str) -> int:
        texts = self._texts.setdefault(table, {})
        return texts.setdefault(text, len(texts) + 1)

    def _head(self, begin_ns: int, *, unix: bool) -> bytes:
        """Return the packets before all events: clocks, texts and tracks."""
        clocks = [(_BOOTTIME, False), (_INCREMENTAL, True)] + ([(_REALTIME, False)] if unix else [])
        snapshot = b"".join(
            field(1, field(1, clock) + field(2, begin_ns) + (field(3, 1) if steps else b"")) for clock, steps in clocks
        )
        texts = b"".join(
            field(table, field(1, number) + field(2, text))
            for table, entries in self._texts.items()
            for text, number in entries.items()
        )
        packets = [
            field(6, snapshot + field(2, _BOOTTIME)) + field(13, _CLEARED) + field(87, 1),
            field(59, field(58, _INCREMENTAL)) + field(12, texts) + field(13, _NEEDS_STATE),
        ]
        tracks = [field(60, _descriptor(n, self.tracks)) for n in range(len(self.tracks))]
        return b"".join(field(1, p + field(10, _OF_TRACKS)) for p in tracks) + b"".join(
            field(1, p + field(10, _SEQUENCE)) for p in packets
        )


_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_TEXTS = 1, 2, 3, 29  # fields of InternedData


class _Events(NamedTuple):
    """Slices and instants: uuid of the track, interned name and category."""

    track: Ints
    name: Ints
    category: Ints


class _Moments(NamedTuple):
    """When what begins, ends or happens: row of `_Events`, type, and time."""

    which: Ints
    kind: Bytes
    at_ns: Ints


class _Batch(NamedTuple):
    events: _Events
    body: Rows
    moments: _Moments


def flows_of(rows: int, row: Ints, flow: Ints) -> Rows:
    """Return the flows that pass each of some rows.

    Args:
        rows: Number of rows.
        row: Row of each passage.
        flow: Its flow.
    """
    order = np.argsort(row, kind="stable")
    begin = np.zeros(rows + 1, np.int64)
    np.cumsum(8 * np.bincount(row, minlength=rows), out=begin[1:])
    return Rows(flow[order].astype("<i8").view(np.uint8), begin)


def _descriptor(number: int, tracks: Sequence[Track]) -> bytes:
    track = tracks[number]
    out = field(1, number + 1)
    if track.parent is not None:
        out += field(5, track.parent + 1)
    if track.pid is not None:
        out += field(3, field(1, track.pid) + field(6, track.name))
    elif track.tid is not None and track.parent is not None:
        out += field(4, field(1, tracks[track.parent].pid or 0) + field(2, track.tid) + field(5, track.name))
    else:
        together = number if track.beside is None else track.beside
        out += field(2, track.name) + field(15, _BY_KEY) + field(17, together + 1)
    if track.about:
        out += field(14, track.about)
    return out + field(11, _EXPLICIT_ORDER) + field(12, track.order)


def _stacked(parts: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays of one kind
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _joined(parts: Sequence[Rows]) -> Rows:
    begin, base = [np.zeros(1, np.int64)], 0
    for part in parts:
        begin.append(part.begin[1:] + base)
        base += int(part.begin[-1])
    return Rows(np.concatenate([np.empty(0, np.uint8), *(p.data for p in parts)]), np.concatenate(begin))


def _fixed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = np.ascontiguousarray(values).view()
    values.flags.writeable = False
    return values


@loop
def _put_events(moments: tuple[Ints, Ints, Bytes], events: _Events, body: Rows, out: Bytes) -> int:
    """Write track events; into an empty array: only find how many bytes they take. Return that number."""
    passed, which, kind = moments
    at = 0
    for k in range(len(passed)):
        i, ends = which[k], kind[k] == _END
        inside = 2 + 1 + varint_size(events.track[i])
        if not ends:
            inside += 2 + varint_size(events.name[i]) + varint_size(events.category[i])
            inside += body.begin[i + 1] - body.begin[i]
        packet = 1 + varint_size(passed[k]) + 2 + 2 + 1 + varint_size(inside) + inside
        if not len(out):
            at += 1 + varint_size(packet) + packet
            continue
        at = put_varint(out, at, 1 << 3 | 2)  # Trace.packet
        at = put_varint(out, at, packet)
        at = put_varint(out, at, 8 << 3)  # TracePacket.timestamp
        at = put_varint(out, at, passed[k])
        at = put_varint(out, at, 10 << 3)  # .trusted_packet_sequence_id
        at = put_varint(out, at, _SEQUENCE)
        at = put_varint(out, at, 13 << 3)  # .sequence_flags
        at = put_varint(out, at, _NEEDS_STATE)
        at = put_varint(out, at, 11 << 3 | 2)  # .track_event
        at = put_varint(out, at, inside)
        at = put_varint(out, at, 9 << 3)  # TrackEvent.type
        at = put_varint(out, at, kind[k])
        at = put_varint(out, at, 11 << 3)  # .track_uuid
        at = put_varint(out, at, events.track[i])
        if ends:
            continue
        at = put_varint(out, at, 10 << 3)  # .name_iid
        at = put_varint(out, at, events.name[i])
        at = put_varint(out, at, 3 << 3)  # .category_iids
        at = put_varint(out, at, events.category[i])
        for byte in range(body.begin[i], body.begin[i + 1]):
            out[at] = body.data[byte]
            at += 1
    return at

"""Reads a Perfetto trace back with Perfetto's own classes, by what its protocol says, and checks that it is sound."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

BEGIN, END, INSTANT = 1, 2, 3
CLOCK = 64
VALUES = {"int_value", "bool_value", "double_value", "string_value_iid"}


class Read(NamedTuple):
    """What a trace holds.

    Attributes:
        tracks: Number to descriptor.
        events: One row per slice or moment: ``track`` (uuid), ``path`` (names of the tracks above and its own),
            ``name, category, start_ns, end_ns`` (null: it never closed), ``moment, depth, args, flows``.
        clocks: Clock to its reading at the begin of the trace.
    """

    tracks: dict[int, Any]
    events: pl.DataFrame
    clocks: dict[int, int]

    def under(self, *names: str) -> pl.DataFrame:
        """Return the events of the tracks whose path begins with these names."""
        return self.events.filter(pl.col("path").list.head(len(names)) == list(names))

    def flows(self) -> dict[int, list[tuple[str, str, int]]]:
        """Return the flows: name of each event, its process and time, in the order that Perfetto takes them in."""
        out = defaultdict(list)
        for row in self.events.filter(pl.col("flows").list.len() > 0).sort("order").iter_rows(named=True):
            for flow in row["flows"]:
                out[flow].append((row["name"], row["path"][0], row["start_ns"]))
        return dict(out)


def read(path: Path) -> Read:
    """Return what a trace holds, and fail if it is not sound."""
    data = path.read_bytes()
    packets = proto.Trace.FromString(gzip.decompress(data) if path.suffix == ".gz" else data).packet
    tracks: dict[int, Any] = {}
    clocks: dict[int, int] = {}
    texts: dict[str, dict[int, Any]] = defaultdict(dict)
    rows, open_slices, now, default_clock = [], defaultdict(list), None, None
    for packet in packets:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in {0, *tracks}
            assert not track.parent_uuid or track.parent_uuid in tracks
            tracks[track.uuid] = track
        if packet.HasField("clock_snapshot"):
            assert packet.sequence_flags & 1
            clocks = {c.clock_id: c.timestamp for c in packet.clock_snapshot.clocks}
            now = next(c.timestamp for c in packet.clock_snapshot.clocks if c.clock_id == CLOCK and c.is_incremental)
        if packet.HasField("trace_packet_defaults"):
            default_clock = packet.trace_packet_defaults.timestamp_clock_id
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                number, text = (value for _, value in entry.ListFields())
                assert number not in texts[kind.name]
                texts[kind.name][number] = text if isinstance(text, str) else text.decode()
        if not packet.HasField("track_event"):
            continue
        assert packet.sequence_flags & 2
        assert default_clock == CLOCK
        now += packet.timestamp
        event = packet.track_event
        assert event.track_uuid in tracks
        if event.type == END:
            rows[open_slices[event.track_uuid].pop()]["end_ns"] = now
            continue
        assert event.type in (BEGIN, INSTANT)
        args = {}
        for annotation in event.debug_annotations:
            (value,) = (f.name for f, _ in annotation.ListFields() if f.name != "name_iid")
            assert value in VALUES
            found = getattr(annotation, value)
            name = texts["debug_annotation_names"][annotation.name_iid]
            args[name] = texts["debug_annotation_string_values"][found] if value == "string_value_iid" else found
        rows.append(
            {
                "order": len(rows),
                "track": event.track_uuid,
                "name": texts["event_names"][event.name_iid],
                "category": texts["event_categories"][event.category_iids[0]],
                "start_ns": now,
                "end_ns": now if event.type == INSTANT else None,
                "moment": event.type == INSTANT,
                "depth": len(open_slices[event.track_uuid]),
                "args": args,
                "flows": list(event.flow_ids),
            }
        )
        if event.type == BEGIN:
            open_slices[event.track_uuid].append(len(rows) - 1)
    pids = [t.process.pid for t in tracks.values() if t.HasField("process")]
    tids = [t.thread.tid for t in tracks.values() if t.HasField("thread")]
    assert len(set(pids)) == len(pids)
    assert len(set(tids)) == len(tids)
    schema = {"args": pl.Object, "path": pl.List(pl.String), "flows": pl.List(pl.UInt64), "end_ns": pl.Int64}
    for row in rows:
        row["path"] = path_of(tracks, row["track"])
    events = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
    found = Read(tracks, events, clocks)
    check_nesting(events)
    for flow in found.flows().values():
        assert len(flow) > 1
        assert [at for *_, at in flow] == sorted(at for *_, at in flow)
    return found


def path_of(tracks: dict[int, Any], uuid: int) -> list[str]:
    """Return the names of the tracks above one, and its own."""
    track = tracks[uuid]
    above = path_of(tracks, track.parent_uuid) if track.parent_uuid else []
    return [*above, track.process.process_name or track.thread.thread_name or track.name]


def check_nesting(events: pl.DataFrame) -> None:
    """Fail if slices of one track cross."""
    for _, rows in events.filter(~pl.col("moment")).group_by("track"):
        ends = []
        for start, end, depth in rows.sort("order").select("start_ns", "end_ns", "depth").iter_rows():
            assert depth <= len(ends)
            del ends[depth:]
            assert all(e is None or (end is not None and start < e and end <= e) for e in ends)
            ends.append(end)

"""Marks of one key, from both ends, put together: the times of each end, what is missing and why."""

from __future__ import annotations

import polars as pl

KEY = ["job", "src", "dst", "channel", "group", "seq"]
"""Names a handoff. ``group`` is null for pairs of ranks, ``src`` and ``dst`` are null for groups."""

SIDE = [*KEY, "side_rank"]
"""One end of a handoff; ``side_rank`` is null for pairs, where the mark tells the end."""

_NUMBER = "_side"  # number of the end: one column to group and join by instead of those of `SIDE`
_EVENT_OF = {
    # mark: (event from its operations, column of mark_times, whether the latest counts)
    "produce": ("producer_finish", "last", True),
    "submit": ("movement_start", "first", False),
    "receive": ("available", "last", True),
    "consume": ("consumer_start", "first", False),
}
_NEEDED = [
    *SIDE, "slot", "mark", "source", "process", "start_ns", "first_ns", "first_reason", "first_device", "last_ns",
    "last_reason", "last_device", "time_source", "open", "short", "weak",
]  # fmt: skip
_ABOUT = ("step", "mb", "dir", "src_stage", "dst_stage", "transport")
FACTS = ["mark", *KEY, "slot", "size_bytes", "start_ns", *_ABOUT]
"""What `message_facts` needs of marks."""


def event_times(brackets: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return one row per end of a handoff with its events.

    Args:
        brackets: Result of `gapscope.events.times.mark_times`, with ``side_rank``.
        points: Result of `gapscope.events.points.point_times`, with ``side_rank``.

    Returns:
        Columns `SIDE`; for each event ``<event>_ns``, ``<event>_source`` (text, null if there is no such mark),
        ``<event>_device`` (whose clock it is of; null: the host's) and ``<event>_reason``; ``has_<mark>``,
        ``available_in_submit`` (of a collective: no receive launched anything), ``open_receive``, ``repeated`` (a mark
        with the same key and slot twice), ``src_source``, ``src_process``, ``dst_source``, ``dst_process`` (who
        recorded the two ends), ``src_first_mark_ns``, ``dst_first_mark_ns``.
    """
    frame = brackets.select(SIDE).unique(maintain_order=True)
    frame = pl.concat([frame, points.select(SIDE)]).unique(maintain_order=True).with_row_index(_NUMBER)
    brackets = _numbered(brackets.select(_NEEDED), frame)
    points = _numbered(points, frame)
    for mark, (event, which, latest) in _EVENT_OF.items():
        of_mark = brackets.filter(pl.col("mark") == mark)
        there = of_mark.select(_NUMBER).unique().with_columns(pl.lit(True).alias(f"has_{mark}"))
        if mark == "receive":
            of_mark = _with_results(brackets, of_mark)
            frame = _join(frame, of_mark.group_by(_NUMBER).agg(available_in_submit=(pl.col("mark") == "submit").all()))
        frame = _join(_join(frame, _from_operations(of_mark, event, which, latest)), there)
    for mark, event in (("submit", "submit"), ("receive", "receive_post")):
        short = pl.col("short").any()
        begun = (
            brackets.filter(pl.col("mark") == mark)
            .group_by(_NUMBER)
            .agg(
                pl.when(~short).then(pl.col("start_ns").min()).alias(f"{event}_ns"),
                pl.when(short).then(pl.lit("lost")).alias(f"{event}_reason"),
            )
        )
        frame = _join(frame, begun.with_columns(pl.lit("emitted").alias(f"{event}_source")))
    frame = _with_points(frame, points, brackets.filter("weak"))
    for column in ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start"):
        if f"{column}_reason" not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias(f"{column}_reason"))
        if f"{column}_device" not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=pl.Int32).alias(f"{column}_device"))
    frame = _join(frame, _repeated(brackets, points))
    frame = _join(frame, _files(brackets, points))
    flags = [f"has_{mark}" for mark in _EVENT_OF] + ["open_receive", "repeated", "available_in_submit"]
    opened = brackets.filter((pl.col("mark") == "receive") & pl.col("open")).select(_NUMBER).unique()
    frame = _join(frame, opened.with_columns(open_receive=pl.lit(True)))
    return frame.with_columns(pl.col(flags).fill_null(value=False)).drop(_NUMBER)


def _numbered(rows: pl.DataFrame, sides: pl.DataFrame) -> pl.DataFrame:
    """Return marks with the number of their end."""
    numbers = rows.select(SIDE).join(sides, on=SIDE, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(numbers[_NUMBER])


def message_facts(marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``KEY, size_bytes, messages`` and what the marks (`FACTS`) say about the handoff (step, microbatch, ...).

    The size of a message is that of its submit mark, else of its receive, produce or consume mark; sizes add
    up over the slots and are null if one is unknown.
    """
    preference = pl.col("mark").replace_strict(
        {"submit": 0, "receive": 1, "produce": 2, "consume": 3}, default=4, return_dtype=pl.Int8
    )
    moved = pl.col("mark").is_in(["submit", "receive"])
    keys = marks.select(KEY).unique(maintain_order=True).with_row_index(_NUMBER)
    numbers = marks.select(KEY).join(keys, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    marks = marks.select("mark", "slot", "size_bytes", "start_ns", *_ABOUT).with_columns(numbers[_NUMBER])
    ordered = marks.drop(_ABOUT).with_columns(_p=preference).sort("_p", "start_ns")
    ordered = ordered.with_columns(_moved=moved.any().over(_NUMBER)).filter(
        moved | ~pl.col("_moved") | pl.col("size_bytes").is_not_null()
    )
    slots = ordered.group_by([_NUMBER, "slot"], maintain_order=True).agg(
        pl.col("size_bytes").drop_nulls().first(), _moved=moved.any(), _any=pl.col("_moved").first()
    )
    slots = slots.filter(pl.col("_moved") | ~pl.col("_any"))
    sizes = slots.group_by(_NUMBER).agg(
        size_bytes=pl.when(pl.col("size_bytes").is_not_null().all()).then(
            pl.col("size_bytes").cast(pl.Int128).sum().cast(pl.Int64, strict=False)
        ),
        messages=pl.len().cast(pl.Int64),
    )
    about = marks.sort("start_ns").group_by(_NUMBER).agg(pl.col(c).drop_nulls().first() for c in _ABOUT)
    return _join(_join(keys, about), sizes).drop(_NUMBER)


def _join(frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    return frame.join(other, on=_NUMBER, how="left", maintain_order="left")


def _with_results(brackets: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    """Return the receives, and in their place the submits of collectives that are one operation, launched in submit.

    A rank has the result when its own operation ends, wherever that was launched. Where other collectives of the group
    have receives that launched something on this rank, one that has none is missing, and no submit stands in for it.
    """
    group = [column for column in SIDE if column != "seq"]
    if not brackets["group"].count():
        return received
    idle = (pl.col("last_reason") == "nothing_launched").fill_null(value=False)
    launching = received.filter(~idle).select(group).unique()
    submitted = brackets.filter((pl.col("mark") == "submit") & pl.col("group").is_not_null())
    submitted = submitted.join(launching, on=group, how="anti", nulls_equal=True)
    kept = received.join(submitted.select(_NUMBER).unique(), on=_NUMBER, how="anti", maintain_order="left")
    return pl.concat([kept, submitted])


def _from_operations(of_mark: pl.DataFrame, event: str, which: str, latest: bool) -> pl.DataFrame:
    """Return the event of each end from the operations inside its marks of one kind.

    Marks that launched nothing do not count beside marks of the same key that did: a receive may be posted in
    one bracket and waited for in another.
    """
    time, reason = pl.col(f"{which}_ns"), pl.col(f"{which}_reason")
    idle = (reason == "nothing_launched").fill_null(value=False)
    counted = of_mark.filter(~idle | idle.all().over(_NUMBER))
    device = pl.col(f"{which}_device").sort_by(time)
    return counted.group_by(_NUMBER).agg(
        pl.when(time.is_not_null().all()).then(time.max() if latest else time.min()).alias(f"{event}_ns"),
        device.last().alias(f"{event}_device") if latest else device.first().alias(f"{event}_device"),
        reason.drop_nulls().first().alias(f"{event}_reason"),
        pl.when((pl.col("time_source") == "estimated").any())
        .then(pl.lit("estimated"))
        .otherwise(pl.col("time_source").first())
        .alias(f"{event}_source"),
    )


def _with_points(frame: pl.DataFrame, points: pl.DataFrame, weak: pl.DataFrame) -> pl.DataFrame:
    """Let point marks, which are the event itself, stand before what brackets give.

    Where a file has lost something (``weak``: its brackets), the bracket does not stand in for a point that others of
    the edge have.
    """
    edge = [column for column in SIDE if column != "seq"]
    for event, latest, around in (
        ("producer_finish", True, ("produce", "submit")),
        ("movement_start", False, ("produce", "submit")),
        ("available", True, ("receive", "consume")),
        ("consumer_start", False, ("receive", "consume")),
    ):
        of_event = points.filter(pl.col("mark") == event)
        if not of_event.height:
            continue
        time, device = pl.col("point_ns"), pl.col("point_device").sort_by("point_ns")
        given = of_event.group_by(_NUMBER).agg(
            pl.when(time.is_not_null().all()).then(time.max() if latest else time.min()).alias("_time"),
            pl.col("time_source").first().alias("_source"),
            (device.last() if latest else device.first()).alias("_device"),
            pl.col("point_reason").drop_nulls().first().alias("_reason"),
            pl.lit(True).alias("_given"),
        )
        sides = (
            weak.filter(pl.col("mark").is_in(around)).select(_NUMBER).unique().with_columns(_weak=pl.lit(value=True))
        )
        gone = pl.col("_weak") & pl.col("_given").is_null() & pl.col("_given").any().over(edge)
        frame = (
            _join(_join(frame, given), sides)
            .with_columns(_gone=gone.fill_null(value=False))
            .with_columns(
                pl.when("_given").then("_time").when(~pl.col("_gone")).then(f"{event}_ns").alias(f"{event}_ns"),
                pl.when("_given").then("_source").otherwise(f"{event}_source").alias(f"{event}_source"),
                pl.when("_given").then("_device").otherwise(f"{event}_device").alias(f"{event}_device"),
                pl.when("_given")
                .then("_reason")
                .when("_gone")
                .then(pl.lit("lost"))
                .otherwise(f"{event}_reason")
                .alias(f"{event}_reason"),
            )
            .drop("_time", "_source", "_device", "_reason", "_given", "_weak", "_gone")
        )
    return frame


def _repeated(brackets: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return ends that have a mark with the same key and slot twice; receive may come several times."""
    # Times of the device come with each bracket, and receive may come several times.
    marked = points.filter(pl.col("error_ns").is_null()) if "error_ns" in points.columns else points
    every = pl.concat([rows.select(_NUMBER, "mark", "slot") for rows in (brackets, marked)])
    counts = every.filter(pl.col("mark") != "receive").group_by(_NUMBER, "mark", "slot").len()
    return counts.filter(pl.col("len") > 1).select(_NUMBER).unique().with_columns(repeated=pl.lit(True))


def _files(brackets: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return who recorded each end, and the time of its first mark."""
    columns = [_NUMBER, "mark", "source", "process", "start_ns"]
    every = pl.concat([brackets.select(columns), points.select(columns)])
    at_source = pl.col("mark").is_in(["produce", "submit", "producer_finish", "movement_start"])
    found = every.select(pl.col(_NUMBER).unique())
    for side, there in (("src", at_source), ("dst", ~at_source)):
        of_side = every.filter(there).sort("start_ns").group_by(_NUMBER)
        first = of_side.agg(pl.col("source", "process").first(), first_mark_ns=pl.col("start_ns").min())
        names = {name: f"{side}_{name}" for name in ("source", "process", "first_mark_ns")}
        found = _join(found, first.rename(names))
    return found

"""Single bytes gone wrong: an event costs itself at most, and nobody else's time changes."""

from __future__ import annotations

import random
import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from gapscope.errors import GapscopeError, InputError
from tests.fuzz import built, exports
from tests.fuzz.recordings import (
    DATA,
    JSON_FILES,
    SQLITE_FILES,
    check_handoffs,
    check_rows,
    codes,
    content,
    difference,
    events,
    read,
    read_or_refuse,
    rows_of,
    told,
    touched_by,
    whole,
    whole_of,
)

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MAIN = ("ops", "calls", "ranges")  # an event is a row of one of these; syncs and comms may repeat it
PAGE = 4096


def structure(event: bytes) -> list[int]:
    """Return where the brackets, commas and colons of an event are, and the quotes around its texts."""
    positions, at = [], 0
    for text in _STRING.finditer(event):
        positions += [k for k in range(at, text.start()) if event[k] in b"{}[],:"]
        positions += [text.start(), text.end() - 1]
        at = text.end()
    return positions + [k for k in range(at, len(event)) if event[k] in b"{}[],:"]


def flipped(data: bytes, at: int, generator: random.Random) -> bytes:
    out = bytearray(data)
    out[at] ^= 1 << generator.randrange(8)
    return bytes(out)


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_flip_in_the_structure_of_an_event_costs_that_event(tmp_path, name):
    undamaged, raw = whole(name), content(name)
    path = tmp_path / Path(name).name.removesuffix(".gz")
    generator = random.Random(f"structure {name}")
    spans = events(name)
    kept = [
        k
        for k, (start, end) in enumerate(spans)
        if b'"cpu_op"' not in raw[start:end] and b'"ac2g"' not in raw[start:end]
    ]
    for number in range(6):
        start, end = spans[generator.choice(kept)]
        at = start + generator.choice(structure(raw[start:end]))
        path.write_bytes(flipped(raw, at, generator))
        source = read(path)
        found = check_rows(undamaged, source)
        assert found.count(*_MAIN) <= 1
        assert found.count() <= 2
        assert source.info.dropped.get("damaged", 0) == 1 or not found.count(), at
        assert not source.info.truncated
        if number % 3 == 0:
            lost = check_handoffs(undamaged, source)
            assert len(lost) <= 2  # of a call, the handoff before or behind it is in doubt as well


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_flip_anywhere_changes_no_other_event_and_no_other_handoff(tmp_path, name):
    """Flips within digits and texts cannot be seen: they may change the numbers of the event's own handoffs."""
    undamaged, raw = whole(name), content(name)
    path = tmp_path / Path(name).name.removesuffix(".gz")
    generator = random.Random(f"anywhere {name}")
    spans = events(name)
    for number in range(8):
        start, end = spans[generator.randrange(len(spans))]
        digits = [start + m.start() for m in re.finditer(rb"\d", raw[start:end])]
        at = generator.choice(digits) if number % 2 else generator.randrange(start, end)
        path.write_bytes(flipped(raw, at, generator))
        source = read(path)
        found = difference(undamaged, source)
        assert found.count(*_MAIN) <= 1, (at, found)
        if not found.count(*_MAIN):
            continue
        lost = sum(rows.total() for rows in found.absent.values()) - sum(rows.total() for rows in found.gained.values())
        assert lost <= 0 or told(undamaged.source, source) or source.info.dropped != undamaged.source.info.dropped
        touched = touched_by(undamaged, source, found)
        assert len(touched) <= 2
        try:
            check_handoffs(undamaged, source, touched)
        except GapscopeError:  # a process or rank that never was contradicts the others
            assert any(rows for rows in found.gained.values())


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_flip_between_events_costs_nothing(tmp_path, name):
    undamaged, raw = whole(name), content(name)
    path = tmp_path / Path(name).name.removesuffix(".gz")
    generator = random.Random(f"between {name}")
    spans = events(name)
    for _ in range(5):
        at = spans[generator.randrange(len(spans) - 1)][1]
        assert raw[at : at + 1] == b","
        path.write_bytes(flipped(raw, at, generator))
        found = check_rows(undamaged, read(path))
        assert found.count(*_MAIN) == 0


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_flip_in_a_compressed_json_keeps_what_stands_before_it(tmp_path, name):
    """What follows the flip is decoded to something else; all that can be said is that the stream is broken."""
    undamaged, raw = whole(name), (DATA / name).read_bytes()
    path = tmp_path / Path(name).name
    generator = random.Random(f"stream {name}")
    for _ in range(8):
        at = generator.randrange(len(raw))
        before = zlib.decompressobj(wbits=31).decompress(raw[:at])
        path.write_bytes(flipped(raw, at, generator))
        source = read_or_refuse(path)
        if isinstance(source, InputError) or rows_of(source) == undamaged.rows:
            continue
        assert source.info.truncated
        assert "truncated" in codes(source)
        kept = sum(end <= len(before) for _, end in events(name))
        assert source.info.events >= kept


@pytest.mark.parametrize("name", SQLITE_FILES)
def test_a_flip_in_a_compressed_database_is_refused_or_harmless(tmp_path, name):
    undamaged, raw = whole(name), (DATA / name).read_bytes()
    path = tmp_path / Path(name).name
    generator = random.Random(f"stream {name}")
    refused = 0
    for _ in range(20):
        path.write_bytes(flipped(raw, generator.randrange(len(raw)), generator))
        source = read_or_refuse(path)
        if isinstance(source, InputError):
            refused += 1
        else:
            assert rows_of(source) == undamaged.rows
    assert refused > 14


@pytest.mark.parametrize("name", SQLITE_FILES)
def test_a_flip_in_the_structure_of_a_database_is_never_silent(tmp_path, name):
    """A table that cannot be read is named, and rows that are gone without an error are said, too."""
    undamaged, raw = whole_of(read(DATA / name)), content(name)
    path = tmp_path / Path(name).name.removesuffix(".gz")
    generator = random.Random(f"pages {name}")
    for number in range(20):
        page = generator.randrange(len(raw) // PAGE) * PAGE
        at = page + (100 if not page else 0) + generator.randrange(8 if number % 2 else 40)
        path.write_bytes(flipped(raw, at, generator))
        source = read_or_refuse(path)
        if isinstance(source, InputError):
            continue
        found = difference(undamaged, source)
        if any((found.absent[t].total() != found.gained[t].total()) for t in ("ops", "calls", "syncs", "ranges")):
            assert told(undamaged.source, source), at
        if found.count():
            check_handoffs(undamaged, source)


def test_rows_that_a_page_no_longer_counts_are_missed(tmp_path):
    path = tmp_path / "tiny.sqlite"
    exports.build(path, built.recorded("plain", (1, 2, 3)), page_size=PAGE)
    undamaged = whole_of(read(path))
    with closing(sqlite3.connect(path)) as connection:
        select = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
        (page,) = connection.execute(select).fetchone()
    data = bytearray(path.read_bytes())
    cells = (page - 1) * PAGE + 4
    assert data[cells] == 18
    data[cells] -= 2  # rank 1's last two calls
    path.write_bytes(data)
    source = read(path)
    assert codes(source) == {"damaged_database"}
    assert source.info.dropped == {"damaged": 1}
    assert check_rows(undamaged, source).count() == 2
    assert check_handoffs(undamaged, source) == {"0>1/0/3": {"consumer_start_ns", "available_ns"}}


BROKEN = {
    "cut short": lambda line: line[: len(line) // 2],
    "no time": lambda line: re.sub(r'"ts":[\d.]+', '"ts":inf', line),
    "text": lambda line: "Segmentation fault (core dumped)",
}


def broken_handoffs(undamaged, lines, path, number, how):
    """Which handoffs lose which times if one event is broken."""
    text = BROKEN[how](lines[number])
    path.write_bytes(built.kineto([*lines[:number], text, *lines[number + 1 :]]))
    source = read(path)
    found = check_rows(undamaged, source)
    assert found.count() <= 1
    assert source.info.dropped.get("damaged") == 1
    assert not source.info.truncated
    return check_handoffs(undamaged, source)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("layout", built.LAYOUTS)
def test_each_event_of_a_handoff_broken_in_turn(tmp_path, layout, rank):
    ranks = built.recorded(layout, (1, 2, 3))
    paths = [tmp_path / f"rank{r.rank}.json" for r in ranks]
    lines = [built.lines(r.names + r.marks + r.work + r.spans) for r in ranks]
    for path, texts in zip(paths, lines, strict=True):
        path.write_bytes(built.kineto(texts))
    files = [read(path) for path in paths]
    undamaged = whole_of(files[rank], (files[1 - rank],))
    assert {row["status"] for row in undamaged.handoffs.values()} == {"complete"}
    for number, line in enumerate(lines[rank]):
        if not re.search(r'seq=2\b|"ts":2\d\d\d|thread_name', line):
            continue
        how = list(BROKEN)[number % 3] if '"ts"' in line else "text"
        lost = broken_handoffs(undamaged, lines[rank], paths[rank], number, how)
        if "thread_name" in line:
            continue  # whose work a thread did is then unknown in every handoff
        assert len(lost) <= 2, (line, lost)
        if '"kernel"' in line or "gpu_" in line or "gapscope::" in line:
            assert lost.keys() <= {"0>1/0/2"}, (line, lost)  # of a lost call, a neighbor is in doubt as well


@pytest.mark.parametrize(
    ("layout", "rank", "text", "lost"),
    [
        ("plain", 0, '"cuLaunch".*"ts":2005', set()),  # another kernel of the stage ends later
        ("plain", 0, '"kernel".*"ts":2012', set()),
        ("plain", 0, '"kernel".*"ts":2020', {"producer_finish_ns"}),
        ("plain", 1, '"kernel".*"ts":2066', {"consumer_start_ns"}),
        ("plain", 1, '"kernel".*"ts":2070', set()),
        ("nested", 0, "submit .*seq=2", {"submit_ns", "movement_start_ns", "producer_finish_ns"}),
        ("nested", 1, "receive .*seq=2", {"receive_post_ns", "available_ns", "consumer_start_ns"}),
        ("posted", 1, 'receive .*seq=2.*"ts":2001', {"receive_post_ns", "available_ns"}),
        ("posted", 1, 'receive .*seq=2.*"ts":2050', {"receive_post_ns", "available_ns"}),
        ("slots", 0, "submit .*seq=2 slot=0", {"submit_ns", "movement_start_ns"}),
        ("slots", 0, "produce .*seq=2 slot=1", {"producer_finish_ns"}),
        ("slots", 1, "receive .*seq=2 slot=1", {"receive_post_ns", "available_ns"}),
        ("spans", 0, '"Memcpy PtoP".*"ts":2041', {"movement_start_ns"}),
        ("spans", 0, '"Memcpy PtoP".*"ts":2046', set()),
        ("spans", 1, '"Memcpy PtoP".*"ts":2059', {"available_ns"}),
        ("graphs", 0, '"kernel".*"ts":2030', {"producer_finish_ns"}),
        ("graphs", 1, '"kernel".*"ts":2066', {"consumer_start_ns"}),
        ("points", 0, "producer_finish .*seq=2", {"producer_finish_ns"}),
        ("points", 1, "consumer_start .*seq=2", {"consumer_start_ns"}),
        ("points", 1, '"cuLaunch".*"ts":2064', {"consumer_start_ns"}),
    ],
)
def test_what_one_broken_event_costs(tmp_path, layout, rank, text, lost):
    ranks = built.recorded(layout, (1, 2, 3))
    files = [tmp_path / f"rank{r.rank}.json" for r in ranks]
    lines = [built.lines(r.events()) for r in ranks]
    for path, texts in zip(files, lines, strict=True):
        path.write_bytes(built.kineto(texts))
    undamaged = whole_of(read(files[rank]), (read(files[1 - rank]),))
    (number,) = [k for k, line in enumerate(lines[rank]) if re.search(text, line)]
    found = broken_handoffs(undamaged, lines[rank], files[rank], number, "text")
    assert found.get("0>1/0/2", set()) == lost

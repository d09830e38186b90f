"""Files that end too soon: what is there is kept, what is gone is said, and what is left by chance decides no time."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.readers.base import SourceTables, no_progress
from gapscope.readers.compression import head
from gapscope.readers.kineto import KINETO
from gapscope.readers.kineto_scan import scan_file
from tests.fuzz import built, exports
from tests.fuzz.recordings import (
    DATA,
    FILES,
    JSON_FILES,
    SQLITE_FILES,
    Whole,
    check_handoffs,
    check_rows,
    codes,
    content,
    event_spans,
    read,
    read_or_refuse,
    rows_of,
    told,
    whole,
    whole_of,
)

PARTS = 2  # a test for each, so that they can run side by side


class Seen:
    """Outcomes that were analyzed already: most cuts of a small file give what the one before gave."""

    def __init__(self, undamaged: Whole) -> None:
        self._undamaged = undamaged
        self._seen: set[tuple] = set()

    def check(self, source: SourceTables) -> None:
        check_rows(self._undamaged, source)
        rows = tuple((name, frozenset(counted.items())) for name, counted in rows_of(source).items())
        outcome = (rows, source.info.truncated, source.info.clock, str(source.info.dropped))
        if outcome not in self._seen:
            self._seen.add(outcome)
            check_handoffs(self._undamaged, source)

    def __len__(self) -> int:
        return len(self._seen)


def one_handoff():
    source, destination = built.recorded("minimal", (1,))
    return built.kineto(built.lines(source.events() + destination.events()))


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / Path(name).name
    path.write_bytes(data)
    return path


def test_the_built_recording_is_small_and_its_times_are_known(tmp_path):
    raw = one_handoff()
    assert len(raw) <= 2048
    handoffs = whole_of(read(write(tmp_path, "both.json", raw))).handoffs
    assert handoffs == {"0>1/0/1": {"status": "complete", **built.plain_times(1)}}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_built_json_cut_at_every_length(tmp_path, packed):
    """Every length is scanned; tables are built once for each thing that the scanner has found."""
    raw = gzip.compress(one_handoff(), mtime=0) if packed else one_handoff()
    path = write(tmp_path, "both.json", raw)
    seen = Seen(whole_of(read(path)))
    scanned = set()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        found = scan(path)
        if found in scanned:
            continue
        scanned.add(found)
        source = read_or_refuse(path)
        if isinstance(source, InputError):
            assert packed or length < raw.index(b"[") + 8, f"refused at {length}: {source.found}"
            continue
        assert source.info.truncated or raw[length:].isspace(), length
        assert ("truncated" in codes(source)) == source.info.truncated
        seen.check(source)
    events = len(event_spans(one_handoff()))
    assert len(scanned) > events
    assert events <= len(seen) <= events + 2 or (packed and len(seen) >= 5)  # a stream gives what it has in pieces


def scan(path):
    """What the reader sees of a file before it builds tables."""
    rows = []
    found = scan_file(path, lambda some: rows.append(some.tobytes()), no_progress)
    recognized = KINETO.sniff(path, head(path))
    facts = (found.events, found.damaged, found.has_list, found.whole, found.stream_damage, str(found.values))
    return (recognized, b"".join(rows), str(found.dropped), *facts)


@pytest.mark.parametrize(
    "tail", [f'\n], "baseTimeNanoseconds": {built.BASE_NS}}}\n', built.TAIL], ids=["base last", "base first"]
)
def test_a_cut_that_takes_the_zero_of_the_clock_says_so(tmp_path, tail):
    source, destination = built.recorded("plain", (1,))
    head = built.HEAD if tail == built.TAIL else '{"traceEvents": [\n'
    raw = built.kineto(built.lines(source.events() + destination.events()), head, tail)
    path = write(tmp_path, "both.json", raw)
    seen = Seen(whole_of(read(path)))
    for _, end in event_spans(raw)[4:]:
        path.write_bytes(raw[:end])
        source = read(path)
        assert (source.info.clock == "relative") == ("relative_clock" in codes(source)) == (tail != built.TAIL)
        seen.check(source)
    assert len(seen) == len(event_spans(raw)) - 4


ORDERS = {
    "as recorded": lambda events: events,
    "marks last": lambda events: sorted(events, key=lambda e: e.get("cat") == "user_annotation"),
    "thread by thread": lambda events: sorted(events, key=lambda e: (e.get("cat") != "user_annotation", e["tid"])),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("layout", sorted(built.LAYOUTS.keys() - {"minimal"}))
def test_every_layout_of_marks_cut_behind_each_event(tmp_path, layout, rank):
    ranks = built.recorded(layout, (1, 2))
    other = read(write(tmp_path, f"rank{1 - rank}.json", built.kineto(built.lines(ranks[1 - rank].events()))))
    order = ORDERS["thread by thread" if layout == "backward" else "as recorded"]
    raw = built.kineto(built.lines(order(ranks[rank].events())))
    path = write(tmp_path, f"rank{rank}.json", raw)
    seen = Seen(whole_of(read(path), (other,)))
    for _, end in event_spans(raw)[len(ranks[rank].marks) :]:
        path.write_bytes(raw[:end])
        seen.check(read(path))
    assert len(seen) > 5


@pytest.mark.parametrize("layout", ["plain", "nested", "posted", "slots"])
def test_marks_that_are_lost_with_the_end_of_a_file_leave_no_wrong_time(tmp_path, layout):
    ranks = built.recorded(layout, (1, 2))
    paths = [tmp_path / f"rank{rank.rank}.json" for rank in ranks]
    for rank, path in zip(ranks, paths, strict=True):
        path.write_bytes(built.kineto(built.lines(ORDERS["marks last"](rank.events()))))
    files = [read(path) for path in paths]
    for rank, path in zip(ranks, paths, strict=True):
        raw = path.read_bytes()
        seen = Seen(whole_of(files[rank.rank], (files[1 - rank.rank],)))
        for _, end in event_spans(raw)[-len(rank.marks) // 2 :]:
            path.write_bytes(raw[:end])
            seen.check(read(path))
        path.write_bytes(raw)


@pytest.mark.parametrize("seed", range(2))
def test_a_cut_of_a_file_in_no_order_gives_no_derived_time(tmp_path, seed):
    """Where the calls that are left stand in no order of time, nothing tells which ones are gone."""
    ranks = built.recorded("plain", (1, 2))
    other = read(write(tmp_path, "rank1.json", built.kineto(built.lines(ranks[1].events()))))
    events = random.Random(seed).sample(ranks[0].events(), 16)
    raw = built.kineto(built.lines(events))
    path = write(tmp_path, "rank0.json", raw)
    undamaged = whole_of(read(path), (other,))
    seen = 0
    for _, end in event_spans(raw):
        path.write_bytes(raw[:end])
        source = read(path)
        if not source.info.calls_in_order:
            lost = check_handoffs(undamaged, source)
            assert all(times >= {"producer_finish_ns", "movement_start_ns"} for times in lost.values())
            assert lost.keys() == undamaged.handoffs.keys()
            seen += 1
    assert seen >= 3


def cuts(name: str, size: int, number: int, part: int) -> list[int]:
    """Seeded lengths of a file, dealt out to the parts."""
    lengths = random.Random(f"cut {name}").sample(range(size), number)
    return lengths[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", JSON_FILES)
def test_real_json_cut_at_many_lengths(tmp_path, name, part):
    """Every second cut is of the compressed file, the others of what is in it; one in four is analyzed."""
    undamaged = whole(name)
    packed, plain = (DATA / name).read_bytes(), content(name)
    for number, length in enumerate(cuts(name, len(packed), 16, part)):
        if number % 2:
            path = write(tmp_path, name, packed[:length])
        else:
            path = write(tmp_path, name.removesuffix(".gz"), plain[: length * len(plain) // len(packed)])
        source = read_or_refuse(path)
        if isinstance(source, InputError):
            assert length < len(packed) // 20, f"refused at {length}: {source.found}"
            continue
        assert source.info.truncated
        assert "truncated" in codes(source)
        check_rows(undamaged, source)
        if number % 4 == part:
            check_handoffs(undamaged, source)


@pytest.mark.parametrize("name", SQLITE_FILES)
def test_real_sqlite_cut_at_many_lengths(tmp_path, name):
    """A compressed database is whole or refused; of a plain one at most the last page may be missing."""
    packed, plain = (DATA / name).read_bytes(), content(name)
    generator = random.Random(f"cut {name}")
    for length in generator.sample(range(len(packed)), 40):
        error = read_or_refuse(write(tmp_path, name, packed[:length]))
        assert isinstance(error, InputError), length
    undamaged = whole(name)
    near_end = range(len(plain) - 4500, len(plain), 900)
    for length in [*generator.sample(range(len(plain)), 40), *near_end]:
        source = read_or_refuse(write(tmp_path, name.removesuffix(".gz"), plain[:length]))
        if isinstance(source, InputError):
            assert "cut off" in source.found or "not a format" in source.found or "is empty" in source.found
            continue
        assert length > len(plain) - 4096
        check_rows(undamaged, source)
        check_handoffs(undamaged, source)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_built_sqlite_cut_at_many_lengths(tmp_path, packed):
    path = tmp_path / "tiny.sqlite"
    exports.build(path, built.recorded("plain", (1,)))
    undamaged = whole_of(read(path))
    assert undamaged.handoffs == {"0>1/0/1": {"status": "complete", **built.plain_times(1)}}
    raw = gzip.compress(path.read_bytes(), mtime=0) if packed else path.read_bytes()
    seen = Seen(undamaged)
    for length in range(0, len(raw), 3 if packed else 31):
        path.write_bytes(raw[:length])
        source = read_or_refuse(path)
        if not isinstance(source, InputError):
            assert not packed
            seen.check(source)


@pytest.mark.parametrize("part", range(2))
def test_parquet_export_with_one_file_cut(tmp_path, part, capfd):
    database, folder = tmp_path / "tiny.sqlite", tmp_path / "tiny_pqtdir"
    exports.build(database, built.recorded("plain", (1,)))
    exports.as_parquet(database, folder)
    undamaged = whole_of(read(folder))
    assert undamaged.handoffs["0>1/0/1"]["status"] == "complete"
    generator = random.Random("parquet")
    for file in sorted(folder.iterdir()):
        raw = file.read_bytes()
        for length in generator.sample(range(len(raw)), 4)[part::2]:
            file.write_bytes(raw[:length])
            source = read(folder)
            found = missing_rows(undamaged, source)
            assert not found or told(undamaged.source, source), (file.name, length)
            check_handoffs(undamaged, source)
        file.write_bytes(raw)
    assert capfd.readouterr().err == ""  # polars' decoder writes its panics there


def missing_rows(undamaged: Whole, source: SourceTables) -> int:
    """Return how many rows are missing; names of what has no name any more may be numbers."""
    rows = rows_of(source)
    return sum(abs(undamaged.rows[name].total() - counted.total()) for name, counted in rows.items())


def test_all_files_of_the_folder_are_cut():
    folders = ("causes", "examples", "loadgen", "restarts")
    present = {str(path.relative_to(DATA)) for path in DATA.rglob("*.gz") if path.parent.name not in folders}
    # The demo recording is no small one; those of collectives, of held slots and in these folders are more of one kind.
    more = {
        "two-gpus/mailbox_late_submit_nsys.sqlite.gz",
        "two-gpus/copy_engine_slot_hold_nsys.sqlite.gz",
        *(f"two-gpus/tp_torch_rank{r}.json.gz" for r in (0, 1)),
    }
    assert present - set(FILES) <= more

"""The mark log as it is read: exact columns and times, damage, clocks, who wrote it."""

import gzip
import json

import polars as pl
import pytest
import zstandard
from gapscope_instrumentation import handoff
from gapscope_instrumentation.contract import LOG_HEAD, LOG_SLOT_BYTES, MARKS
from gapscope_instrumentation.emitters.log import LogEmitter

import gapscope
from gapscope import cache
from gapscope.errors import IdentityError, UnsupportedVersionError
from gapscope.load import LoadOptions, load
from gapscope.marks.compact import group_number
from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import no_progress
from gapscope.readers.mark_log import MARK_LOG
from gapscope.schema import READER_TABLES
from tests.unit.log_files import EPOCH_NS, ZERO_NS, LogFile

KEY = {"src": 0, "dst": 1, "seq": 57}


def read(path):
    return find_reader(path).read(path, ReadOptions(), no_progress)


def marks_of(log, tmp_path):
    return load(log.write(tmp_path / "a.gslog"), LoadOptions(use_cache=False)).marks


def findings_of(log, tmp_path):
    return {f.code: f for f in load(log.write(tmp_path / "a.gslog"), LoadOptions(use_cache=False)).findings}


# Marks ------------------------------------------------------------------------------------------------------------


def test_all_fields_of_a_mark(tmp_path):
    log = LogFile(rank=0)
    said = {"slot": 2, "channel": 3, "mb": 4, "step": 9, "dir": "bwd", "src_stage": 5, "dst_stage": 6, "kind": "pp"}
    log.mark("submit", 100, 250, thread=77, **KEY, **said, transport="nccl", name="act", device="cpu", bytes=24_576)
    row = marks_of(log, tmp_path).row(0, named=True)
    wanted = {**KEY, **said, "transport": "nccl", "name": "act", "device": "cpu", "size_bytes": 24_576}
    wanted |= {"mark": "submit", "thread": 77, "process": 10, "rank": 0, "group": None, "job": None, "form": "log"}
    wanted |= {"start_ns": EPOCH_NS + 100, "end_ns": EPOCH_NS + 250, "error_ns": None, "fields": None}
    assert {name: row[name] for name in wanted} == wanted


def test_what_is_not_said_is_null(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY)
    row = marks_of(log, tmp_path).row(0, named=True)
    nulls = ("mb", "step", "dir", "src_stage", "dst_stage", "kind", "transport", "name", "device", "size_bytes")
    assert [row[name] for name in nulls] == [None] * len(nulls)
    assert (row["slot"], row["channel"]) == (0, 0)


def test_groups_and_host_memory_and_units(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 1, 2, group="tp0", seq=4)
    log.mark("submit", 3, 4, src=0, dst=-1, seq=5)
    log.mark("step", 0, 9, step=12)
    found = marks_of(log, tmp_path).select("mark", "src", "dst", "group", "seq", "step").rows()
    assert found == [
        ("step", None, None, None, None, 12),
        ("submit", None, None, "tp0", 4, None),
        ("submit", 0, -1, None, 5, None),
    ]


def test_a_full_sequence_number_is_kept(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 1, 2, src=0, dst=1, seq=2**40 + 3)
    assert marks_of(log, tmp_path)["seq"].to_list() == [2**40 + 3]


def test_text_form_of_any_length(tmp_path):
    log = LogFile(rank=0)
    long = "x" * 300
    log.text_mark(f"submit src=0 dst=1 seq=1 note={long}", 10, 20)
    log.text_mark("submit src=0 dst=1 seq=2 job=zürich", 30, 40)
    log.text_mark("request seq=0 id=r7", 5, 50)
    marks = marks_of(log, tmp_path)
    assert marks["fields"].to_list() == [
        "seq=0 id=r7",
        f"src=0 dst=1 seq=1 note={long}",
        "src=0 dst=1 seq=2 job=zürich",
    ]
    assert marks["job"].to_list() == [None, None, "zürich"]
    assert marks["start_ns"].to_list() == [EPOCH_NS + 5, EPOCH_NS + 10, EPOCH_NS + 30]
    assert set(marks["form"]) == {"log"}


@pytest.mark.parametrize("length", [63, 64, 65, 64 + 95, 64 + 95 + 1])
def test_texts_end_where_they_say(tmp_path, length):
    text = "submit src=0 dst=1 seq=1 n="
    text += "y" * (length - len("gapscope::") - len(text))
    log = LogFile(rank=0)
    log.text_mark(text, 10, 20)
    assert marks_of(log, tmp_path)["text"].to_list() == [f"gapscope::{text}"]


def test_a_bracket_that_closed_later_is_one_mark(tmp_path):
    log = LogFile(rank=0)
    log.mark("produce", 10, **KEY)
    log.text_mark("submit src=0 dst=1 seq=58 note=1", 15)
    log.mark("submit", 20, **KEY)
    log.mark("produce", 10, 40, **KEY)
    log.text_mark("submit src=0 dst=1 seq=58 note=1", 15, 50)
    found = marks_of(log, tmp_path).select("mark", "seq", "end_ns").rows()
    assert found == [("produce", 57, EPOCH_NS + 40), ("submit", 58, EPOCH_NS + 50), ("submit", 57, None)]


def test_an_open_bracket_of_another_thread_or_slot_stays_open(tmp_path):
    log = LogFile(rank=1)
    log.mark("receive", 10, **KEY)
    log.mark("receive", 10, thread=2, **KEY)
    log.mark("receive", 10, slot=1, **KEY)
    log.mark("receive", 10, 40, thread=3, **KEY)
    log.mark("receive", 10, 30, **KEY)
    ends = marks_of(log, tmp_path).sort("thread", "slot")["end_ns"].to_list()
    assert ends == [EPOCH_NS + 30, None, None, EPOCH_NS + 40]


def test_times_of_the_device_are_points_with_an_error(tmp_path):
    log = LogFile(rank=0, gpu={"device": 3, "name": "H", "uuid": "u"})
    log.device_time("producer_finish", 70, 600, **KEY)
    trace = load(log.write(tmp_path / "a.gslog"), LoadOptions(use_cache=False))
    row = trace.marks.row(0, named=True)
    assert (row["start_ns"], row["end_ns"], row["error_ns"]) == (EPOCH_NS + 70, EPOCH_NS + 70, 600)
    assert trace.sources["gpu_device"].to_list() == [3]


@pytest.mark.parametrize(("asked_ns", "source"), [(None, "recorded"), (900_000, "recorded"), (968_000, "estimated")])
def test_an_end_that_came_as_soon_as_it_was_asked_for_is_estimated(tmp_path, asked_ns, source):
    """The stream may have been idle: the work before ended no later, and nobody knows when."""
    one, two = LogFile(rank=0, gpu={"device": 0}), LogFile(rank=1, pid=11, gpu={"device": 0})
    one.mark("produce", 100, 900_000, **KEY)
    one.mark("submit", 1_100_000, 1_200_000, **KEY)
    one.device_time("producer_finish", 1_000_000, 2_500, asked_ns=asked_ns, **KEY)
    two.mark("receive", 100, 200, **KEY)
    two.mark("consume", 300, 400, **KEY)
    two.device_time("available", 2_000_000, 2_500, asked_ns=200, **KEY)
    two.device_time("consumer_start", 2_000_100, 2_500, asked_ns=300, **KEY)
    paths = [one.write(tmp_path / "a.gslog"), two.write(tmp_path / "b.gslog")]
    (row,) = gapscope.analyze(paths).handoffs.rows(named=True)
    assert row["producer_finish_ns"] == EPOCH_NS + 1_000_000
    assert (row["producer_finish_source"], row["available_source"]) == (source, "recorded")
    assert row["consumer_start_source"] == "estimated"


# The file ---------------------------------------------------------------------------------------------------------


def test_what_the_file_says_of_itself(tmp_path):
    log = LogFile(rank=None, pid=42, host="n1", boot_id="q")
    log.process(rank=3, pid=42, host="n1", boot_id="q", gpu={"device": 1})
    log.mark("submit", 100, 250, **KEY)
    source = read(log.write(tmp_path / "a.gslog"))
    info = source.info
    assert (info.tool, info.host, info.boot_id, info.clock, info.truncated) == ("gapscope", "n1", "q", "unix", False)
    assert (info.epoch_ns, info.system_clock_ns, info.claim_error_ns) == (EPOCH_NS, ZERO_NS, 50)
    assert source.tables["processes"].collect().select("process", "pid", "file_rank").rows() == [(42, 42, 3)]
    assert source.windows.rows() == [(42, EPOCH_NS + 100, EPOCH_NS + 250, 0)]


@pytest.mark.parametrize(("suffix", "packed"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_compressed_logs_are_read_alike(tmp_path, suffix, packed):
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY, kind="pp")
    log.text_mark("submit src=0 dst=1 seq=58 note=1", 300, 400)
    plain = log.write(tmp_path / "a.gslog")
    other = tmp_path / f"a.gslog{suffix}"
    other.write_bytes(packed(plain.read_bytes()))
    one, two = read(plain), read(other)
    assert one.own_marks.equals(two.own_marks)
    assert one.tables["ranges"].collect().equals(two.tables["ranges"].collect())
    assert one.windows.equals(two.windows)


def test_a_kept_log_is_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 0)
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY, kind="pp")
    log.text_mark("submit src=0 dst=1 seq=58 note=1", 300, 400)
    log.note("cost", brackets=3, begin_ns=1000, end_ns=500)
    path, options = log.write(tmp_path / "a.gslog"), LoadOptions(cache_dir=tmp_path / "cache")
    first, second, fresh = load(path, options), load(path, options), load(path, LoadOptions(use_cache=False))
    assert first.marks.equals(fresh.marks)
    assert second.marks.equals(fresh.marks)
    assert second.sources.equals(fresh.sources)
    assert fresh.marks.height == 2


@pytest.mark.parametrize("head", [b"gapscope mark log 1\n", b"gapscope mark log 3\n", b"gapscope mark log \n"])
def test_another_version_is_named(tmp_path, head):
    path = tmp_path / "a.gslog"
    path.write_bytes(head.ljust(LOG_SLOT_BYTES))
    version = head.split()[-1].decode() if head.split()[-1].isdigit() else r"\(none\)"
    with pytest.raises(UnsupportedVersionError, match=rf"a\.gslog: .* version {version}, .* reads version 2\."):
        read(path)


def test_no_other_content_is_a_log():
    assert not MARK_LOG.sniff(None, b"gapscope marks")
    assert MARK_LOG.sniff(None, LOG_HEAD)


def test_logs_in_a_folder_are_found(tmp_path):
    (tmp_path / "run" / "gapscope-marks").mkdir(parents=True)
    for rank in (0, 1):
        log = LogFile(rank=rank, pid=10 + rank)
        log.mark("submit" if rank == 0 else "receive", 100, 250, **KEY, device="cpu")
        log.write(tmp_path / "run" / "gapscope-marks" / f"rank{rank}-{10 + rank}.gslog")
    trace = load(tmp_path / "run", LoadOptions(use_cache=False))
    assert trace.processes["rank"].to_list() == [0, 1]
    assert trace.marks.height == 2


# Damage -----------------------------------------------------------------------------------------------------------


def intact(n=20):
    log = LogFile(rank=0)
    for k in range(n):
        log.mark("submit", 100 * k, 100 * k + 50, src=0, dst=1, seq=k, kind="pp")
    return log


@pytest.mark.parametrize("cut", [1, 40, 95, 96, 96 * 3 + 5])
def test_a_cut_file_loses_its_end_alone(tmp_path, cut):
    raw = b"".join(intact().slots)[:-cut]
    path = tmp_path / "a.gslog"
    path.write_bytes(raw)
    source = read(path)
    whole = -(-cut // 96)
    assert source.own_marks["seq"].to_list() == list(range(20 - whole))
    assert source.info.truncated == (cut % 96 > 0)
    assert source.info.dropped == ({"damaged": 1} if cut % 96 else {})


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_file_cut_anywhere_near_its_head_is_read_or_refused(tmp_path, length):
    path = tmp_path / "a.gslog"
    path.write_bytes(b"".join(intact().slots)[:length])
    if length < len(b"gapscope mark log "):
        with pytest.raises(gapscope.GapscopeError):
            read(path)
    else:
        assert read(path).own_marks.height == 0


def test_a_cut_compressed_log_loses_its_end_alone(tmp_path):
    log = intact(20_000)
    packed = gzip.compress(b"".join(log.slots))
    path = tmp_path / "a.gslog.gz"
    path.write_bytes(packed[: len(packed) // 2])
    source = read(path)
    seqs = source.own_marks["seq"].to_list()
    assert 0 < len(seqs) < 20_000
    assert seqs == list(range(len(seqs)))
    assert source.info.truncated
    assert any("the gzip stream ends before its own end" in f.message for f in source.findings)


@pytest.mark.parametrize(
    ("slot", "reason"),
    [
        (bytes(96), "damaged"),
        (b"\x09" + bytes(95), "unknown_type"),
        (b"\x03" + b"rest of nothing".ljust(95), "damaged"),
        (b"\x01\x63" + bytes(94), "unknown_mark"),
        (b"\x02\x00\x00\x00\xff\x00\x00\x00" + bytes(88), "damaged"),
        (b"\x01\x01\x00\x00" + b"\xff" * 92, "damaged"),
        (b"\x02\x01\x00\x00\x04\x00\x00\x00" + bytes(24) + b"{no}".ljust(64, b"\0"), "damaged"),
        (b"\x02\x00\x00\x00\x02\x00\x00\x00" + bytes(24) + b"\xc3\x28".ljust(64, b"\0"), "damaged"),
    ],
    ids=["zeros", "type", "stray text", "mark", "text without its rest", "times", "json", "utf-8"],
)
def test_a_bad_slot_costs_itself(tmp_path, slot, reason):
    log = intact()
    log.slots.insert(12, slot)
    source = read(log.write(tmp_path / "a.gslog"))
    assert source.own_marks["seq"].to_list() == list(range(20))
    assert source.info.dropped == {reason: 1}
    assert source.info.truncated == (reason == "damaged")
    assert [(f.code, f.count) for f in source.findings] == [(f"log_{reason}", 1)]


def test_an_unknown_word_costs_its_field(tmp_path):
    log = intact()
    word = next(k for k, slot in enumerate(log.slots) if slot[:2] == b"\x02\x02")
    del log.slots[word]
    source = read(log.write(tmp_path / "a.gslog"))
    assert source.own_marks["kind"].to_list() == [None] * 20
    assert source.own_marks["seq"].to_list() == list(range(20))
    assert source.info.dropped == {"unknown_word": 20}


def test_a_group_that_no_word_names_is_no_key(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 1, 2, group="tp0", seq=4)
    word = next(k for k, slot in enumerate(log.slots) if slot[:2] == b"\x02\x02")
    del log.slots[word]
    source = read(log.write(tmp_path / "a.gslog"))
    assert source.own_marks.height == 0
    assert source.info.dropped == {"without_key": 1}


def test_flipped_bytes_never_stop_the_reader(tmp_path):
    import random

    raw, chance = b"".join(intact().slots), random.Random(7)
    path = tmp_path / "a.gslog"
    for _ in range(200):
        changed = bytearray(raw)
        for _ in range(3):
            changed[chance.randrange(LOG_SLOT_BYTES, len(raw))] = chance.randrange(256)
        path.write_bytes(changed)
        source = read(path)
        assert source.own_marks.height <= 20 + 3
        assert {t: f.collect().height for t, f in source.tables.items() if t in ("ops", "calls")} == {
            "ops": 0,
            "calls": 0,
        }


# Clocks -----------------------------------------------------------------------------------------------------------


def test_the_narrowest_anchor_places_the_marks(tmp_path):
    log = LogFile(rank=0, anchor=900, epoch_ns=EPOCH_NS + 600)
    log.anchor(1_000, EPOCH_NS + 1_000, half_ns=20)
    log.anchor(2_000, EPOCH_NS + 2_300, half_ns=400)
    log.mark("submit", 100, 250, **KEY)
    source = read(log.write(tmp_path / "a.gslog"))
    assert source.own_marks["start_ns"].to_list() == [EPOCH_NS + 100]
    assert (source.info.epoch_ns, source.info.claim_error_ns) == (EPOCH_NS + 1_000, 20)
    assert source.findings == ()


def test_a_wall_clock_that_was_set_is_told_and_moves_nothing(tmp_path):
    log = LogFile(rank=0)
    second = 1_000_000_000
    log.mark("submit", 100, 250, **KEY)
    log.anchor(10 * second, EPOCH_NS + 10 * second + 3_000_000, half_ns=5)
    log.mark("submit", 10 * second + 100, 10 * second + 250, src=0, dst=1, seq=58)
    source = read(log.write(tmp_path / "a.gslog"))
    assert source.own_marks["start_ns"].to_list() == [EPOCH_NS + 100, EPOCH_NS + 10 * second + 100]
    (finding,) = source.findings
    assert (finding.code, finding.count) == ("wall_clock_stepped", 1)
    assert "+3,000,000 ns" in finding.message


def test_what_two_readings_may_differ_by_is_no_step(tmp_path):
    log = LogFile(rank=0)
    second = 1_000_000_000
    log.anchor(10 * second, EPOCH_NS + 10 * second + 300_000)  # 30 ppm
    log.mark("submit", 100, 250, **KEY)
    assert read(log.write(tmp_path / "a.gslog")).findings == ()


def test_without_an_anchor_times_count_from_the_first_mark(tmp_path):
    log = LogFile(rank=0, anchor=None)
    log.mark("submit", 100, 250, **KEY)
    source = read(log.write(tmp_path / "a.gslog"))
    assert (source.info.clock, source.info.epoch_ns, source.info.system_clock_ns) == ("relative", None, ZERO_NS + 100)
    assert source.own_marks["start_ns"].to_list() == [0]
    assert [f.code for f in source.findings] == ["log_without_anchor"]


def two_logs(tmp_path, **second):
    for rank, own in ((0, {}), (1, second)):
        log = LogFile(rank=rank, pid=10 + rank, **own)
        mark = "submit" if rank == 0 else "receive"
        log.mark(mark, 100 + rank, 250, **KEY, device="cpu")
        log.write(tmp_path / f"rank{rank}.gslog")
    return load(tmp_path, LoadOptions(use_cache=False))


def test_logs_of_one_boot_share_their_clock_exactly(tmp_path):
    trace = two_logs(tmp_path, anchor=400, epoch_ns=EPOCH_NS + 333)
    assert trace.marks["start_ns"].to_list() == [EPOCH_NS + 100, EPOCH_NS + 101]
    analysis = gapscope.analyze(trace)
    rows = analysis.alignment.filter(pl.col("rank") == 1).select("offset_ns", "lo_ns", "hi_ns", "assumed").unique()
    assert rows.rows() == [(0, 0, 0, "system clock")]


@pytest.mark.parametrize("other", [{"boot_id": "c"}, {"host": "z"}])
def test_logs_of_two_boots_keep_their_own_absolute_time(tmp_path, other):
    trace = two_logs(tmp_path, epoch_ns=EPOCH_NS + 333, **other)
    assert trace.marks["start_ns"].to_list() == [EPOCH_NS + 100, EPOCH_NS + 333 + 101]
    assert set(gapscope.analyze(trace).alignment["assumed"].drop_nulls()) <= {""}


# Who wrote it -----------------------------------------------------------------------------------------------------


def test_the_rank_is_that_of_the_last_record_whatever_the_name(tmp_path):
    log = LogFile(rank=0)
    log.process(rank=4, pid=10, host="a", boot_id="b")
    log.mark("step", 1, 2, step=1)
    trace = load(log.write(tmp_path / "rank0-10.gslog"), LoadOptions(use_cache=False))
    assert trace.processes.select("rank", "rank_source").rows() == [(4, "file")]


def test_marks_of_another_rank_than_the_process_are_an_error(tmp_path):
    log = LogFile(rank=4)
    log.mark("submit", 1, 2, **KEY)
    with pytest.raises(IdentityError, match="process 10 is rank 0 by its marks and rank 4 by the file's own field"):
        load(log.write(tmp_path / "a.gslog"), LoadOptions(use_cache=False))


def test_windows_of_one_process_are_one_run(tmp_path):
    for number, start in enumerate((100, 5_000)):
        log = LogFile(rank=0)
        log.mark("submit", start, start + 50, src=0, dst=1, seq=number)
        log.write(tmp_path / f"rank0-10-{number}.gslog")
    trace = load(tmp_path, LoadOptions(use_cache=False))
    assert trace.processes["primary"].to_list() == [True, True]
    assert trace.marks["seq"].to_list() == [0, 1]


def test_two_logs_of_one_rank_at_one_time_are_an_error(tmp_path):
    for pid in (10, 11):
        log = LogFile(rank=0, pid=pid)
        log.mark("submit", 100, 150, **KEY)
        log.write(tmp_path / f"rank0-{pid}.gslog")
    with pytest.raises(IdentityError, match="Rank 0 was recorded twice at the same time by the mark log"):
        load(tmp_path, LoadOptions(use_cache=False))


def test_two_logs_of_one_rank_and_two_processes_are_two_runs(tmp_path):
    for pid in (10, 11):
        log = LogFile(rank=0, pid=pid)
        log.mark("submit", 100 * pid, 100 * pid + 50, **KEY)
        log.write(tmp_path / f"rank0-{pid}.gslog")
    with pytest.raises(IdentityError, match="The files form several runs: rank 0 is process 10 in one and 11"):
        load(tmp_path, LoadOptions(use_cache=False))


# Notes ------------------------------------------------------------------------------------------------------------


def test_marks_inside_a_graph_capture_are_told(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY)
    log.note("captured", mark="submit")
    log.note("captured", mark="consume")
    finding = findings_of(log, tmp_path)["marks_while_capturing"]
    assert finding.message.startswith("Marks (consume, submit) were called while a CUDA graph was captured")
    assert "replay" in finding.hint


def test_times_of_the_device_that_were_lost_are_told(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY)
    log.note("device_times_lost", count=7)
    assert findings_of(log, tmp_path)["device_times_lost"].count == 7


def test_what_marks_cost_is_kept(tmp_path):
    log = LogFile(rank=0)
    log.mark("submit", 100, 250, **KEY)
    log.note("cost", brackets=12, begin_ns=1_500, end_ns=900)
    sources = load(log.write(tmp_path / "a.gslog"), LoadOptions(use_cache=False)).sources
    assert json.loads(sources["marks_cost"][0]) == {"brackets": 12, "begin_ns": 1_500, "end_ns": 900}


# The real emitter -------------------------------------------------------------------------------------------------


def test_what_the_instrumentation_writes_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    emitter = LogEmitter(tmp_path)
    said = {"step": 3, "mb": 2, "bytes": 99, "dir": "fwd", "src_stage": 1, "dst_stage": 2, "kind": "pp"}
    plain = handoff.Handoff(5, 6, 7, channel=1, slot=2, transport="nccl", name="act", device="cpu", **said)
    others = [
        handoff.Handoff(5, handoff.host(3), 8),
        handoff.Handoff(None, None, 9, group="tp0", rank=5),
        handoff.Handoff(5, 6, 10, color="blue", job="prefill"),
        handoff.Handoff(5, 6, 11, mb=2**40),
    ]
    for one in (plain, *others):
        emitter.end(emitter.begin(MARKS.index("submit"), one))
    left_open = emitter.begin(MARKS.index("submit"), handoff.Handoff(5, 6, 12))
    emitter.device_time(MARKS.index("producer_finish"), plain, 10**12, 10**12 - 50, 640, 1)
    emitter.note("captured", mark="produce")
    emitter.close()
    trace = load(tmp_path, LoadOptions(use_cache=False))
    marks = trace.marks.filter(pl.col("error_ns").is_null())
    columns = ["src", "dst", "group", "seq", "channel", "slot", "step", "mb", "size_bytes", "dir", "src_stage"]
    columns += ["dst_stage", "kind", "transport", "name", "device", "job"]
    nothing = [None] * 11
    assert left_open is not None
    assert marks.sort("seq").select(columns).rows() == [
        (5, 6, None, 7, 1, 2, 3, 2, 99, "fwd", 1, 2, "pp", "nccl", "act", "cpu", None),
        (5, -4, None, 8, 0, 0, *nothing),
        (None, None, "tp0", 9, 0, 0, *nothing),
        (5, 6, None, 10, 0, 0, *nothing[1:], "prefill"),
        (5, 6, None, 11, 0, 0, None, 2**40, *nothing[2:]),
        (5, 6, None, 12, 0, 0, *nothing),
    ]
    assert (marks.filter(pl.col("seq") < 12)["end_ns"] >= marks.filter(pl.col("seq") < 12)["start_ns"]).all()
    assert marks.filter(pl.col("seq") == 12)["end_ns"].to_list() == [None]
    assert trace.marks.filter(pl.col("error_ns") == 640).select("mark", "seq").rows() == [("producer_finish", 7)]
    assert "marks_while_capturing" in {f.code for f in trace.findings}
    assert trace.processes.select("rank", "rank_source").rows() == [(5, "mark")]
    assert set(read(next(tmp_path.glob("*.gslog"))).tables) == set(READER_TABLES)


@pytest.mark.parametrize("name", ["17", "65535", "65536", "tp0", "0", "007"])
def test_groups_have_the_number_that_the_instrumentation_gives_them(name):
    assert group_number(name) == handoff.group_number(name)

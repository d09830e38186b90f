"""The clocks of the lab recordings, against bounds computed here from the rows, and against shifted copies."""

import gzip
import re
import sqlite3

import polars as pl
import pytest

import gapscope
from gapscope.clocks import AlignOptions, align
from gapscope.events import find_ends
from tests.integration.analyzed import analyzed, of_runs, paths_or_skip
from tests.reference.runs import RUNS

DAY_NS = 86_400 * 10**9
SHIFTS = [37_000_000, -250_000_000, 90 * DAY_NS]

# Bound of how fast the clocks of two files may part (30 ppm each) over the steps of any lab run, and then some.
DRIFT_NS = 12_000


def aligned(paths, **options):
    trace = gapscope.load(paths)
    return trace, align(trace, find_ends(trace), AlignOptions(**options))


def hosts_during_handoffs(paths, **options):
    """Return the summary of each host clock, by file name."""
    analysis = gapscope.analyze(paths, clocks=AlignOptions(**options))
    return hosts_of(analysis), analysis


def hosts_of(analysis):
    return {entry["path"].rsplit("/", 1)[-1]: entry for entry in analysis.summary["clocks"]["hosts"]}


def shifted_copy(path, by_ns, folder):
    """Return a copy of a recording whose absolute time is off."""
    copy = folder / path.name
    if path.name.endswith(".json.gz"):
        text = gzip.decompress(path.read_bytes())
        base = re.search(rb'"baseTimeNanoseconds":\s*(\d+)', text)
        text = text.replace(base[0], b'"baseTimeNanoseconds": %d' % (int(base[1]) + by_ns))
        copy.write_bytes(gzip.compress(text, 1))
        return copy
    copy = copy.with_suffix("")
    copy.write_bytes(gzip.decompress(path.read_bytes()))
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (by_ns,))
    connection.close()
    return copy


# Two tools ------------------------------------------------------------------------------------------------------------


def nested_bounds(trace, rank):
    """Return the bounds of torch's offset against nsys by the marks that both recorded, from the rows alone.

    The range of nsys was opened first and closed last.
    """
    marks = trace.marks.filter(pl.col("rank") == rank).join(trace.sources.select("source", "tool"), on="source")
    outer, inner = (marks.filter(pl.col("tool") == tool) for tool in ("nsys", "torch"))
    pairs = outer.join(inner, on="text", suffix="_torch")
    assert pairs.height == 60
    low = (pairs["start_ns"] - pairs["start_ns_torch"]).max()
    high = (pairs["end_ns"] - pairs["end_ns_torch"]).min()
    return low, high


def test_two_tools_on_one_process_are_bounded_to_microseconds_by_their_nested_marks():
    paths = paths_or_skip("one_gpu_mailbox_both")
    trace, _ = aligned(paths)
    hosts, _ = hosts_during_handoffs(paths)
    for rank in (0, 1):
        low, high = nested_bounds(trace, rank)
        assert -4_000 < low < 0 < high < 4_000
        entry = hosts[f"mailbox_both_rank{rank}.json.gz"]
        assert entry["quality"] == "bounded"
        assert entry["offset_min_ns"] == entry["offset_max_ns"] == 0
        # Never tighter than the marks allow, and not looser than drift between the first and the last of them.
        assert low - 2_500 <= entry["lo_ns"] <= low
        assert high <= entry["hi_ns"] <= high + 2_500
        assert "120 nested" in entry["method"]


def test_the_merged_rank_stands_on_the_clock_of_its_gpu_work():
    _, analysis = hosts_during_handoffs(paths_or_skip("one_gpu_mailbox_both"))
    assert analysis.summary["clocks"]["reference"].endswith("mailbox_both.sqlite.gz:host")
    assert analysis.handoffs["status"].to_list() == ["complete"] * 20
    assert analysis.handoffs["uncertainty_ns"].max() < 20_000


def test_two_tools_that_claim_times_an_hour_apart_are_brought_together(tmp_path):
    paths = paths_or_skip("one_gpu_mailbox_both")
    late = shifted_copy(paths[1], 5_000_000, tmp_path)
    hosts, analysis = hosts_during_handoffs([paths[0], late, paths[2]])
    entry = hosts[late.name]
    assert -5_000_000 - 4_500 <= entry["lo_ns"] <= entry["hi_ns"] <= -5_000_000 + 4_500
    assert entry["quality"] == "bounded"
    assert "clock_assumption_refuted" in [f.code for f in analysis.findings]


# One tool on each rank ------------------------------------------------------------------------------------------------

TORCH_RUNS = [name for name, files in RUNS if len(files) == 2 and "torch" in name]
MIXED_RUNS = ["one_gpu_mailbox_mixed", "two_gpus_nccl_mixed"]


def test_there_are_runs_to_test():
    assert len(TORCH_RUNS) > 8


@of_runs(TORCH_RUNS)
def test_the_ranks_of_torch_runs_are_bounded_by_messages_both_ways(run):
    alignment = analyzed(run).timebase
    ranks = alignment.table.filter((pl.col("domain") == "host") & (pl.col("rank") == 1))
    assert set(ranks["quality"]) == {"bounded"}
    assert set(ranks["offset_ns"]) == {0}  # one host, so what the files claim is true
    assert (ranks["lo_ns"] <= 0).all()
    assert (ranks["hi_ns"] >= 0).all()
    narrowest = (ranks["hi_ns"] - ranks["lo_ns"]).min()
    assert narrowest < 400_000
    assert [f.code for f in alignment.findings if f.level == "warning"] == []


@pytest.mark.parametrize("run", MIXED_RUNS)
def test_messages_in_one_direction_bound_one_side(run):
    hosts, analysis = hosts_during_handoffs(paths_or_skip(run))
    (entry,) = [e for e in hosts.values() if e["quality"] != "same_clock"]
    assert entry["quality"] == "half_bounded"
    assert -60_000 < entry["lo_ns"] <= 0
    assert entry["hi_ns"] is None
    assert analysis.handoffs["gap_uncertainty_ns"].null_count() == 20
    assert analysis.handoffs["order"].to_list() == ["ok"] * 20


@pytest.mark.parametrize("run", MIXED_RUNS)
def test_one_host_bounds_the_other_side(run):
    hosts, analysis = hosts_during_handoffs(paths_or_skip(run), same_host=True)
    (entry,) = [e for e in hosts.values() if e["quality"] != "same_clock"]
    assert entry["quality"] == "half_bounded"
    assert -50_500 <= entry["lo_ns"] <= 0
    assert entry["hi_ns"] == 50_500  # what nsys and torch may be off: 50 and 0.5 µs
    assert entry["assumed"] == "gpu mapping, same host"
    assert analysis.handoffs["gap_uncertainty_ns"].is_between(50_500, 75_000).all()


@pytest.mark.parametrize("run", ["two_gpus_f1b1_torch"])
def test_batches_without_metadata_on_their_kernels_bound_the_clocks_too(run):
    _, alignment = aligned(paths_or_skip(run))
    host = alignment.table.filter((pl.col("domain") == "host") & (pl.col("rank") == 1))
    assert set(host["method"]) == {"64 send recv"}
    assert set(host["quality"]) == {"bounded"}


@pytest.mark.parametrize("shift", [0, *SHIFTS])
def test_no_collective_starts_after_it_ended_elsewhere(shift, tmp_path):
    paths = paths_or_skip("two_gpus_tp_torch")
    trace, alignment = aligned([paths[0], shifted_copy(paths[1], shift, tmp_path)])
    kernels = trace.comms.filter(pl.col("correlation").is_not_null() & (pl.col("op") == "allreduce"))
    kernels = kernels.join(
        trace.ops.select("source", "process", "correlation", "device"), on=["source", "process", "correlation"]
    )
    kernels = alignment.domains.with_domain(kernels, "device", "", "clock")
    moved = kernels.with_columns(
        start_ns=pl.col("start_ns") + alignment.offsets(kernels["clock"], kernels["start_ns"]),
        end_ns=pl.col("end_ns") + alignment.offsets(kernels["clock"], kernels["end_ns"]),
    ).sort("start_ns")
    moved = moved.with_columns(k=pl.int_range(pl.len()).over("rank"))
    both = moved.filter(pl.col("rank") == 0).join(moved.filter(pl.col("rank") == 1), on="k", suffix="_1")
    assert both.height == 64
    assert (both["start_ns"] <= both["end_ns_1"]).all()
    assert (both["start_ns_1"] <= both["end_ns"]).all()


# Shifted copies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", SHIFTS)
@of_runs(["one_gpu_mailbox_none_torch", "two_gpus_nccl_none_torch", "one_gpu_gloo_none_torch"])
def test_handoffs_stay_the_same_within_the_interval_when_one_file_is_shifted(run, shift, tmp_path):
    paths, as_recorded = paths_or_skip(run), analyzed(run)
    hosts = hosts_of(as_recorded)
    late = shifted_copy(paths[1], shift, tmp_path)
    other_hosts, shifted = hosts_during_handoffs([paths[0], late])
    assert shifted.handoffs["status"].to_list() == as_recorded.handoffs["status"].to_list()
    assert "violation" not in shifted.handoffs["order"].to_list()
    keys = ["src_rank", "dst_rank", "channel", "seq"]
    both = as_recorded.handoffs.join(shifted.handoffs, on=keys, suffix="_shifted")
    assert both.height == as_recorded.handoffs.height > 0
    difference = (both["gap_ns"] - both["gap_ns_shifted"]).abs()
    assert (difference <= both["gap_uncertainty_ns"]).all()
    assert (difference <= both["gap_uncertainty_ns_shifted"]).all()
    for part in ("submission", "consumer_wait"):  # within one rank nothing changes
        a, b = gapscope.with_phases(as_recorded.handoffs), gapscope.with_phases(shifted.handoffs)
        assert (a.sort(keys)[f"{part}_ns"] - b.sort(keys)[f"{part}_ns"]).abs().max() <= DRIFT_NS
    before, after = hosts[paths[1].name], other_hosts[late.name]
    # The windows lie elsewhere by the difference of the offsets; what drift may do within one is all that changes.
    assert abs(after["lo_ns"] + shift - before["lo_ns"]) <= 1_000
    assert abs(after["hi_ns"] + shift - before["hi_ns"]) <= 1_000


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.xdist_group("one_gpu_mailbox_none_torch")
def test_the_user_may_say_the_shift(shift, tmp_path):
    paths, as_recorded = paths_or_skip("one_gpu_mailbox_none_torch"), analyzed("one_gpu_mailbox_none_torch")
    late = shifted_copy(paths[1], shift, tmp_path)
    hosts, told = hosts_during_handoffs([paths[0], late], offsets={1: -shift})
    assert hosts[late.name]["offset_min_ns"] == -shift
    # Which file comes first changes where windows end, and so what drift may do within one.
    bounds = [c for c in told.handoffs.columns if c.endswith("uncertainty_ns")]
    assert told.handoffs.drop(bounds).equals(as_recorded.handoffs.drop(bounds))
    for bound in bounds:
        assert (told.handoffs[bound] - as_recorded.handoffs[bound]).abs().max() <= 200


def test_a_file_that_is_refuted_and_open_on_one_side_cannot_be_placed(tmp_path):
    paths = paths_or_skip("one_gpu_mailbox_mixed")
    early = shifted_copy(paths[1], -250_000_000, tmp_path)
    hosts, analysis = hosts_during_handoffs([paths[0], early])
    assert hosts[early.name]["quality"] == "half_bounded"
    assert hosts[early.name]["offset_min_ns"] is None
    assert hosts[early.name]["lo_ns"] > 249_900_000
    (finding,) = [f for f in analysis.findings if f.code == "unaligned_file"]
    assert "refute its own absolute time" in finding.message
    assert analysis.handoffs["status"].to_list() == ["unaligned"] * 20
    assert analysis.handoffs["gap_ns"].null_count() == 20


# Public recordings ----------------------------------------------------------------------------------------------------


def test_ranks_whose_communication_cannot_be_paired_stand_by_their_claims(public_trace):
    trace = gapscope.load(
        [
            public_trace("hta-sampled-pair/sampled_rank-0.json.gz"),
            public_trace("hta-sampled-pair/sampled_rank-1.json.gz"),
        ]
    )
    alignment = align(trace, find_ends(trace))
    host = alignment.table.filter((pl.col("domain") == "host") & (pl.col("rank") == 1))
    assert host.select("quality", "lo_ns", "hi_ns").rows() == [("wall_only", None, None)]


@pytest.fixture
def public_trace():
    from tests.reference.runs import REPOSITORY

    def find(name):
        path = REPOSITORY.parent / "shared" / "traces" / "public" / name
        if not path.exists():
            pytest.skip("the public recordings are not on this machine")
        return path

    return find


# Within one file ------------------------------------------------------------------------------------------------------


@of_runs(name for name, _ in RUNS)
def test_device_times_fit_host_times_to_ten_microseconds(run):
    trace, alignment = analyzed(run).trace, analyzed(run).timebase
    paths = dict(trace.sources.select("source", "path").iter_rows())
    own = pl.format("{}:host", pl.col("source").replace_strict(paths, return_dtype=pl.String))
    devices = alignment.table.filter((pl.col("domain") != "host") & (pl.col("reference") == own))
    if "gloo" not in run:
        assert devices.height >= 1
    assert devices["lo_ns"].is_between(-10_500, 0).all()
    assert devices["hi_ns"].is_between(0, 10_500).all()

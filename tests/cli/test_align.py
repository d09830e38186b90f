"""`gapscope align` as a user meets it, and the options about clocks that `gapscope analyze` shares with it."""

import io
import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import gapscope
from gapscope.clocks import AlignOptions, Anchor

DATA = Path(__file__).parents[1] / "data"
PAIR = [DATA / "two-gpus" / f"nccl_none_torch_rank{rank}.json.gz" for rank in (0, 1)]
MIXED = [DATA / "mailbox_mixed_rank0.sqlite.gz", DATA / "mailbox_mixed_rank1.json.gz"]
BOTH = [DATA / "mailbox_both.sqlite.gz", DATA / "mailbox_both_rank0.json.gz", DATA / "mailbox_both_rank1.json.gz"]


def host_of_rank(document, rank):
    (entry,) = [e for e in document["clocks"]["hosts"] if e["rank"] == rank]
    return entry


@pytest.fixture
def clocks(cli):
    """Run ``gapscope align --format json`` and return what it prints."""

    def run(*arguments):
        outcome = cli("align", "--format", "json", *arguments)
        assert (outcome.code, outcome.err) == (0, "")
        return json.loads(outcome.out)

    return run


# What comes out ---------------------------------------------------------------------------------------------------


def test_text_shows_reference_offset_interval_quality_and_constraints(cli):
    outcome = cli("align", *PAIR)
    assert (outcome.code, outcome.err) == (0, "")
    head, reference, other, devices = outcome.out.splitlines()[:4]
    assert head.split() == ["clock", "offset", "within", "(of", "it)", "drift", "quality", "from"]
    assert reference.split() == ["rank", "0", "reference"]
    analysis = gapscope.analyze(PAIR)
    entry = analysis.summary["clocks"]["hosts"][1]
    assert f"{entry['lo_ns'] / 1000:.1f} µs … +{entry['hi_ns'] / 1000:.1f} µs" in other
    assert "bounded" in other
    assert entry["method"] in other
    assert devices.startswith("Device times: within ")


def test_analyze_and_align_say_the_same(clocks):
    assert clocks(*PAIR)["clocks"] == json.loads(json.dumps(gapscope.analyze(PAIR).summary["clocks"]))


def test_verbose_shows_device_clocks(cli):
    text = cli("align", "-v", *PAIR).out
    assert "rank 0 gpu:0" in text
    assert "rank 1 gpu:1" in text


def test_out_writes_the_table_with_its_version(cli, tmp_path):
    assert cli("align", *PAIR, "--out", tmp_path / "new").code == 0
    written = tmp_path / "new" / "alignment.parquet"
    assert_frame_equal(pl.read_parquet(written), gapscope.analyze(PAIR).alignment)
    assert pl.read_parquet_metadata(written)["schema_version"] == "1"


def test_csv_is_the_table(cli):
    printed = pl.read_csv(io.StringIO(cli("align", *PAIR, "--format", "csv").out))
    table = gapscope.analyze(PAIR).alignment
    assert printed.columns == table.columns
    assert printed["lo_ns"].to_list() == table["lo_ns"].to_list()


def test_uncertainties_can_be_recomputed_from_the_tables():
    """As `alignment` says: the largest distance from the offset to an end, plus both resolutions."""
    analysis = gapscope.analyze(PAIR)
    paths = dict(analysis.trace.sources.select("path", "source").iter_rows())
    of_rank = {0: paths[str(PAIR[0])], 1: paths[str(PAIR[1])]}
    events = {
        "producer_finish": (0, "gpu:0"), "submit": (0, "host"), "movement_start": (0, "gpu:0"),
        "receive_post": (1, "host"), "available": (1, "gpu:1"), "consumer_start": (1, "gpu:1"),
    }  # fmt: skip
    names = {source: path for path, source in paths.items()}
    resolution = {"host": 1, "gpu:0": 32, "gpu:1": 32}
    for handoff in analysis.handoffs.iter_rows(named=True):
        largest = 0
        for one in set(events.values()):
            for two in set(events.values()) - {one}:
                rows = analysis.alignment.filter(
                    (pl.col("source") == of_rank[one[0]])
                    & (pl.col("domain") == one[1])
                    & (pl.col("reference") == f"{names[of_rank[two[0]]]}:{two[1]}")
                    & (pl.col("window_start_ns") <= handoff["consumer_start_ns"])
                    & (pl.col("window_end_ns") > handoff["consumer_start_ns"])
                )
                for row in rows.iter_rows(named=True):
                    distance = max(row["hi_ns"] - row["offset_ns"], row["offset_ns"] - row["lo_ns"])
                    largest = max(largest, distance + resolution[one[1]] + resolution[two[1]])
        assert handoff["uncertainty_ns"] == largest


# Options ----------------------------------------------------------------------------------------------------------


def test_offset_is_taken_where_the_recordings_allow_it(clocks):
    assert host_of_rank(clocks(*PAIR, "--offset", "1=5us"), 1)["offset_min_ns"] == 5_000


def test_offset_that_the_recordings_refute_is_not_taken(cli, clocks):
    entry = host_of_rank(clocks(*PAIR, "--offset", "1=37ms"), 1)
    assert entry["offset_max_ns"] <= entry["hi_ns"] < 100_000
    assert "was moved by -" in cli("align", "-v", *PAIR, "--offset", "1=37ms").out


def test_same_host_and_clock_bound_close_an_open_side(clocks):
    assert host_of_rank(clocks(*MIXED), 1)["hi_ns"] is None
    assert host_of_rank(clocks(*MIXED, "--same-host"), 1)["hi_ns"] == 50_500
    bounded = host_of_rank(clocks(*MIXED, "--clock-bound", "10us"), 1)
    assert (bounded["lo_ns"], bounded["hi_ns"]) == (-10_000, 10_000)
    assert "clock bound" in bounded["assumed"]


def test_anchors_place_a_rank_on_the_clock_they_are_against(clocks, tmp_path):
    trace = gapscope.load(MIXED)
    begin = trace.processes.filter(pl.col("rank") == 1)["window_start_ns"].min()
    rows = [f"{rank},{begin},{begin + 1_000_000},500" for rank in (0, 1)]
    path = tmp_path / "anchors.csv"
    path.write_text("\n".join(["rank,file_ns,reference_ns,error_ns", *rows]) + "\n")
    document = clocks(*MIXED, "--anchors", path)
    assert document["clocks"]["reference"] == "anchors"
    for rank in (0, 1):
        entry = host_of_rank(document, rank)
        assert entry["quality"] == "bounded"
        assert entry["lo_ns"] <= 1_000_000 - 500 < 1_000_000 + 500 <= entry["hi_ns"] <= 1_000_000 + 5_000
        assert "anchor" in entry["method"]
    options = AlignOptions(anchors=(Anchor(0, begin, begin, 500), Anchor(1, begin, begin, 500)))
    assert gapscope.analyze(MIXED, clocks=options).handoffs["gap_uncertainty_ns"].null_count() == 0


def test_analyze_takes_the_same_options(cli):
    arguments = ("analyze", *MIXED, "--format", "json", "--same-host")
    document = json.loads(cli(*arguments).out)
    assert host_of_rank(document["summary"], 1)["hi_ns"] == 50_500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "No recording was named"),
        ([*PAIR, "--offset", "1:5"], "give RANK=TIME"),
        ([*PAIR, "--offset", "1=5 weeks"], "give RANK=TIME"),
        ([*PAIR, "--offset", "7=5"], "no recording is of rank 7"),
        ([*PAIR, "--clock-bound", "-1us"], "give a time such as 10us"),
        ([*PAIR, "--clock-bound", "soon"], "give a time such as 10us"),
        ([*PAIR, "--anchors", "/nowhere/anchors.csv"], "cannot be read"),
        ([*PAIR, "--plot", "/nowhere/plot.html"], "/nowhere"),
        ([*PAIR, "--plot", "x.html", "--pair", "one"], "give two ranks"),
        ([*PAIR, "--plot", "x.html", "--pair", "0,7"], "No recording is of rank 7"),
        ([DATA / "mailbox_graph_nsys.sqlite.gz", "--plot", "x.html"], "only one clock"),
        (["/nowhere.json"], "/nowhere.json"),
    ],
)
def test_usage_errors_say_what_to_do(cli, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cli("align", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank,file_ns\n0,1\n", "lacks the column reference_ns"),
        ("", "lacks the column"),
        ("rank,file_ns,reference_ns\n0,1,2\n0,soon,2\n", "line 3: give whole numbers"),
        ("rank,file_ns,reference_ns,error_ns\n0,1,2,-5\n", "line 2: give whole numbers"),
        ("rank,file_ns,reference_ns\n9,1,2\n", "no recording is of rank 9"),
    ],
)
def test_bad_anchors_are_named_by_line(cli, tmp_path, text, said):
    path = tmp_path / "anchors.csv"
    path.write_text(text)
    outcome = cli("align", *PAIR, "--anchors", path)
    assert outcome.code == 2
    assert said in outcome.err


def test_a_bad_file_among_good_ones_costs_that_file(cli, tmp_path):
    broken = tmp_path / "rank9.json"
    broken.write_text("{")
    outcome = cli("align", *PAIR, broken)
    assert outcome.code == 0
    assert "rank 1" in outcome.out
    assert str(broken) in outcome.err
    assert cli("align", *PAIR, broken, "--strict").code == 3


# The plot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "options", "title"),
    [
        (PAIR, [], "Offset of rank 1 host against rank 0 host"),
        (PAIR, ["--pair", "0,1"], "Offset of rank 0 host against rank 1 host"),
        (BOTH, ["--pair", "0:torch,0:nsys"], "Offset of rank 0 host"),
    ],
)
def test_plot_is_one_page_about_the_pair(cli, tmp_path, files, options, title):
    page = tmp_path / "clocks.html"
    assert cli("align", *files, "--plot", page, *options).code == 0
    assert title in page.read_text()


def test_a_pair_that_two_tools_saw_needs_the_tool(cli, tmp_path):
    outcome = cli("align", *BOTH, "--plot", tmp_path / "clocks.html", "--pair", "0,1")
    assert outcome.code == 2
    assert "torch" in outcome.err

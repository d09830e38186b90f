"""`gapscope analyze` as a user meets it: what is printed, what is written, how it exits."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import gapscope
from gapscope.demo import DEMO_RECORDING

DATA = Path(__file__).parents[1] / "data"
MIXED = [DATA / "mailbox_mixed_rank0.sqlite.gz", DATA / "mailbox_mixed_rank1.json.gz"]
OUTPUTS = [
    "alignment.parquet", "exposure.parquet", "findings.json", "fixes.parquet", "handoffs.parquet",
    "interference.parquet", "messages.parquet", "slack.parquet", "summary.json", "tiles.parquet", "units.parquet",
    "waiting.parquet",
]  # fmt: skip
UNIT_NS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
QUANTILES = ("p50", "p90", "p99", "max")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def shell(*arguments, **environment):
    command = [sys.executable, "-m", "gapscope", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment}, timeout=300)
    return Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@pytest.fixture(scope="module")
def demo():
    return gapscope.analyze(DEMO_RECORDING)


@pytest.fixture
def unreadable(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("this is no recording\n")
    return path


@pytest.fixture
def unmarked(tmp_path):
    """A recording of one kernel and no marks."""
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}
    kernel["args"] = {"device": 0, "context": 1, "stream": 7, "correlation": 1}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [kernel]}))
    return path


def shown_durations(line):
    """Return ``(lowest, highest)`` ns that each printed duration of a line may stand for."""
    shown = re.findall(r"(\d[\d,]*(?:\.(\d+))?) (ns|µs|ms|s)\b", line)
    out = []
    for number, decimals, unit in shown:
        value = float(number.replace(",", "")) * UNIT_NS[unit]
        half_step = 0.5 * UNIT_NS[unit] / 10 ** len(decimals)
        out.append((value - half_step, value + half_step))
    return out


def line_of(text, start):
    (line,) = [line for line in text.splitlines() if re.match(start, line)]
    return line


def read_csv(text):
    return pl.read_csv(io.StringIO(text), infer_schema=False)


# Text -----------------------------------------------------------------------------------------------------------


def test_the_demo_reports_what_was_recorded(cli, demo):
    outcome = cli("analyze", "--demo")
    assert (outcome.code, outcome.err) == (0, "")
    headline = outcome.out.splitlines()[0]
    assert headline.startswith("20 handoffs")
    assert "complete" in headline
    assert f" {demo.summary['handoffs']['counted']} " in headline
    for rank in (0, 1):
        line = line_of(outcome.out, rf"{rank} +nsys ")
        assert DEMO_RECORDING.name in line
        assert " 60" in line  # marks
    assert "one host clock" in outcome.out


def test_the_demo_reports_the_numbers_of_the_summary(cli, demo):
    text = cli("analyze", "--demo").out
    (edge,) = demo.summary["edges"]
    expected = {r"0 → 1 ": edge["gap"]}
    for phase in ("submission", "start wait", "movement", "consumer wait"):
        expected[phase] = edge["phases"][phase.replace(" ", "_")]
    for start, spread in expected.items():
        shown = shown_durations(line_of(text, start))[:4]  # the fifth is the uncertainty
        assert len(shown) == 4
        for (low, high), quantile in zip(shown, QUANTILES, strict=True):
            assert low <= spread[f"{quantile}_ns"] <= high
    assert " mailbox " in line_of(text, "0 → 1 ")


def test_the_known_cause_of_the_demo_shows_in_the_submission_phase(demo):
    """Rank 0 sleeps 2 ms before each send."""
    (edge,) = demo.summary["edges"]
    assert edge["phases"]["submission"]["p50_ns"] > 2_000_000
    assert edge["gap"]["p50_ns"] - edge["phases"]["submission"]["p50_ns"] < 500_000


def test_how_the_causes_are_known_is_shown_as_shares_of_the_gap_time(cli, demo):
    counted = demo.handoffs.filter(pl.col("dominant_cause").is_not_null() & pl.col("steady"))
    tiles = demo.tiles.join(counted, on="handoff_id", how="semi")
    shown = re.search(
        r"Of gap time, by how it is known: (.+?)\. Unexplained: (\d+)%", " ".join(cli("analyze", "--demo").out.split())
    )
    of_level = {name: int(share) for name, share in re.findall(r"(\w+) (?:< )?(\d+)%", shown[1])}
    for level, ns in tiles.group_by("evidence").agg(pl.col("duration_ns").sum()).iter_rows():
        assert abs(of_level[level] - 100 * ns / counted["gap_ns"].sum()) <= 1
    unexplained = tiles.filter(pl.col("cause") == "unexplained")["duration_ns"].sum()
    assert int(shown[2]) == round(100 * unexplained / counted["gap_ns"].sum())


def test_kernels_are_named_without_their_arguments(cli):
    """Of a demangled name of some 600 characters, what a reader needs is which kernel it was."""
    text = " ".join(
        cli(
            "analyze", DATA / "mailbox_graph_torch_rank0.json.gz", DATA / "mailbox_graph_torch_rank1.json.gz"
        ).out.split()
    )
    assert "at::native::vectorized_elementwise_kernel of rank 0" in text
    assert "lambda" not in text
    assert "kernel<" not in text


def test_notes_are_shown_when_asked_for(cli):
    both = [DATA / "mailbox_both.sqlite.gz", DATA / "mailbox_both_rank0.json.gz", DATA / "mailbox_both_rank1.json.gz"]
    merged = "Rank 0 was seen by nsys and torch"
    assert merged in " ".join(cli("analyze", *both, "-v").out.split())
    quiet = cli("analyze", *both).out
    assert merged not in quiet
    assert "more with -v" in quiet


def test_no_handoffs_is_an_answer_with_a_hint(cli, unmarked):
    outcome = cli("analyze", unmarked)
    assert outcome.code == 0
    assert outcome.out.startswith("No handoffs found")
    assert "gapscope::submit" in outcome.out


# JSON, CSV, files -----------------------------------------------------------------------------------------------


def test_json_is_the_summary_and_the_findings(cli):
    outcome = cli("analyze", *MIXED, "--format", "json")
    analysis = gapscope.analyze(MIXED)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        "summary": analysis.summary,
        "findings": [asdict(finding) for finding in analysis.findings],
    }


def test_csv_has_one_line_per_handoff(cli, demo):
    outcome = cli("analyze", "--demo", "--format", "csv")
    assert (outcome.code, outcome.err) == (0, "")
    assert_frame_equal(read_csv(outcome.out), demo.handoffs.cast(pl.String))


def test_out_writes_the_tables(cli, tmp_path):
    outcome = cli("analyze", *MIXED, "--out", tmp_path / "new" / "results")
    analysis = gapscope.analyze(MIXED)
    out = tmp_path / "new" / "results"
    assert (outcome.code, outcome.err) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS
    assert_frame_equal(pl.read_parquet(out / "handoffs.parquet"), analysis.handoffs)
    assert_frame_equal(pl.read_parquet(out / "alignment.parquet"), analysis.alignment)
    for name in ("handoffs.parquet", "alignment.parquet"):
        assert pl.read_parquet_metadata(out / name)["schema_version"] == "1"
    findings = json.loads((out / "findings.json").read_text())
    assert findings == {"schema_version": 1, "findings": [asdict(finding) for finding in analysis.findings]}
    assert json.loads((out / "summary.json").read_text()) == analysis.summary
    assert analysis.summary["schema_version"] == 1


# Selection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("10:12", [10, 11, 12]),
        ("12", [12]),
        ("27:", [27, 28]),
        (":10", [9, 10]),
        ("40:50", []),
    ],
)
def test_steps_selects_handoffs(cli, steps, expected):
    outcome = cli("analyze", "--demo", "--format", "csv", "--steps", steps)
    assert outcome.code == 0
    assert list(map(int, read_csv(outcome.out)["step"])) == expected


def test_steps_of_more_digits_than_numbers_have(cli):
    assert "give a step or a range such as 10:20" in cli("analyze", "--demo", "--steps", f"{10**20}:").err
    outcome = cli("analyze", "--demo", "--format", "csv", "--last", str(10**20))
    assert (outcome.code, read_csv(outcome.out).height) == (0, 20)


@pytest.mark.parametrize(("ranks", "expected"), [("0", 20), ("1", 20), ("0,1", 20), ("2", 0), ("2,1", 20)])
def test_ranks_selects_handoffs(cli, ranks, expected):
    outcome = cli("analyze", "--demo", "--format", "csv", "--ranks", ranks)
    assert outcome.code == 0
    assert read_csv(outcome.out).height == expected


def test_a_selection_changes_what_is_shown_and_not_the_handoffs(cli, demo):
    part = read_csv(cli("analyze", "--demo", "--format", "csv", "--steps", "15:20").out)
    whole = demo.handoffs.filter(pl.col("step").is_between(15, 20)).cast(pl.String)
    assert_frame_equal(part, whole)


# Other options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("warmup", "steady"), [(1, 19), (2, 18), (5, 15)])
def test_warmup_says_how_many_steps_are_start_up(cli, warmup, steady):
    outcome = cli("analyze", "--demo", "--format", "csv", "--warmup", warmup)
    assert read_csv(outcome.out)["steady"].to_list() == ["false"] * (20 - steady) + ["true"] * steady


def test_job_names_the_handoffs_of_its_recordings(cli):
    outcome = cli("analyze", "--job", "decode=" + ",".join(map(str, MIXED)), "--format", "csv")
    assert outcome.code == 0
    assert read_csv(outcome.out)["job"].to_list() == ["decode"] * 20


def test_a_rank_that_contradicts_the_marks_is_wrong_usage(cli, demo):
    pid = demo.trace.processes.filter(pl.col("rank") == 1)["pid"].item()
    assert cli("analyze", "--demo", "--rank-of", f"{pid}=1").code == 0
    outcome = cli("analyze", "--demo", "--rank-of", f"{pid}=5")
    assert outcome.code == 2
    assert str(pid) in outcome.err
    assert "--rank-of" in outcome.err


def test_a_report_without_nsys_says_what_to_run_where(cli):
    report = DATA / "two-gpus" / "reports" / "mailbox_late_submit.nsys-rep"
    outcome = cli("analyze", report, "--nsys", "no/such/nsys")
    assert (outcome.code, outcome.out) == (3, "")
    assert "no/such/nsys" in outcome.err
    assert "nsys export --type sqlite" in outcome.err


# Exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["analyze"], "No recording was named"),
        (["analyze", "no/such/file.json"], "no/such/file.json"),
        (["analyze", "no/such/*.json"], "matches nothing"),
        (["analyze", "--demo", "--steps", "a:b"], "--steps a:b"),
        (["analyze", "--demo", "--steps", ":"], "--steps :"),
        (["analyze", "--demo", "--ranks", "zero"], "--ranks zero"),
        (["analyze", "--demo", "--rank-of", "7"], "--rank-of 7"),
        (["analyze", "--demo", "--job", "prefill"], "--job prefill"),
        (["analyze", "--demo", "--warmup", "-1"], "--warmup"),
        (["analyze", "--demo", "--format", "xml"], "xml"),
        (["analyze", "--demo", "--no-such-option"], "--no-such-option"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what(cli, arguments, complaint):
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err


def test_an_empty_folder_is_wrong_usage(cli, tmp_path):
    outcome = cli("analyze", tmp_path)
    assert outcome.code == 2
    assert "holds no files" in outcome.err


def test_several_runs_are_wrong_usage_and_listed(cli):
    one, other = DATA / "two-gpus" / "nccl_none_torch_rank0.json.gz", DATA / "gloo_none_torch_rank0.json.gz"
    outcome = cli("analyze", one, other)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.search(rf"run \d: \S*{re.escape(one.name)}\n", outcome.err)
    assert re.search(rf"run \d: \S*{re.escape(other.name)}\n", outcome.err)


def test_only_unreadable_files_exit_with_3(cli, unreadable):
    outcome = cli("analyze", unreadable)
    assert (outcome.code, outcome.out) == (3, "")
    assert str(unreadable) in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_an_unreadable_file_among_good_ones_is_one_line(cli, unreadable):
    outcome = cli("analyze", *MIXED, unreadable)
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert str(unreadable) in line
    assert outcome.out.startswith("20 handoffs")


def test_strict_makes_it_an_error(cli, unreadable):
    outcome = cli("analyze", *MIXED, unreadable, "--strict")
    assert outcome.code == 3
    assert str(unreadable) in outcome.err


def test_strict_does_not_mind_good_files(cli):
    assert cli("analyze", *MIXED, "--strict").code == 0


@pytest.mark.parametrize("blocked", ["", "handoffs.parquet", "summary.json"])
def test_an_out_that_cannot_be_written_to_is_wrong_usage(cli, tmp_path, blocked):
    out = tmp_path / "out"
    if blocked:
        (out / blocked).mkdir(parents=True)  # a folder in the place of a file
    else:
        out.write_text("a file in the place of the folder")
    outcome = cli("analyze", "--demo", "--out", out)
    assert (outcome.code, outcome.out) == (2, "")
    assert str(out) in outcome.err


# As a program ---------------------------------------------------------------------------------------------------


def test_the_program_prints_the_same(cli):
    assert shell("analyze", "--demo") == cli("analyze", "--demo")


def test_the_program_exits_with_the_same_codes(unreadable):
    assert shell("analyze").code == 2
    assert shell("analyze", unreadable).code == 3
    assert shell("analyze", *MIXED, unreadable, "--strict").code == 3


def test_the_version(cli):
    assert cli("--version") == (0, f"gapscope {gapscope.__version__}\n", "")


def test_help_without_a_command(cli):
    outcome = cli()
    assert "analyze" in outcome.out + outcome.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_the_report(encoding):
    outcome = shell("analyze", "--demo", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("20 handoffs")


@pytest.mark.parametrize("shape", ["text", "csv"])
def test_a_closed_pipe_is_no_error(shape):
    """As in ``gapscope analyze ... | head -1``."""
    command = [sys.executable, "-m", "gapscope", "analyze", "--demo", "--format", shape]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        program.stdout.close()
        assert program.stderr.read().decode() == ""

"""``gapscope compare`` as users meet it: two dashes, studies, exit codes, errors in words."""

from __future__ import annotations

import csv
import io
import json

import pytest

from gapscope.compare import read_run
from tests.compare.built import later, restarts
from tests.compare.conftest import EXAMPLES, recordings

pytestmark = pytest.mark.xdist_group("compare")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folders with results: built restarts of two recordings (see tests/compare/built.py), as if written by analyze."""
    folder = tmp_path_factory.mktemp("runs")
    for name, recording, seed in (("none", "mailbox_none", 1), ("late", "mailbox_late_submit", 2)):
        run = read_run(recordings(recording))[0]
        for k, made in enumerate(restarts(run, 4, seed=seed), 1):
            place = folder / name / str(k)
            place.mkdir(parents=True)
            for table in ("handoffs", "tiles", "units"):
                getattr(later(made, seed), table).write_parquet(place / f"{table}.parquet")
    return folder


def arm(folder, name, number=4):
    return [folder / name / str(k) for k in range(1, number + 1)]


def test_two_arms(cli, written):
    result = cli("compare", *arm(written, "none"), "--", *arm(written, "late"), "--names", "before,after")
    assert result.code == 0
    assert result.err == ""
    assert "after against before: 4 runs against 4" in result.out
    assert "step: slower" in result.out


def test_json_has_every_number_of_the_text(cli, written, tmp_path):
    arguments = ["compare", *arm(written, "none"), "--", *arm(written, "late")]
    told = json.loads(cli(*arguments, "--format", "json", "--out", tmp_path / "out.json").out)
    assert json.loads((tmp_path / "out.json").read_text()) == told
    assert told["metrics"][0]["verdict"] == "slower"
    rows = list(csv.DictReader(io.StringIO(cli(*arguments, "--format", "csv").out)))
    assert [row["metric"] for row in rows] == [m["metric"] for m in told["metrics"]]


@pytest.mark.parametrize(
    ("of_a", "of_b", "fail_on", "code"),
    [
        ("none", "late", "slower", 1),
        ("none", "late", "not-faster", 1),
        ("late", "none", "slower", 0),
        ("late", "none", "not-faster", 0),
    ],
)
def test_fail_on(cli, written, of_a, of_b, fail_on, code):
    result = cli("compare", *arm(written, of_a), "--", *arm(written, of_b), "--fail-on", fail_on)
    assert (result.code, result.err) == (code, "")


def test_without_a_verdict_nothing_fails_and_it_is_said(cli, written):
    result = cli("compare", *arm(written, "none", 1), "--", *arm(written, "late", 1), "--fail-on", "not-faster")
    assert result.code == 0
    assert "--fail-on not-faster had no verdict to go by (no claim (n=1 restart))" in result.err


@pytest.mark.parametrize("fmt", ["text", "json", "csv"])
def test_shipped_recordings_with_one_run_per_arm_claim_nothing(cli, fmt, tmp_path):
    page = tmp_path / "page.html"
    result = cli("compare", recordings("mailbox_none"), "--", recordings("mailbox_late_submit"), "--format", fmt,
                 "--report", page)  # fmt: skip
    assert result.code == 0
    for text in (result.out, page.read_text().partition('<script type="text/plain"')[0]):
        assert "no claim (n=1 restart)" in text
        assert not any(word in text for word in ("slower", "inconclusive", "equivalent"))


def test_the_cause_and_the_step_are_told(cli):
    told = json.loads(
        cli("compare", recordings("mailbox_none"), "--", recordings("mailbox_late_submit"), "--format", "json").out
    )
    gap, first = told["closure"][0], told["closure"][1]
    assert first["cause"] == "late_submission"
    assert first["difference_ns"] / gap["difference_ns"] > 0.9
    step = next(m for m in told["metrics"] if m["metric"] == "step")
    assert step["difference_ns"] > 1_500_000


STUDY = """
margin = "1%"
[[arm]]
name = "before"
runs = ["none/*"]
[[arm]]
name = "after"
label = "the sender sleeps"
runs = ["late/*"]
"""


def test_a_study(cli, written, tmp_path):
    file = written / "study.toml"
    file.write_text(STUDY)
    page = tmp_path / "page.html"
    result = cli("compare", file, "--report", page, "--fail-on", "slower")
    assert result.code == 1
    assert "after against before: 4 runs against 4" in result.out
    assert "the sender sleeps" in result.out
    assert "step: slower" in page.read_text()
    told = json.loads(cli("compare", file, "--format", "json").out)
    direct = json.loads(
        cli("compare", *arm(written, "none"), "--", *arm(written, "late"), "--margin", "1%", "--format", "json").out
    )
    assert [m["difference_ns"] for m in told["comparisons"][0]["metrics"]] == [
        m["difference_ns"] for m in direct["metrics"]
    ]
    rows = list(csv.DictReader(io.StringIO(cli("compare", file, "--format", "csv").out)))
    assert {row["arm"] for row in rows} == {"after"}


def test_a_sweep(cli, written, tmp_path):
    file = written / "sweep.toml"
    runs = {name: ", ".join(f'{{ path = "{name}/{k}", batch = {1 + k % 2} }}' for k in (1, 2, 3, 4))
            for name in ("none", "late")}  # fmt: skip
    file.write_text(
        f'[[arm]]\nname = "before"\nruns = [{runs["none"]}]\n[[arm]]\nname = "after"\nruns = [{runs["late"]}]\n'
        '[sweep]\nparameter = "batch"\nmetric = "step"\n'
    )
    page = tmp_path / "page.html"
    result = cli("compare", file, "--report", page)
    assert result.code == 0
    assert "indicative (2 restarts per arm): no crossover seen from 1 to 2" in result.out
    assert "no crossover seen from 1 to 2" in page.read_text()
    told = json.loads(cli("compare", file, "--format", "json").out)
    assert [row["value"] for row in told["sweep"]["rows"]] == [1.0, 2.0]
    assert cli("compare", file, "--format", "csv").out.startswith("value,base,arm,metric")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "two dashes"),
        (["a", "b"], "two dashes"),
        (["a", "--"], "Arm B has no run"),
        (["--", "b"], "Arm A has no run"),
        (["a", "--", "b", "--", "c"], "two dashes"),
        (["a", "--", "b"], "a"),
        (["no.toml"], "no.toml: cannot be read"),
        (["no.toml", "--margin", "2%"], "--margin with a study: write it into no.toml"),
        (["{}", "--", "{}", "--names", "one"], "give two names"),
        (["{}", "--", "{}", "--margin", "5 apples"], "--margin 5 apples: give a share"),
        (["{}", "--", "{}", "--primary", "gap 7 → 8"], "There is no metric 'gap 7 → 8'"),
        (["{}", "--", "{}", "--noise", "{}"], "--noise: 1 runs are no pairs"),
        (["{}", "{}", "--", "{}"], "has one recording twice"),
        (["{}", "--", "{}", "--noise", "{}", "--noise", "{}"], "A pair for the noise floor is one recording twice"),
        (["{}", "--", "{}", "--margin", "1e300%"], "--margin 1e300%: a margin above 100 %"),
        (["{}", "--", "{}", "--out", "{}/x", "--report", "{}/../1/x"], "--out and --report name one file"),
    ],
)
def test_errors_in_words(cli, written, arguments, words):
    run = str(written / "none" / "1")
    result = cli("compare", *(argument.format(run) for argument in arguments))
    assert result.code == 2
    assert result.out == ""
    assert words in result.err


def test_results_of_another_version_are_refused(cli, tmp_path):
    import polars as pl

    pl.DataFrame({"handoff_id": ["x"]}).write_parquet(tmp_path / "handoffs.parquet")
    result = cli("compare", tmp_path, "--", EXAMPLES / "mailbox_none_nsys.sqlite.gz")
    assert result.code == 2
    assert "another version of gapscope wrote it" in result.err


def test_whatif_writes_a_page(cli, tmp_path):
    page = tmp_path / "page.html"
    assert cli("whatif", "--demo", "--report", page).code == 0
    assert "What fixes would bring" in page.read_text()
    assert cli("whatif", "--demo", "--cause", "late_submission", "--report", page).code == 0
    assert "What if: late_submission := 0" in page.read_text()
    result = cli("whatif", "--demo", "--report", tmp_path / "no" / "page.html")
    assert result.code == 2
    assert "the report cannot be written" in result.err

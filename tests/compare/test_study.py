"""Studies as files: what they say, what is wrong with them in words, and what comes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gapscope.compare import Settings, compare, comparison_told, read_plan, run_study, study_told
from gapscope.compare.runs import Arm
from gapscope.errors import UsageError
from tests.compare.built import restarts


@pytest.fixture
def folder(tmp_path):
    for name in ("a1", "a2", "a10", "b1", "b2", "b3", "c1", "n1", "n2"):
        (tmp_path / name).mkdir()
    return tmp_path


def write(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return path


STUDY = """
title = "of two"
base = "before"
primary = "gap 0 → 1"
margin = "50us"
confidence = 0.9
noise = [["n1", "n2"]]
order = ["after", "before", "before", "after", "before", "after"]

[[arm]]
name = "after"
label = "with a fix"
runs = ["b1", { path = "b2", name = "second" }, { path = ["b3"], batch = 4 }]

[[arm]]
name = "before"
runs = ["a*"]
"""


def test_what_a_file_says(folder):
    plan = read_plan(write(folder, STUDY))
    before, after = plan.arms
    assert (before.name, after.name, after.label, plan.title) == ("before", "after", "with a fix", "of two")
    assert [run.name for run in before.runs] == ["a1", "a2", "a10"]
    assert [Path(path).name for run in before.runs for path in run.paths] == ["a1", "a2", "a10"]
    assert [run.place for run in before.runs] == [1, 2, 4]
    assert [(run.name, run.place) for run in after.runs] == [("b1", 0), ("second", 3), ("b3", 5)]
    assert after.runs[2].parameters == {"batch": 4.0}
    assert plan.settings == Settings("gap 0 → 1", 50_000.0, None, 0.9)
    assert [[run.name for run in pair] for pair in plan.noise] == [["n1", "n2"]]


TWO = '[[arm]]\nname = "a"\nruns = ["a1"]\n[[arm]]\nname = "b"\nruns = {}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "study.toml: is no TOML"),
        ("", "study.toml: arm: two or more tables"),
        ('[[arm]]\nname = "a"\nruns = ["a1"]', "arm: two or more tables"),
        (TWO.format("[]"), "arm 'b'.runs: is missing or empty"),
        (TWO.format('["zz"]'), "arm 'b'.runs: 'zz' does not exist in"),
        (TWO.format('["zz*"]'), "arm 'b'.runs: 'zz\\*' matches nothing in"),
        (TWO.format("[5]"), "arm 'b'.runs: 5 is no run"),
        (TWO.format('"b1"'), "arm 'b'.runs: 'b1' is no list"),
        (TWO.format("[{ name = 'x' }]"), "arm 'b'.runs.path: is missing"),
        (TWO.format("[{ path = 'b1', latencies = 'no.json' }]"), "arm 'b'.runs.latencies: 'no.json' does not exist"),
        (TWO.format("[{ path = 'b1', batch = 'four' }]"), "arm 'b'.runs.batch: 'four' is no number"),
        (TWO.format("['b1']").replace('"b"', '"a"'), "arm.name: 'a' stands twice"),
        ('base = "c"\n' + TWO.format("['b1']"), "base: there is no arm 'c': a, b"),
        ("base = 5\n" + TWO.format("['b1']"), "base: 5 is no text"),
        ('margin = "5 apples"\n' + TWO.format("['b1']"), "margin: 5 apples: give a share or a time"),
        ("confidence = 95\n" + TWO.format("['b1']"), "confidence: 95 is none"),
        ("noise = ['n1']\n" + TWO.format("['b1']"), "noise\\[0\\]: 'n1' is no pair"),
        ("noise = [['a*', 'n1']]\n" + TWO.format("['b1']"), "noise\\[0\\]: a pattern stands for several"),
        ("order = ['a']\n" + TWO.format("['b1']"), "order: 'b' has 1 runs and stands 0 times"),
        ("order = ['a', 'b', 'c']\n" + TWO.format("['b1']"), "order: there is no arm 'c'"),
        ("primry = 'step'\n" + TWO.format("['b1']"), "primry: is not known; there are title, base"),
        (TWO.format("['b1']") + "color = 'red'", "arm 2.color: is not known"),
        (TWO.format("['b1']") + "[sweep]\nmetric = 'gap'", "sweep.parameter: is missing"),
        ("sweep = 5\n" + TWO.format("['b1']"), "sweep: is no table"),
        (TWO.format("['b1']") + "[sweep]\nparameter = 'x'\nmetrics = 'gap'", "sweep.metrics: is not known"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(folder, text, words):
    with pytest.raises(UsageError, match=words) as error:
        read_plan(write(folder, text))
    assert str(error.value).startswith(f"{folder / 'study.toml'}: ")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"no\.toml: cannot be read"):
        read_plan(tmp_path / "no.toml")


def reading(none, late):
    """Return what reads the runs of a study: built restarts, by the first letter of their names."""
    made = {"a": restarts(none, 10, seed=1), "b": restarts(late, 3, seed=2), "c": restarts(late, 3, seed=3)}
    made["n"] = restarts(none, 2, seed=4)

    def read(plan):
        name = Path(plan.paths[0]).name
        return made[name[0]][int(name[1:]) - 1]

    return read


def test_a_folder_that_looks_like_a_pattern_is_itself(tmp_path):
    for name in ("a1", "b1", "b[1]"):
        (tmp_path / name).mkdir()
    plan = read_plan(write(tmp_path, TWO.format("['b[1]', { path = 'b[1]', name = 'again' }]")))
    assert [Path(run.paths[0]).name for run in plan.arms[1].runs] == ["b[1]", "b[1]"]


def test_a_study_is_its_comparison(folder, none, late):
    plan = read_plan(write(folder, STUDY))
    read = reading(none, late)
    found = run_study(plan, read)
    (comparison,) = found.comparisons
    before, after = (
        Arm(arm.name, [replace(read(run), name=run.name, place=run.place) for run in arm.runs]) for arm in plan.arms
    )
    direct = compare(before, after, plan.settings, [tuple(map(read, plan.noise[0]))])
    assert comparison.metrics.equals(direct.metrics)
    told = study_told(found)
    assert told["comparisons"] == [comparison_told(direct)]
    assert json.loads(json.dumps(told)) == told
    assert told["comparisons"][0]["metrics"][0]["verdict"] == "indicative"


def test_several_arms_share_the_confidence(folder, none, late):
    text = TWO.format("['b1', 'b2', 'b3']").replace('"a1"', '"a1", "a2", "a10"')
    text += '[[arm]]\nname = "c"\nruns = ["b3", "b1", "b2"]\n'
    found = run_study(read_plan(write(folder, text)), reading(none, late))
    assert [one.b.name for one in found.comparisons] == ["b", "c"]
    assert found.confidence == pytest.approx(0.975)
    two = run_study(read_plan(write(folder, text.rpartition("[[arm]]")[0])), reading(none, late)).comparisons[0]
    wide, narrow = (one.metrics.row(0, named=True) for one in (found.comparisons[0], two))
    assert wide["high_ns"] - wide["low_ns"] > narrow["high_ns"] - narrow["low_ns"]
    assert wide["difference_ns"] == narrow["difference_ns"]


def test_one_run_per_arm_claims_nothing(folder, none, late):
    found = run_study(read_plan(write(folder, TWO.format("['b1']"))), reading(none, late))
    (comparison,) = study_told(found)["comparisons"]
    assert {m["verdict"] for m in comparison["metrics"]} == {"no claim (n=1 restart)"}


def test_a_sweep_has_no_answer_for_all_values(folder, none, late):
    text = TWO.format("[{ path = 'b1', batch = 1 }, { path = 'b2', batch = 2 }]")
    text = text.replace('"a1"', "{ path = 'a1', batch = 1 }, { path = 'a2', batch = 2 }")
    found = run_study(
        read_plan(write(folder, text + "[sweep]\nparameter = 'batch'\nmetric = 'step'\n")), reading(none, late)
    )
    assert found.comparisons == ()
    told = study_told(found)["sweep"]
    assert [(row["value"], row["verdict"]) for row in told["rows"]] == [
        (1.0, "no claim (n=1 restart)"), (2.0, "no claim (n=1 restart)"),
    ]  # fmt: skip

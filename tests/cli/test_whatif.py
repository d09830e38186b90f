"""`gapscope whatif` as a user meets it."""

import csv
import io
import json
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import gapscope
from gapscope.cli import whatif as command
from gapscope.demo import DEMO_RECORDING
from gapscope.reports.fixes import render_fixes
from gapscope.reports.whatif import render_effects
from gapscope.schema import FIXES, SLACK, dtypes
from gapscope.wording import duration

DATA = Path(__file__).parents[1] / "data"
LOGS = [DATA / f"cpu_pipeline_rank{rank}.gslog" for rank in (0, 1)]


@cache
def demo():
    return gapscope.analyze(DEMO_RECORDING)


@pytest.fixture
def whatif(cli, monkeypatch):
    """Run ``gapscope whatif --demo`` on one analysis, made once."""
    monkeypatch.setattr(command, "analyze", lambda *_, **__: demo())

    def run(*arguments):
        return cli("whatif", "--demo", *arguments)

    return run


def as_json(whatif, *arguments):
    outcome = whatif(*arguments, "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def no_nonsense(text):
    """Nothing that a number can be printed as by mistake."""
    assert not re.search(r"-0(\.0+)? |\b(nan|None|null|inf)\b|-0%|\d{7,}", text), text


def test_chosen_steps_alone_are_replayed(cli):
    outcome = cli(
        "whatif", "--demo", "--cause", "late_submission", "--steps", "12:15", "--last", "3", "--format", "csv"
    )
    assert (outcome.code, outcome.err) == (0, "")
    rows = [row for row in csv.DictReader(io.StringIO(outcome.out)) if row["unit"] == "step"]
    assert {int(row["id"]) for row in rows} == {13, 14, 15}


@pytest.mark.parametrize("command", ["explain", "whatif", "whatif --cause late_submission", "whatif --handoff 0-1:12"])
def test_steps_that_are_not_there_are_said_with_those_that_are(cli, command):
    name, *options = command.split()
    outcome = cli(name, "--demo", *options, "--steps", "500:")
    assert (outcome.code, outcome.out) == (2, "")
    assert "leaves none of 20 handoffs. The recording has steps 9 to 28, and ranks 0, 1." in " ".join(
        outcome.err.split()
    )


# The ranked list --------------------------------------------------------------------------------------------------


def test_without_a_choice_all_causes_are_listed_with_the_numbers_of_the_json(whatif):
    found = as_json(whatif)
    assert found["fixes"] == demo().fixes.to_dicts() == demo().summary["fixes"]
    outcome = whatif()
    assert (outcome.code, outcome.err) == (0, "")
    no_nonsense(outcome.out)
    rows = {(f["cause"], f["rank"], f["to"]): f for f in found["fixes"]}
    lines = outcome.out.splitlines()
    for name, key in (
        ("late_submission @ rank 0", ("late_submission", 0)),
        ("submit_call @ rank 0", ("submit_call", 0)),
        ("all of them at once", (None, None)),
    ):
        (line,) = [text for text in lines if text.startswith(name)]
        gone, tenth = rows[*key, "0"], rows[*key, "p10"]
        assert duration(gone["sooner_high_p50_ns"], gone["uncertainty_ns"]) in line
        assert f"{max(gone['sooner_high_p50_ns'], gone['uncertainty_ns']) / gone['before_p50_ns']:.0%}" in line
        assert line.rstrip().endswith(duration(tenth["sooner_high_p50_ns"], tenth["uncertainty_ns"]))
    assert f"Medians over 19 steps of {duration(found['fixes'][0]['before_p50_ns'])}" in outcome.out


def test_csv_has_the_columns_of_the_table(whatif):
    rows = list(csv.DictReader(io.StringIO(whatif("--format", "csv").out)))
    assert list(rows[0]) == list(FIXES)
    assert [r["sooner_low_p50_ns"] for r in rows] == [str(ns) for ns in demo().fixes["sooner_low_p50_ns"]]
    units = list(csv.DictReader(io.StringIO(whatif("--cause", "late_submission", "--format", "csv").out)))
    assert len(units) == 20
    assert all(int(u["sooner_low_ns"]) <= int(u["sooner_high_ns"]) for u in units)


def test_analyze_writes_both_tables_and_prints_the_list(cli, tmp_path):
    outcome = cli("analyze", "--demo", "--out", tmp_path)
    assert outcome.code == 0
    assert pl.read_parquet(tmp_path / "fixes.parquet").equals(demo().fixes)
    assert pl.read_parquet(tmp_path / "slack.parquet").equals(demo().slack)
    assert demo().fixes.schema == dtypes(FIXES)
    assert demo().slack.schema == dtypes(SLACK)
    assert json.loads((tmp_path / "summary.json").read_text())["fixes"] == demo().fixes.to_dicts()


# One choice -------------------------------------------------------------------------------------------------------

CHOICES = [
    ("--cause", "late_submission"),
    ("--cause", "late_submission", "--to", "p10"),
    ("--to", "50%"),
    ("--edge", "0-1", "--phase", "start_wait"),
    ("--rank", "1"),
    ("--handoff", "0-1:12"),
    ("--handoff", "0>1/0/28", "--cause", "submit_call", "--to", "33.3%"),
    ("--to", "100%"),
]


@pytest.mark.parametrize("choice", CHOICES, ids=" ".join)
def test_the_numbers_of_the_text_are_those_of_the_json(whatif, choice):
    found, outcome = as_json(whatif, *choice), whatif(*choice)
    assert (outcome.code, outcome.err) == (0, "")
    no_nonsense(outcome.out)
    assert outcome.out.startswith(found["scenario"])
    assert f"{found['tiles']} tile" in outcome.out
    assert duration(found["gone_ns"]) in outcome.out
    over = found["over"]["step"]
    (line,) = [text for text in outcome.out.splitlines() if re.match(r"steps +\d", text)]
    for name in ("before_p50_ns", "after_low_p50_ns", "after_p10_ns", "after_p90_ns"):
        assert duration(over[name]) in line
    assert duration(over["sooner_low_p50_ns"], found["uncertainty_ns"]) in line
    # And all of them from the rows.
    steady = [u for u in found["units"] if u["steady"]]
    assert over["n"] == len(steady) == 19
    middle = sorted(u["sooner_low_ns"] for u in steady)[9]
    assert over["sooner_low_p50_ns"] == middle
    assert sum(u["sooner_low_ns"] for u in found["units"]) <= found["units"][-1]["end_sooner_high_ns"]
    assert found["selected"]["to"] == found["scenario"].split(":= ")[1]


def test_a_handoff_is_told_with_its_slack(whatif):
    text = whatif("--handoff", "0-1:12").out
    (row,) = as_json(whatif, "--handoff", "0-1:12")["handoffs"]
    expected = demo().handoffs.filter(pl.col("handoff_id") == "0>1/0/12").row(0, named=True)
    assert (row["gap_ns"], row["removable_ns"]) == (expected["gap_ns"], expected["removable_ns"])
    assert row["unit_slack_ns"] == demo().slack.filter(pl.col("handoff_id") == "0>1/0/12")["unit_slack_ns"][0]
    assert f"0>1/0/12: of a gap of {duration(row['gap_ns'])}, {duration(row['removable_ns'])} less" in text
    text = whatif("--handoff", "0-1:28").out
    assert "0>1/0/28: " in text
    slack = demo().slack.filter(pl.col("handoff_id") == "0>1/0/28")["unit_slack_ns"][0]
    assert 0 < slack < 1_000_000  # within its own step, which rank 0 ends
    assert f"It could have come {duration(slack)} later" in " ".join(text.split())


# Refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cause", "bad luck"], "There is no cause 'bad luck'"),
        (["--cause", ""], "There is no cause ''"),
        (["--cause", "slot_wait"], "No tile fits (slot_wait := 0). Causes that there are: event_release"),
        (["--phase", "lunch"], "There is no phase 'lunch'"),
        (["--edge", "1"], "--edge 1: give two ranks such as 0-1."),
        (["--edge", "0-99999999999"], "give two ranks"),
        (["--edge", "1-0"], "No tile fits (all causes of 1 → 0 := 0)"),
        (["--rank", "-1"], "No tile fits (all causes @ rank -1 := 0)"),
        (["--rank", "99999999999999999999999"], "No tile fits"),
        (["--handoff", "0-1:999"], "Handoff 0-1:999: there is none"),
        (["--handoff", ""], "Handoff"),
        (["--to", "half"], "'half': give 0, a share such as 50%, or p10."),
        (["--to", "-1%"], "give 0, a share"),
        (["--to", "200%"], "give 0, a share"),
        (["--to", "0.5"], "give 0, a share"),
    ],
)
def test_wrong_choices_are_refused_in_a_sentence(whatif, arguments, said):
    outcome = whatif(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_words_are_refused_before_anything_is_read(cli):
    outcome = cli("whatif", "no-such-file.json", "--cause", "bad luck")
    assert outcome.code == 2
    assert "bad luck" in outcome.err


def test_nothing_named(cli):
    outcome = cli("whatif")
    assert outcome.code == 2
    assert "--demo" in outcome.err


def test_recordings_without_an_end_to_reach_say_so(cli, tmp_path):
    outcome = cli("whatif", *LOGS)
    assert (outcome.code, outcome.out) == (2, "")
    assert "steps or requests that are marked" in outcome.err
    found = json.loads(cli("whatif", *LOGS, "--format", "json").out)
    assert found["fixes"] == []
    empty = tmp_path / "rank0.json"
    empty.write_text('{"traceEvents": []}')
    for arguments, code in (([empty], 2), ([empty, "--cause", "movement"], 2), ([tmp_path / "none.json"], 2)):
        outcome = cli("whatif", *arguments)
        assert (outcome.code, outcome.out) == (code, "")
        assert outcome.err.strip()


def test_steps_that_are_none_are_refused(cli):
    assert cli("analyze", "--demo", "--steps", "none").code == 2
    outcome = cli("analyze", "--demo", "--steps", "900:901")
    assert outcome.code == 0
    assert "if it were gone" not in outcome.out


# Rendered by hand -------------------------------------------------------------------------------------------------


def printed(parts):
    console = Console(file=io.StringIO(), width=140)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


FIX = {
    "unit": "step", "cause": "movement", "rank": 1, "to": "0", "units": 3, "before_p50_ns": 1_000_000,
    "sooner_low_p50_ns": -20_000, "sooner_high_p50_ns": 50_000, "is_sensitive": True, "handoffs": 3,
    "handoff_ns": 9_000, "not_replayed_ns": 0, "uncertainty_ns": None,
}  # fmt: skip


def test_a_gain_that_may_be_none_is_shown_with_both_bounds():
    text = printed(render_fixes([FIX, {**FIX, "cause": "flag_wait", "sooner_high_p50_ns": 0}]))
    assert "movement @ rank 1" in text
    assert "-20.0 µs … 50.0 µs" in text
    assert "hangs on how long launches take" in text
    assert "flag_wait" not in text  # it reaches no end
    assert "1 other cause would bring less than 0.2% of a step, by" in " ".join(text.split())


@pytest.mark.parametrize(
    ("floor", "gain", "share"),
    [
        (None, "8.00 µs … 50.0 µs", "5%"),
        (0, "8.00 µs … 50.0 µs", "5%"),
        (8_000, "8.00 µs … 50.0 µs", "5%"),
        (8_001, "< 8.00 µs … 50.0 µs", "5%"),
        (50_000, "< 50.0 µs … 50.0 µs", "5%"),
        (60_000, "< 60.0 µs", "< 6%"),
    ],
)
def test_a_gain_below_the_clock_error_is_no_number(floor, gain, share):
    fix = {**FIX, "sooner_low_p50_ns": 8_000, "is_sensitive": False, "uncertainty_ns": floor}
    (row,) = [line for line in printed(render_fixes([fix])).splitlines() if "movement" in line]
    assert re.split(r"\s{2,}", row.strip()) == ["movement @ rank 1", gain, share, "-"]
    found = {
        "scenario": "movement := 0", "tiles": 1, "gone_ns": 5_000, "not_replayed_ns": 0, "uncertainty_ns": floor,
        "over": {"step": {"n": 3, "before_p50_ns": 1_000_000, "sooner_low_p50_ns": 8_000, "sooner_high_p50_ns": 50_000,
                          "after_low_p50_ns": 950_000, "after_high_p50_ns": 992_000, "after_p10_ns": 950_000,
                          "after_p90_ns": 992_000}},
        "handoffs": [],
    }  # fmt: skip
    (row,) = [line for line in printed([render_effects(found)]).splitlines() if line.strip().startswith("steps")]
    assert re.split(r"\s{2,}", row.strip())[4:6] == [gain, share]


def test_units_of_no_length_and_none_at_all():
    assert render_fixes([]) == []
    unknown = printed(render_fixes([{**FIX, "sooner_low_p50_ns": None, "sooner_high_p50_ns": None}]))
    assert "what they would bring is not known" in unknown
    assert FIX["cause"] in unknown
    text = printed(render_fixes([{**FIX, "before_p50_ns": 0, "sooner_low_p50_ns": 0, "sooner_high_p50_ns": 0}]))
    no_nonsense(text)


def test_a_scenario_that_reaches_nothing():
    found = {
        "scenario": "movement := 0", "tiles": 1, "gone_ns": 5_000, "not_replayed_ns": 5_000,
        "uncertainty_ns": 0,
        "over": {"step": {"n": 0}, "request": {"n": 0}},
        "handoffs": [{"handoff_id": "a", "gap_ns": 9_000, "removable_ns": None, "unit_slack_ns": 0,
                      "absorbed_rank": None, "absorbed_by": None}],
    }  # fmt: skip
    text = printed([render_effects(found)])
    assert "1 tile of gaps shrinks: 5.00 µs of handoff time gone; of it, 5.00 µs before nothing" in text
    assert "no end to reach" in text
    assert "a: of a gap of 9.00 µs. Had it come later, some end would have, too." in text

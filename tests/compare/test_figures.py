"""Figures of comparisons have the numbers of their tables, and pages show them."""

from __future__ import annotations

import re
from itertools import pairwise

import polars as pl
import pytest

from gapscope.compare import Arm, compare, comparison_told
from gapscope.page.compared import comparison_page
from gapscope.page.simple import render_page
from gapscope.plots.compared import closure_spec, differences_spec, distributions_spec, paired_spec
from gapscope.reports.comparison import closure_edges
from tests.compare.built import restarts

NAMES = ("none", "late")


@pytest.fixture(scope="module")
def found(none, late):
    return compare(Arm("none", restarts(none, 4, seed=1)), Arm("late", restarts(late, 4, seed=2)))


@pytest.fixture(scope="module")
def told(found):
    return comparison_told(found)


def trace(spec, name):
    (one,) = [t for t in spec["data"] if t["name"] == name]
    return one


def test_differences_are_those_of_the_table(told):
    spec = differences_spec(told)
    shown = [m for m in told["metrics"] if m["family"] != "cause"]
    below = [m for m in shown if abs(m["difference_ns"]) < m["clock_ns"]]
    assert below
    clear = [m for m in shown if m not in below]
    assert trace(spec, "difference")["x"] == [m["difference_ns"] / 1_000 for m in clear]
    assert trace(spec, "across restarts")["x"] == [
        end for m in clear for end in (m["low_ns"] / 1_000, m["high_ns"] / 1_000, None)
    ]
    assert trace(spec, "clocks")["x"] == [
        end for m in below for end in (-m["clock_ns"] / 1_000, m["clock_ns"] / 1_000, None)
    ]
    assert spec["layout"]["yaxis"]["ticktext"] == [m["metric"] for m in shown]
    assert len(trace(spec, "pairs")["x"]) == 4 * len(clear)


def test_of_one_pair_only_the_interval_within_it_is_drawn(none, late):
    told = comparison_told(compare(Arm("A", [none]), Arm("B", [late])))
    spec = differences_spec(told)
    assert trace(spec, "across restarts")["x"] == []
    within = [p for p in told["pairs"] if p["low_ns"] is not None and "@" not in p["metric"]]
    assert len(trace(spec, "within a pair")["x"]) == 3 * len(within)


@pytest.mark.parametrize("is_back", [False, True])
def test_the_waterfall_closes(found, is_back):
    arms = (found.b, found.a) if is_back else (found.a, found.b)
    (rows,) = closure_edges(comparison_told(compare(*arms))["closure"])
    data = closure_spec(rows, NAMES)["data"]
    first, *parts, last = data
    assert (first["x"][0], last["x"][0]) == (rows[0]["a_mean_ns"] / 1_000, rows[0]["b_mean_ns"] / 1_000)
    assert parts[0]["base"][0] == pytest.approx(first["x"][0])
    for one, two in pairwise(parts):
        assert two["base"][0] == pytest.approx(one["base"][0] + one["x"][0])
    assert parts[-1]["base"][0] + parts[-1]["x"][0] == pytest.approx(last["x"][0])
    assert sum(part["x"][0] for part in parts) == pytest.approx(rows[0]["difference_ns"] / 1_000)


def test_distributions_have_the_medians_of_the_table(found, told):
    metric = {m["metric"]: m for m in told["metrics"]}["gap 0 → 1"]
    spec = distributions_spec("gap 0 → 1", found.values, NAMES)
    for arm, column in (("a", "a_p50_ns"), ("b", "b_p50_ns")):
        lines = [t for t in spec["data"] if t["legendgroup"] == arm]
        assert len(lines) == 4
        medians = [pl.Series(line["x"]).quantile(0.5, interpolation="linear") for line in lines]
        assert sum(medians) / 4 == pytest.approx(metric[column] / 1_000)
        assert all(line["y"][-1] == 1.0 and len(line["y"]) == metric["n"] for line in lines)


def test_paired_values_have_the_differences_of_the_table(found, told):
    spec = paired_spec("step", found.values, NAMES)
    pairs = {(p["run_a"]): p for p in told["pairs"] if p["metric"] == "step"}
    dots = spec["data"][1:]
    assert len(dots) == len(pairs) == 4
    for dot, row in zip(dots, pairs.values(), strict=True):
        middle = (pl.Series(dot["y"]) - pl.Series(dot["x"])).median()
        assert middle == pytest.approx(row["difference_ns"] / 1_000)


def test_titles_do_not_judge(found, told):
    (rows,) = closure_edges(told["closure"])
    specs = [
        differences_spec(told), closure_spec(rows, NAMES), distributions_spec("step", found.values, NAMES),
        paired_spec("step", found.values, NAMES),
    ]  # fmt: skip
    for spec in specs:
        assert not re.search(r"faster|slower|better|worse|wins", spec["layout"]["title"]["text"])
        assert "µs" in spec["layout"]["xaxis"]["title"]["text"]


HOSTILE = "</script><img src=x onerror=alert(1)>&amp;"


def test_names_that_are_html_are_text(none, late):
    found = compare(Arm(HOSTILE, [none]), Arm("B", [late]))
    page = render_page(comparison_page(comparison_told(found), found.values), "0")
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;img src=x" in page
    for spec in (
        closure_spec(closure_edges(comparison_told(found)["closure"])[0], (HOSTILE, "B")),
        distributions_spec("step", found.values, (HOSTILE, "B")),
        paired_spec("step", found.values, (HOSTILE, "B")),
        differences_spec(comparison_told(found)),
    ):
        assert "<img" not in str(spec)

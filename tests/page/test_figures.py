"""Figures of the page: their numbers are those of the tables, and their dots can be picked."""

from __future__ import annotations

import polars as pl

from gapscope.summary import COUNTED
from tests.page.reading import pick, picked

DATA = "name => document.getElementById(`figure-${name}`).data"


def drawn(page, name):
    """Scroll to a figure and return its traces, arrays as lists."""
    place = page.locator(f"#figure-{name}")
    place.scroll_into_view_if_needed()
    page.wait_for_function("name => document.querySelector(`#figure-${name} .main-svg`)", arg=name)
    return page.evaluate(DATA, name)


def test_every_handoff_with_a_gap_is_a_dot_at_its_gap(seen, analysis_of):
    handoffs = analysis_of("zero_bubble").handoffs
    page = seen("zero_bubble")
    dots = {}
    for trace in drawn(page, "gaps"):
        if trace["mode"] == "markers":
            symbols = trace["marker"]["symbol"]
            for id_, gap, symbol in zip(trace["customdata"], trace["x"], symbols, strict=True):
                dots[id_] = round(gap * 1000), trace["name"], symbol == "circle"
    known = handoffs.filter(pl.col("gap_ns") > 0).select(
        "handoff_id", "gap_ns", "dominant_cause", COUNTED.alias("counted")
    )
    assert dots == {id_: (gap, cause or "not explained", counted) for id_, gap, cause, counted in known.iter_rows()}
    assert len(dots) > 100


def test_shares_of_causes_are_those_of_the_summary(seen, analysis_of):
    causes = analysis_of("zero_bubble").summary["causes"]
    page = seen("zero_bubble")
    edges = [e for e in causes["edges"] if e["gap_ns"]]
    shares = {}
    for trace in drawn(page, "causes"):
        for y, x in zip(trace["y"], trace["x"], strict=True):
            shares[(y, trace["name"])] = shares.get((y, trace["name"]), 0) + x
    meant = {}
    for y, edge in enumerate(edges):
        for row in edge["causes"]:
            meant[(y, row["cause"])] = meant.get((y, row["cause"]), 0) + row["handoff_ns"] / edge["gap_ns"]
    assert {k: round(v, 9) for k, v in shares.items()} == {k: round(v, 9) for k, v in meant.items()}


def test_parts_of_a_step_sum_to_its_length(seen, analysis_of):
    analysis = analysis_of("demo")
    page = seen("demo")
    sums = {}
    for trace in drawn(page, "units"):
        for x, y in zip(trace["x"], trace["y"], strict=True):
            sums[x] = sums.get(x, 0) + y
    units = analysis.units.filter(pl.col("unit") == "step").sort("start_ns")
    lengths = ((units["end_ns"] - units["start_ns"]) / 1000).to_list()
    assert [round(sums[x], 3) for x in sorted(sums)] == [round(v, 3) for v in lengths]


def test_a_click_on_a_dot_picks_its_handoff(opened):
    page = opened("demo")
    picked(page, "0>1/0/28")
    traces = drawn(page, "history-0")
    number = traces[0]["customdata"].index("0>1/0/20")
    point = page.locator("#figure-history-0 .scatterlayer .point").nth(number)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(150)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    picked(page, "0>1/0/20")


def test_pictures_of_the_clocks(seen):
    page = seen("gloo")
    traces = drawn(page, "clock-0")
    assert any(trace["name"] == "chosen offset" for trace in traces)
    assert page.locator("#clocks figcaption").first.text_content().startswith("Offset of ")


def test_figures_are_told_in_words(seen):
    page = seen("demo")
    labels = page.eval_on_selector_all(".plot", "plots => plots.map(plot => plot.getAttribute('aria-label'))")
    assert len(labels) >= 6
    assert all(len(label) > 20 for label in labels if label != "Timeline")
    pick(page, "0>1/0/28")
    assert "late_submission 2.17 ms" in page.locator("#timeline").get_attribute("aria-label")

"""Figures show the numbers of the tables, and nothing else."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import gapscope
from gapscope.demo import DEMO_RECORDING
from gapscope.figures import FIGURES
from gapscope.plots import held as held_plots
from gapscope.plots.gaps import MOST_PLAIN_DOTS, gaps_spec, history_spec
from gapscope.plots.held import causes_spec, phases_spec, units_spec
from gapscope.plots.timeline import timeline_spec
from gapscope.reports import lanes
from gapscope.reports.lanes import render_timeline
from gapscope.summary import COUNTED
from gapscope.testing import Recording, trace
from gapscope.views.gaps import gaps_of
from gapscope.views.looks import CAUSE_LOOKS, OUTSIDE_LOOKS
from gapscope.wording import duration, edge_name

DATA = Path(__file__).parents[1] / "data"
RUNS = {
    "demo": [DEMO_RECORDING],
    "gloo": [f"gloo_none_torch_rank{r}.json.gz" for r in (0, 1)],
    "1f1b": [f"examples/pp_1f1b_torch_rank{r}{end}" for r in (0, 1) for end in (".json.gz", ".gslog")],
    "tp": [f"two-gpus/tp_torch_rank{r}.json.gz" for r in (0, 1)],
}
BEGIN = 1_700_000_000 * 10**9


@cache
def analysis(name):
    return gapscope.analyze([DATA / file for file in RUNS[name]])


@pytest.fixture(params=RUNS)
def run(request):
    return analysis(request.param)


def hostile(name="<b>evil</b><script>alert(1)</script>"):
    """Two ranks, one handoff; kernels and the file have names that are code in a page."""
    a, b = Recording("<i>a</i>", pid=10), Recording("b", pid=11)
    t, key = BEGIN, "src=0 dst=1 seq=1 step=1"
    a.mark(f"produce {key}", t, t + 110_000)
    a.kernel(t + 10_000, t + 30_000, t + 200_000, name=name)
    a.mark(f"submit {key}", t + 500_000, t + 620_000)
    a.kernel(t + 600_000, t + 640_000, t + 700_000, stream=9, name=name)
    b.mark(f"receive {key}", t + 100_000, t + 710_000)
    b.kernel(t + 600_000, t + 720_000, t + 800_000, stream=9, name=name)
    b.mark(f"consume {key}", t + 720_000, t + 900_000)
    b.kernel(t + 730_000, t + 900_000, t + 950_000, name=name)
    return gapscope.analyze(trace(a, b))


def sums(traces, name):
    return {t["name"]: sum(t[name]) for t in traces}


def close(value, wanted):
    return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-6)


# One handoff over time ------------------------------------------------------------------------------------------


def pictures(run, most=5):
    for key in run.tiles["handoff_id"].unique(maintain_order=True).head(most):
        handoff = run.handoff(key)
        yield handoff, timeline_spec(handoff.timeline)


def of_cause(spec):
    return [t for t in spec["data"] if t["name"] in CAUSE_LOOKS]


def test_strip_and_lanes_show_each_tile(run):
    seen = 0
    for handoff, spec in pictures(run):
        tiles, zero = handoff.tiles, handoff.row["producer_finish_ns"]
        scale = 1_000_000 if "(ms)" in spec["layout"]["xaxis"]["title"]["text"] else 1_000
        for bars in of_cause(spec):
            mine = tiles.filter(pl.col("cause") == bars["name"])
            strip = [x for x, y in zip(bars["x"], bars["y"], strict=True) if y == -1]
            lying = sorted((base, x) for base, x, y in zip(bars["base"], bars["x"], bars["y"], strict=True) if y != -1)
            assert close(sum(strip) * scale, mine["duration_ns"].sum())
            placed = mine.filter(pl.col("lane").is_not_null() & pl.col("rank").is_not_null())
            wanted = sorted(((s - zero) / scale, d / scale) for s, d in placed.select("start_ns", "duration_ns").rows())
            assert all(
                close(a, b) for one, two in zip(lying, wanted, strict=True) for a, b in zip(one, two, strict=True)
            )
        assert {bars["name"] for bars in of_cause(spec)} == set(tiles["cause"])
        seen += 1
    assert seen


def test_strip_is_without_holes_and_as_long_as_the_gap(run):
    for handoff, spec in pictures(run):
        runs = sorted(
            (base, base + x)
            for bars in of_cause(spec)
            for base, x, y in zip(bars["base"], bars["x"], bars["y"], strict=True)
            if y == -1
        )
        scale = 1_000_000 if "(ms)" in spec["layout"]["xaxis"]["title"]["text"] else 1_000
        assert all(close(end, begin) for (_, end), (begin, _) in pairwise(runs))
        assert close(runs[0][0], 0)
        assert close(runs[-1][1] * scale, handoff.row["gap_ns"])


def test_lines_stand_at_the_events_and_bands_are_their_errors(run):
    for handoff, spec in pictures(run):
        events = handoff.timeline.events
        inside = events.filter(pl.col("at_ns").is_between(handoff.timeline.start_ns, handoff.timeline.end_ns))
        scale = 1_000_000 if "(ms)" in spec["layout"]["xaxis"]["title"]["text"] else 1_000
        zero = handoff.timeline.zero_ns
        lines = [s["x0"] for s in spec["layout"]["shapes"] if s["type"] == "line" and s.get("yref") == "paper"]
        assert [round(x * scale) + zero for x in lines] == inside["at_ns"].to_list()
        bands = [(s["x0"], s["x1"]) for s in spec["layout"]["shapes"] if s["type"] == "rect"]
        errors = inside.filter(pl.col("error_ns") > 0)
        assert [round((x1 - x0) * scale / 2) for x0, x1 in bands] == errors["error_ns"].to_list()


def test_labels_of_events_do_not_overlap_while_there_are_levels(run):
    for _, spec in pictures(run):
        labels = [a for a in spec["layout"]["annotations"] if not a["showarrow"]]
        low, high = spec["layout"]["xaxis"]["range"]
        for level in (4, 18):  # the uppermost takes what is left
            spans = []
            for label in [a for a in labels if a["yshift"] == level]:
                at, width = (label["x"] - low) / (high - low), len(label["text"]) * 0.0085
                left = {"left": at, "right": at - width, "center": at - width / 2}[label["xanchor"]]
                spans.append((left, left + width))
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(sorted(spans)))


def test_arrows_are_at_the_boundaries_of_tiles():
    for handoff, spec in pictures(analysis("demo")):
        arrows = [a for a in spec["layout"]["annotations"] if a["showarrow"]]
        assert len(arrows) == handoff.timeline.arrows.height == 2
        zero = handoff.timeline.zero_ns
        starts = handoff.tiles["start_ns"].to_list()
        assert all(round(a["x"] * 1_000) + zero in starts and a["x"] == a["ax"] and a["y"] != a["ay"] for a in arrows)


def test_bars_stay_in_their_row():
    for handoff, spec in pictures(analysis("1f1b")):
        ticks = spec["layout"]["yaxis"]["tickvals"][1:]
        assert len(ticks) == handoff.timeline.rows.height
        bottom = spec["layout"]["yaxis"]["range"][0]
        edges = [-0.5, *[(a + b) / 2 for a, b in pairwise(ticks)], bottom]
        assert all(a < b for a, b in pairwise(ticks))
        for bars in spec["data"]:
            if bars["type"] == "bar":
                for y, width in zip(bars["y"], bars["width"], strict=True):
                    assert y == -1 or edges[0] <= y - width / 2 < y + width / 2 <= edges[-1]


def test_title_says_what_the_clocks_allow():
    run = analysis("demo")
    row = run.handoff("0>1/0/28").row
    title = timeline_spec(run.handoff("0>1/0/28").timeline)["layout"]["title"]["text"]
    assert title == f"Handoff 0&gt;1/0/28: gap {duration(row['gap_ns'])} (± {duration(row['gap_uncertainty_ns'])})"


def test_names_from_traces_are_text():
    run = hostile()
    figure = run.handoff().figure().to_json()
    assert "evil" in figure
    assert "<script" not in figure
    assert "<b>evil" not in figure
    for html in (run.handoff()._repr_html_(), run._repr_html_()):
        assert "<script>" not in html


def test_long_windows_are_in_ms():
    a, b = Recording("a", pid=10), Recording("b", pid=11)
    key = "src=0 dst=1 seq=1 device=cpu"
    a.mark(f"produce {key}", BEGIN, BEGIN + 1_000)
    a.mark(f"submit {key}", BEGIN + 30_000_000, BEGIN + 31_000_000)
    b.mark(f"receive {key}", BEGIN, BEGIN + 32_000_000)
    b.mark(f"consume {key}", BEGIN + 33_000_000, BEGIN + 34_000_000)
    spec = timeline_spec(gapscope.analyze(trace(a, b)).handoff("0>1/0/1").timeline)
    assert spec["layout"]["xaxis"]["title"]["text"] == "time after producer finish (ms)"


# Gaps -----------------------------------------------------------------------------------------------------------


def test_every_gap_is_a_dot(run):
    gaps = gaps_of(run.handoffs, COUNTED)
    spec = gaps_spec(gaps, run.summary["edges"])
    dots = [t for t in spec["data"] if t["mode"] == "markers"]
    found = sorted((key, round(x * 1_000)) for t in dots for key, x in zip(t["customdata"], t["x"], strict=True))
    positive = gaps.filter(pl.col("gap_ns") > 0)
    assert found == sorted(positive.select("handoff_id", "gap_ns").rows())
    hollow = sum(symbol == "circle-open" for t in dots for symbol in t["marker"]["symbol"])
    assert hollow == (~positive["is_counted"]).sum()
    said = spec["layout"]["title"]["subtitle"]["text"]
    assert ("not above zero" in said) == (positive.height < gaps.height)


def test_bars_across_are_the_quantiles_of_the_summary(run):
    edges = [e for e in run.summary["edges"] if e["gap"]["n"]]
    spec = gaps_spec(gaps_of(run.handoffs, COUNTED), run.summary["edges"])
    for quantile in ("p50", "p90", "p99"):
        bars = next(t for t in spec["data"] if t["name"] == quantile)
        found = [round(x * 1_000) for x in bars["x"][::3]]
        assert found == [e["gap"][f"{quantile}_ns"] for e in edges if e["gap"][f"{quantile}_ns"] > 0]


def test_ticks_of_the_gap_axis_reach_around_all_gaps(run):
    spec = gaps_spec(gaps_of(run.handoffs, COUNTED), run.summary["edges"])
    ticks = spec["layout"]["xaxis"]["tickvals"]
    values = [x for t in spec["data"] if t["mode"] == "markers" for x in t["x"]]
    assert min(ticks) <= min(values)
    assert max(ticks) * 2 >= max(values)


def test_history_is_one_edge_and_its_histogram(run):
    gaps = gaps_of(run.handoffs, COUNTED)
    for edge in run.summary["edges"]:
        spec = history_spec(gaps, edge)
        mine = gaps.filter(pl.col("edge") == edge_name(edge))
        dots = [t for t in spec["data"] if t.get("mode") == "markers"]
        assert sorted(round(y * 1_000) for t in dots for y in t["y"]) == sorted(mine["gap_ns"])
        bars = [t for t in spec["data"] if t["type"] == "bar"]
        assert sum(sum(t["x"]) for t in bars) == mine["is_counted"].sum() == edge["gap"]["n"]
        for t in bars:
            assert all(a + w <= b + 1e-9 for (a, w), (b, _) in pairwise(zip(t["y"], t["width"], strict=True)))


def test_many_dots_are_drawn_by_webgl():
    gaps = gaps_of(analysis("demo").handoffs, COUNTED)
    many = pl.concat([gaps] * (MOST_PLAIN_DOTS // gaps.height + 1))
    kinds = [
        {t["type"] for t in gaps_spec(frame, analysis("demo").summary["edges"])["data"] if t["mode"] == "markers"}
        for frame in (gaps, many)
    ]
    assert kinds == [{"scatter"}, {"scattergl"}]


# What held them -------------------------------------------------------------------------------------------------


def test_shares_of_causes_are_those_of_the_summary(run):
    edges = [e for e in run.summary["causes"]["edges"] if e["gap_ns"]]
    spec = causes_spec(run.summary["causes"]["edges"])
    for row, edge in enumerate(edges):
        parts = {}
        for bars in spec["data"]:
            for x, y in zip(bars["x"], bars["y"], strict=True):
                if y == row:
                    parts[bars["name"]] = parts.get(bars["name"], 0) + x
        wanted = {}
        for cause in edge["causes"]:
            share = cause["handoff_ns"] / edge["gap_ns"]
            wanted[cause["cause"]] = wanted.get(cause["cause"], 0) + share
        assert parts.keys() == wanted.keys()
        assert all(close(parts[c], wanted[c]) for c in parts)
        assert close(sum(parts.values()), 1)


@pytest.mark.parametrize("name", ["demo", "1f1b", "tp"])
def test_parts_of_each_step_sum_to_its_length(name):
    run = analysis(name)
    spec = units_spec(run.units, run.exposure)
    shown = run.units.filter(pl.col("end_ns").is_not_null() & pl.col("start_ns").is_not_null()).sort("start_ns", "id")
    lengths = [0.0] * shown.height
    for bars in spec["data"]:
        for x, y in zip(bars["x"], bars["y"], strict=True):
            lengths[x] += y
    explained = set(run.exposure["id"])
    for unit, length in zip(shown.iter_rows(named=True), lengths, strict=True):
        if unit["id"] in explained:
            assert close(length * 1_000, unit["end_ns"] - unit["start_ns"])
    assert any(lengths)


def test_only_the_last_units_are_drawn_and_it_is_said(monkeypatch):
    run = analysis("demo")
    monkeypatch.setattr(held_plots, "MOST_UNITS", 5)
    spec = units_spec(run.units, run.exposure)
    assert {x for bars in spec["data"] for x in bars["x"]} == set(range(5))
    assert "the first 15 are not drawn" in spec["layout"]["title"]["subtitle"]["text"]


def test_phases_are_those_of_the_summary_and_hollow_below_the_clocks(run):
    edges = [e for e in run.summary["edges"] if e["gap"]["n"]]
    spec = phases_spec(run.summary["edges"])
    for dots in [t for t in spec["data"] if t["mode"] == "markers"]:
        phase = dots["name"].replace(" ", "_")
        with_phase = [e for e in edges if e["phases"][phase]["n"]]
        for x, symbol, edge in zip(dots["x"], dots["marker"]["symbol"], with_phase, strict=True):
            p50, bound = edge["phases"][phase]["p50_ns"], edge[f"{phase}_uncertainty_ns"] or 0
            assert close(x * 1_000, max(p50, bound))
            assert (symbol == "circle-open") == (p50 < bound)


# By name --------------------------------------------------------------------------------------------------------


def test_all_figures_have_titles_and_units():
    run = analysis("1f1b")
    for name in FIGURES:
        figure = run.figure(name)
        assert figure.layout.title.text
        units = [axis.title.text or "" for axis in (figure.layout.xaxis, figure.layout.yaxis)]
        assert any(word in text for text in units for word in ("µs", "ms", "share"))


def test_every_cause_has_a_look_of_its_own():
    assert set(CAUSE_LOOKS) == set(gapscope.causes.CAUSES)
    assert len(set(CAUSE_LOOKS.values())) == len(CAUSE_LOOKS)
    assert set(OUTSIDE_LOOKS) == set(gapscope.cause_names.OUTSIDE)


@pytest.mark.parametrize(
    ("name", "edge", "words"),
    [
        ("gap", None, "There is no figure 'gap': gaps, history"),
        ("history", "5 → 6", "There is no edge '5 → 6': 0 → 1."),
        ("causes", "0 → 1", "Figure 'causes' shows all edges"),
        ("clocks", None, "only one host clock"),
    ],
)
def test_what_cannot_be_drawn_is_said(name, edge, words):
    with pytest.raises(gapscope.UsageError, match=words):
        analysis("demo").figure(name, edge=edge)


@pytest.mark.parametrize("name", ["gaps", "history", "causes", "phases", "units", "clocks"])
def test_nothing_recorded_is_no_empty_figure(name):
    with pytest.raises(gapscope.UsageError, match=r"nothing to draw|no causes to draw|only one host clock"):
        gapscope.analyze(trace(Recording("a"))).figure(name)


# In the terminal ------------------------------------------------------------------------------------------------


def test_letters_are_the_causes_that_hold_most_of_each_column(run):
    for key in run.tiles["handoff_id"].unique(maintain_order=True).head(4):
        shown = run.handoff(key).timeline
        text = render_timeline(shown).plain.splitlines()
        line = next(line for line in text if line.startswith("held by"))
        legend = {t.split()[0]: t.split()[1] for t in text[text.index(line) + shown.rows.height + 2 :]}
        start = len(text[-1]) - len(text[-1].lstrip())
        cells = line.ljust(200)
        width = (shown.end_ns - shown.start_ns) / lanes.WIDTH
        for column in range(lanes.WIDTH):
            low, high = column * width, (column + 1) * width
            held = {}
            for tile in shown.tiles.iter_rows(named=True):
                begin, end = (tile[side] - shown.start_ns for side in ("start_ns", "end_ns"))
                shared = min(end, high) - max(begin, low)
                if shared > 0:
                    held[tile["cause"]] = held.get(tile["cause"], 0) + shared
            letter = cells[start + column]
            if not held:
                assert letter == " "
            else:
                assert held[legend[letter]] >= max(held.values()) - 2


def test_legend_gives_each_cause_and_its_time(run):
    key = run.tiles["handoff_id"][0]
    handoff = run.handoff(key)
    text = render_timeline(handoff.timeline).plain
    for cause, ns in handoff.tiles.group_by("cause").agg(pl.col("duration_ns").sum()).iter_rows():
        assert f" {cause} {duration(ns)}" in text


def test_colors_are_there_in_a_terminal_and_no_text_depends_on_them():
    text = render_timeline(analysis("demo").handoff("0>1/0/28").timeline)
    assert any(CAUSE_LOOKS["late_submission"].color.lower() in str(span.style).lower() for span in text.spans)
    assert "aaaa" in text.plain
    assert "\x1b" not in analysis("demo").handoff("0>1/0/28").text()

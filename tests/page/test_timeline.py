"""The timeline of a handoff: the page draws what `gapscope.plots` draws, and shows what the tables hold."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest

from gapscope.plots.timeline import timeline_spec
from gapscope.views import timeline_of
from gapscope.wording import duration, in_words, without_arguments
from tests.page.reading import caption, cells, pick

DRAWN = "async id => gapscope.timelineSpec(await gapscope.viewAt(gapscope.indexOf(id)))"


def spec_of(analysis, handoff_id):
    mine = pl.col("handoff_id") == handoff_id
    handoff, tiles = analysis.handoffs.filter(mine), analysis.tiles.filter(mine)
    return timeline_spec(timeline_of(analysis.trace, analysis.timebase, handoff, tiles))


def assert_same(one, two, where=""):
    """Equal texts, colors and places; numbers to the last digits of a double; the order of equal bars is free."""
    if isinstance(two, dict):
        assert sorted(one) == sorted(two), where
        for key in two:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(two, list | tuple):
        assert len(one) == len(two), where
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(two, float) or isinstance(one, float):
        assert math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-9), (where, one, two)
    else:
        assert one == two, where


def in_order(spec):
    """Bars that begin and end alike may come in any order: sort all bars of a trace."""
    columns = ("base", "x", "y", "width", "hovertext")
    for trace in spec["data"]:
        if trace["type"] == "bar":
            n = len(trace["x"])
            texts = trace["text"] or [""] * n
            rows = sorted(zip(*(trace[c] for c in columns), texts, strict=True))
            for i, column in enumerate((*columns, "text")):
                trace[column] = [row[i] for row in rows]
    return spec


@pytest.mark.parametrize(
    ("recording", "every"),
    [("demo", 4), ("zero_bubble", 20), ("collectives", 4), ("gloo", 7), ("cpu", 7), ("two_tools", 7)],
)
def test_the_page_draws_what_python_draws(seen, analysis_of, recording, every):
    analysis = analysis_of(recording)
    page = seen(recording)
    bars = 0
    for handoff_id in analysis.handoffs["handoff_id"].gather_every(every):
        drawn = in_order(page.evaluate(DRAWN, handoff_id))
        meant = in_order(json.loads(json.dumps(spec_of(analysis, handoff_id))))
        assert_same(drawn, meant, handoff_id)
        bars += sum(len(trace["x"]) for trace in meant["data"])
    assert bars > 30


@pytest.mark.parametrize("recording", ["demo", "zero_bubble"])
def test_a_picked_handoff_shows_its_tiles(seen, analysis_of, recording):
    analysis = analysis_of(recording)
    unsure = analysis.tiles.filter(pl.col("runner_up").is_not_null())["handoff_id"]
    handoff_id = unsure[0] if len(unsure) else "0>1/0/28"
    handoff = analysis.handoffs.row(by_predicate=pl.col("handoff_id") == handoff_id, named=True)
    page = seen(recording)
    pick(page, handoff_id)
    gap = duration(handoff["gap_ns"], handoff["gap_uncertainty_ns"])
    title = f"Handoff {handoff_id}: gap {gap} (± {duration(handoff['gap_uncertainty_ns'])})"
    assert page.locator("#picked-title").text_content() == title
    tiles = analysis.tiles.filter(pl.col("handoff_id") == handoff_id).sort("start_ns", descending=True)
    shown = cells(page, caption(page, "Tiles, from the consumer back"))
    zero = handoff["producer_finish_ns"]
    unsure = tiles["runner_up"].is_not_null().any()
    assert shown == [
        [
            f"{(t['start_ns'] - zero) / 1000:,.3f}",
            f"{(t['end_ns'] - zero) / 1000:,.3f}",
            duration(t["duration_ns"]),
            t["cause"],
            " ".join(x for x in (f"rank {t['rank']}" if t["rank"] is not None else "", t["lane"] or "") if x)
            or "place not known",
            in_words(t["op"], t["detail"]),
            (t["phase"] or "").replace("_", " "),
            t["evidence"],
            *([without_arguments(t["runner_up"] or "")] if unsure else []),
        ]
        for t in tiles.iter_rows(named=True)
    ]


def test_events_have_their_exact_unix_times(seen, analysis_of):
    analysis = analysis_of("zero_bubble")
    page = seen("zero_bubble")
    pick(page, "1>0/0/73")
    handoff = analysis.handoffs.row(by_predicate=pl.col("handoff_id") == "1>0/0/73", named=True)
    shown = {row[0].replace(" ", "_"): row for row in cells(page, caption(page, "Events"))}
    events = ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start")
    assert {event: shown[event][5] for event in events} == {e: str(handoff[f"{e}_ns"]) for e in events}
    assert {event: shown[event][4] for event in events} == {e: handoff[f"{e}_source"] for e in events}


def test_sums_and_what_would_remain(seen, analysis_of):
    analysis = analysis_of("zero_bubble")
    handoff = analysis.handoffs.filter(pl.col("consumer_bound") & pl.col("slack_ns").is_not_null()).row(0, named=True)
    page = seen("zero_bubble")
    pick(page, handoff["handoff_id"])
    tiles = analysis.tiles.filter(pl.col("handoff_id") == handoff["handoff_id"])
    sums = tiles.group_by("cause").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    shown = cells(page, caption(page, "What held the gap, in all"))
    assert [row[:2] for row in shown] == [[cause, duration(ns)] for cause, ns in sums.iter_rows()]
    said = page.locator("#picked-notes").inner_text()
    sooner = duration(handoff["removable_ns"])
    assert f"Without {handoff['dominant_cause']} the consumer would have started {sooner} sooner" in said
    assert f"then {handoff['next_cause']} holds it" in said
    assert f"The data could have come {duration(handoff['slack_ns'])} later." in said


def test_the_figure_on_the_page_is_that_figure(seen):
    page = seen("demo")
    pick(page, "0>1/0/28")
    drawn = page.evaluate(
        "() => document.getElementById('timeline').data.map(t => [t.name, t.x.length, t.base?.[0] ?? null])"
    )
    meant = page.evaluate(DRAWN, "0>1/0/28")["data"]
    assert drawn == [[t["name"], len(t["x"]), t["base"][0] if "base" in t else None] for t in meant]
    assert page.locator("#timeline .barlayer .point").count() > 20


def test_the_timeline_pans_and_zooms_by_keys(seen):
    page = seen("demo")
    pick(page, "0>1/0/28")
    shown = "() => document.getElementById('timeline')._fullLayout.xaxis.range"
    before = page.evaluate(shown)
    page.locator("#timeline").focus()
    page.keyboard.press("+")
    low, high = page.evaluate(shown)
    assert before[0] < low < high < before[1]
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"low => ({shown})()[0] > low", arg=low)
    page.keyboard.press("0")
    page.wait_for_function(f"low => ({shown})()[0] === low", arg=before[0])

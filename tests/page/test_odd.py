"""Pages of recordings that have less than usual, or names that are HTML."""

from __future__ import annotations

import polars as pl
import pytest

import gapscope
from gapscope.page.page import render_report
from tests.page.built import HOSTILE, KERNEL, hostile, unaligned, without_handoffs
from tests.page.large import enlarged
from tests.page.reading import caption, cells, pick, picked

SHOW_ALL = "() => document.querySelectorAll('[data-figure]').forEach(place => place.scrollIntoView())"


def test_names_that_are_html_are_shown_as_they_are(opened):
    analysis = hostile()
    assert analysis.handoffs.height == 3
    page = opened(analysis)
    handoff_id = analysis.handoffs["handoff_id"][1]
    pick(page, handoff_id)
    page.evaluate(SHOW_ALL)
    page.wait_for_timeout(300)
    bars = page.evaluate("() => document.getElementById('timeline').data.flatMap(trace => trace.hovertext)")
    safe = KERNEL.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert any(safe in text for text in bars)
    assert page.locator("img").count() == 0
    assert HOSTILE.replace("/", "") in page.locator("footer").inner_text()
    whats = [row[5] for row in cells(page, caption(page, "Tiles, from the consumer back"))]
    assert whats
    # hovering is where a figure would make HTML of it
    strip = page.locator("#timeline .barlayer .point").all()
    for bar in strip[-3:]:
        box = bar.bounding_box()
        if box and box["width"] > 1:
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.wait_for_timeout(60)
    assert page.locator("img").count() == 0


def test_data_cannot_close_the_script_it_stands_in(analysis_of):
    text = render_report(hostile(), "0")
    assert "onerror=alert(1)>" not in text.replace(HOSTILE, "")
    assert HOSTILE not in text


def test_clocks_that_are_decades_apart(opened):
    analysis = unaligned()
    assert analysis.handoffs["status"].to_list() == ["unaligned"] * 3
    page = opened(analysis)
    handoff = analysis.handoffs.row(1, named=True)
    pick(page, handoff["handoff_id"])
    shown = {row[0].replace(" ", "_"): row[5] for row in cells(page, caption(page, "Events"))}
    for event in ("producer_finish", "submit", "available", "consumer_start"):
        at = handoff[f"{event}_ns"]
        assert shown[event] == ("-" if at is None else str(at))
    assert "no gap is known" in page.locator("#picked-title").text_content()
    assert "It has no gap" in page.locator("#picked-notes").inner_text()
    assert {row[4] for row in cells(page, "#handoff-rows table")} == {"-"}


def test_a_recording_without_handoffs(opened):
    analysis = without_handoffs()
    page = opened(analysis)
    assert page.locator("h1").text_content() == "No handoffs found"
    assert page.locator("#edge").count() == 0
    assert page.locator("#handoff-rows").count() == 0
    assert page.locator("#findings li").count() == len(analysis.findings) > 0


@pytest.mark.parametrize("recording", ["collectives", "unmarked", "cpu"])
def test_other_kinds_of_recordings(seen, analysis_of, recording):
    analysis = analysis_of(recording)
    page = seen(recording)
    page.evaluate(SHOW_ALL)
    shown = [row[0] for row in cells(page, "#handoff-rows table")]
    page.wait_for_selector("#picked[data-state=drawn]")
    assert set(shown) <= set(analysis.handoffs["handoff_id"])
    assert shown[0] == analysis.handoffs.sort("gap_ns", descending=True, nulls_last=True)["handoff_id"][0]


def test_where_there_is_no_room_the_longest_gaps_have_what_surrounds_them(opened, analysis_of):
    analysis = analysis_of("zero_bubble")
    page = opened(enlarged(analysis, 124), context_budget=60_000)  # one that no other test opens
    listed = "() => { const h = gapscope.page.handoffs; return h.handoff_id.map((id, i) => [id, h.context[i]]); }"
    has_context = dict(page.evaluate(listed))
    kept = [id_ for id_, has in has_context.items() if has]
    assert 4 < len(kept) < 100
    foot = page.locator("footer").inner_text()
    assert f"around {len(kept)} of 124 handoffs: those with the longest gaps of each edge" in foot
    without = next(id_ for id_, has in has_context.items() if not has)
    pick(page, without)
    assert "What was recorded around it is not in this file" in page.locator("#picked-notes").inner_text()
    longest = page.evaluate("() => gapscope.page.handoffs.handoff_id[gapscope.table.order[0]]")
    assert has_context[longest]


def test_twenty_thousand_handoffs(opened, analysis_of, report_of):
    analysis = enlarged(analysis_of("demo"), 20_000)
    assert analysis.handoffs.height == 20_000
    assert analysis.handoffs["handoff_id"].is_unique().all()
    path = report_of(analysis)
    text = path.read_text()
    taken = len(text.split('id="data-context">')[1].split("</script>")[0])
    assert len(text.encode()) - taken + gapscope.page.content.CONTEXT_BUDGET < 25_000_000
    page = opened(analysis)
    assert page.locator("#filter-count").text_content() == "20,000 of 20,000 handoffs"
    assert len(cells(page, "#handoff-rows table")) < 100
    page.locator("#handoff-rows").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    shortest = analysis.handoffs.sort("gap_ns", "handoff_id").filter(pl.col("gap_ns").is_not_null())["handoff_id"]
    last = page.locator("#handoff-rows tr.active td").first.text_content()
    assert last in shortest.head(20).to_list()
    picked(page, last)
    tiles = analysis.tiles.filter(pl.col("handoff_id") == last)
    assert len(cells(page, caption(page, "Tiles, from the consumer back"))) == tiles.height
    page.locator("#figure-gaps").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#figure-gaps canvas, #figure-gaps .scatterlayer .point')")

"""The table of handoffs: sorted, filtered, walked by keys, and shared by its address."""

from __future__ import annotations

import polars as pl

from gapscope.wording import duration
from tests.page.reading import cells, heads, picked

ROWS = "#handoff-rows table"


def ids(page):
    return [row[0] for row in cells(page, ROWS)]


def said(page):
    return page.locator("#filter-count").text_content()


def test_every_handoff_has_its_row(opened, analysis_of):
    analysis = analysis_of("demo")
    page = opened("demo")
    assert heads(page, ROWS)[:5] == ["handoff", "edge", "step", "mb", "gap"]
    shown = {row[0]: row for row in cells(page, ROWS)}
    assert len(shown) == 20
    for h in analysis.handoffs.iter_rows(named=True):
        row = shown[h["handoff_id"]]
        assert row[1:4] == ["0 → 1", str(h["step"]), str(h["microbatch"])]
        assert row[4:6] == [duration(h["gap_ns"], h["gap_uncertainty_ns"]), duration(h["gap_uncertainty_ns"])]
        assert row[6:9] == [h["dominant_cause"], duration(h["dominant_ns"]), duration(h["removable_ns"])]
        assert row[9:12] == [h["next_cause"], "24.0 KiB", "mailbox"]
        assert row[12] == ("complete" if h["steady"] else "complete, start-up")


def test_it_is_sorted_by_gap_and_by_any_other_head(opened, analysis_of):
    handoffs = analysis_of("demo").handoffs
    page = opened("demo")
    by_gap = handoffs.sort("gap_ns", descending=True)["handoff_id"].to_list()
    assert ids(page) == by_gap
    page.get_by_role("button", name="gap", exact=True).click()
    assert ids(page) == by_gap[::-1]
    page.get_by_role("button", name="step", exact=True).click()
    assert ids(page) == handoffs.sort("step", descending=True)["handoff_id"].to_list()
    assert page.locator(f"{ROWS} th").nth(2).get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="handoff", exact=True).click()
    assert ids(page) == sorted(by_gap)


def test_filters_leave_what_they_say(opened, analysis_of):
    handoffs = analysis_of("zero_bubble").handoffs
    page = opened("zero_bubble")
    assert said(page) == "124 of 124 handoffs"
    page.select_option("#filter-cause", "late_receive")
    assert said(page) == f"{handoffs.filter(dominant_cause='late_receive').height} of 124 handoffs"
    page.fill("#filter-steps", "5:6")
    n = handoffs.filter(pl.col("dominant_cause") == "late_receive", pl.col("step").is_between(5, 6)).height
    assert said(page) == f"{n} of 124 handoffs"
    page.get_by_role("button", name="All").click()
    page.wait_for_function("() => document.getElementById('filter-count').textContent.startsWith('124')")
    page.select_option("#filter-status", "incomplete")
    assert said(page) == "4 of 124 handoffs"
    page.select_option("#filter-status", "(counted)")
    assert said(page) == "96 of 124 handoffs"
    page.select_option("#filter-status", "")
    page.fill("#filter-text", "1>0/1/")
    n = handoffs["handoff_id"].str.contains("1>0/1/", literal=True).sum()
    assert said(page) == f"{n} of 124 handoffs"
    page.fill("#filter-text", "no such text")
    assert said(page) == "0 of 124 handoffs"
    assert ids(page) == []


def test_a_chosen_edge_filters_the_whole_page(opened, analysis_of):
    analysis = analysis_of("zero_bubble")
    edges = analysis.summary["edges"]
    number = next(i for i, e in enumerate(edges) if e["direction"] == "bwd" and e["src_rank"] == 1)
    page = opened("zero_bubble")
    assert page.locator("#figure-gaps").is_visible()
    page.select_option("#edge", str(number))
    assert said(page) == "40 of 124 handoffs"
    assert page.evaluate("location.hash") == f"#edge={number}"
    for section in ("causes", "phases", "gaps"):
        shown = {row[0] for row in cells(page, f"#{section} table")}
        assert shown == {"1 → 0 ch 1 bwd"}
    assert page.locator(f"#figure-history-{number}").is_visible()
    assert page.locator("figure:has(#figure-history-2)").is_hidden()
    page.select_option("#edge", "")
    assert said(page) == "124 of 124 handoffs"


def test_arrow_keys_move_and_enter_picks(opened):
    page = opened("demo")
    order = ids(page)
    grid = page.locator("#handoff-rows")
    grid.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert grid.get_attribute("aria-activedescendant") == "row-2"
    page.keyboard.press("Enter")
    picked(page, order[2])
    assert page.locator("tr[aria-selected=true] td").first.text_content() == order[2]
    page.keyboard.press("End")
    page.keyboard.press(" ")
    picked(page, order[-1])


def test_a_click_picks(opened):
    page = opened("demo")
    page.locator("#handoff-rows tbody tr", has_text="0>1/0/17").click()
    picked(page, "0>1/0/17")
    assert page.locator("#picked-title").text_content().startswith("Handoff 0>1/0/17: gap 2.44 ms")


def test_the_address_names_what_is_shown(opened):
    page = opened("demo")
    picked(page, "0>1/0/28")
    assert "the longest counted gap" in page.locator("#picked-notes").inner_text()
    page.locator("#handoff-rows tbody tr", has_text="0>1/0/17").click()
    picked(page, "0>1/0/17")
    assert page.evaluate("decodeURIComponent(location.hash)") == "#handoff=0>1/0/17"
    page.locator("#handoff-rows tbody tr", has_text="0>1/0/12").click()
    picked(page, "0>1/0/12")
    page.go_back()
    picked(page, "0>1/0/17")
    page.go_forward()
    picked(page, "0>1/0/12")
    assert "the longest counted gap" not in page.locator("#picked-notes").inner_text()


def test_an_address_can_be_opened(opened):
    page = opened("zero_bubble", "#handoff=0>1/1/118&edge=3")
    picked(page, "0>1/1/118")
    assert page.locator("#edge").input_value() == "3"
    assert page.locator("tr[aria-selected=true] td").first.text_content() == "0>1/1/118"


def test_an_address_of_nothing_says_so(opened):
    page = opened("demo", "#handoff=%3Cimg src=x onerror=alert(1)%3E&edge=99")
    picked(page, "0>1/0/28")
    assert (
        "There is no handoff <img src=x onerror=alert(1)> in this report." in page.locator("#picked-notes").inner_text()
    )
    assert page.locator("#edge").input_value() == ""
    page.evaluate("location.hash = '#handoff=%E0%A4%A'")
    page.wait_for_timeout(50)
    assert page.locator("#picked-title").text_content().startswith("Handoff 0>1/0/28")

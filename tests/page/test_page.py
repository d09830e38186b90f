"""The page as a whole: what stands in it, in which colors, and that it needs nothing else."""

from __future__ import annotations

import re
from html import unescape

import pytest

import gapscope
from gapscope.errors import UsageError
from gapscope.page import write_report
from gapscope.reports.fixes import render_fixes
from gapscope.reports.held import render_evidence
from gapscope.reports.text import render_edges, render_headline
from gapscope.wording import duration, percent
from tests.page.reading import caption, cells, heads


def test_the_head_says_what_the_text_report_says(seen, analysis_of):
    summary = analysis_of("zero_bubble").summary
    page = seen("zero_bubble")
    assert page.title() == "gapscope: 124 handoffs on 6 edges between 2 ranks"
    assert page.locator("h1").text_content() == "124 handoffs on 6 edges between 2 ranks"
    said = page.locator(".facts").inner_text()
    assert render_headline(summary).plain in said
    assert render_evidence(summary["causes"]).plain in said
    assert "4 host clocks (3 bounded, 1 same clock), against that of pp_zb_torch_rank0.json.gz." in said
    bound = max(e["gap_uncertainty_ns"] for e in summary["edges"] if e["counted"])
    assert f"A gap is good to {duration(bound)} on all edges." in said
    assert "uninstrumented host time" in page.locator("#overview details").text_content()


def test_tables_are_those_of_the_text_report(seen, analysis_of):
    summary = analysis_of("zero_bubble").summary
    page = seen("zero_bubble")
    meant = [[str(cell) for cell in row] for row in zip(*(c.cells for c in render_edges(summary).columns), strict=True)]
    assert cells(page, caption(page, "Gaps per edge, over the counted handoffs")) == meant
    assert len(meant) == 6


def test_causes_of_an_edge_and_what_holds_next(seen, analysis_of):
    analysis = analysis_of("demo")
    edge = analysis.summary["causes"]["edges"][0]
    page = seen("demo")
    rows = cells(page, caption(page, "Causes per edge, over the counted handoffs"))
    for row, cause in zip(rows, edge["causes"], strict=True):
        share, mean = percent(cause["handoff_ns"] / edge["gap_ns"]), duration(round(cause["handoff_ns"] / 19))
        assert row[:5] == ["0 → 1", cause["cause"], str(cause["rank"]), share, mean]
    assert rows[0][6:9] == ["19 of 19", "2.13 ms sooner", "submit_call in 19 of 19"]


def test_three_totals_stand_apart(seen):
    page = seen("demo")
    totals = caption(page, "Three totals, which are not added: exposure along one path, handoff time, wall time")
    names = ["steps wait for", "of step time", "mean per step", "handoff time", "wall time", ""]
    assert heads(page, totals) == names
    row = next(r for r in cells(page, totals) if r[0] == "late_submission @ rank 0")
    assert row[1:5] == ["53%", "2.13 ms", "40.4 ms", "40.4 ms"]
    said = "Handoff time (summed over handoffs) and wall time (each moment once) are no share."
    assert said in page.locator("#exposure").inner_text()


def test_what_fixes_would_bring(seen, analysis_of):
    summary = analysis_of("demo").summary
    page = seen()
    rows = cells(page, caption(page, "What would have been without a cause"))
    meant = render_fixes(summary["fixes"])[0]
    assert rows == [[str(cell) for cell in row] for row in zip(*(c.cells for c in meant.columns), strict=True)]
    assert any(row[0] == "late_submission @ rank 0" for row in rows)


def test_all_findings_stand_with_what_to_do(seen, analysis_of):
    findings = analysis_of("zero_bubble").findings
    page = seen("zero_bubble")
    shown = page.locator("#findings li").all_inner_texts()
    assert len(shown) == len(findings)
    for text, finding in zip(shown, findings, strict=True):
        assert finding.message in text
        assert finding.hint in text
        assert text.startswith({"error": "error", "warning": "warning", "info": "note"}[finding.level])


def test_the_foot_names_version_schema_and_files(seen, analysis_of):
    page = seen("zero_bubble")
    foot = page.locator("footer").inner_text()
    assert f"gapscope {gapscope.__version__}, schema_version 1." in foot
    assert "around 124 of 124 handoffs" in foot
    for recording in analysis_of("zero_bubble").summary["recordings"]:
        assert recording["path"] in foot


@pytest.mark.parametrize(
    ("recording", "section", "text"),
    [
        ("collectives", "groups", "group tp"),
        ("collectives", "waiting", "rank 1 for rank 0"),
        ("messages", "messages", "submission-bound"),
        ("interference", "interference", "slower"),
        ("zero_bubble", "marks", "Marks cost 27.1 µs a bracket on rank 0"),
    ],
)
def test_sections_that_stand_where_there_is_something_to_say(seen, recording, section, text):
    page = seen(recording)
    assert text in page.locator(f"#{section}").inner_text()
    assert seen("demo").locator(f"#{section}").count() == 0


def test_the_reader_chooses_the_colors(opened):
    page = opened(dark=True)
    paper = "() => getComputedStyle(document.body).backgroundColor"
    text = "() => getComputedStyle(document.querySelector('#figure-causes .ytick text')).fill"
    page.locator("#figure-causes").scroll_into_view_if_needed()
    page.wait_for_selector("#figure-causes .ytick text")
    assert page.evaluate(paper) == "rgb(22, 24, 28)"
    assert page.evaluate(text) == "rgb(228, 230, 233)"
    button = page.locator("#theme")
    assert button.text_content() == "Colors: system"
    button.click()
    assert button.text_content() == "Colors: light"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate(text) == "rgb(29, 33, 38)"
    button.click()
    assert (button.text_content(), page.evaluate(paper)) == ("Colors: dark", "rgb(22, 24, 28)")


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_is_wider_than_the_window(opened, width):
    page = opened("zero_bubble", width=width)
    for figure in page.locator("[data-figure]").all():
        if figure.is_visible():
            figure.scroll_into_view_if_needed()
    page.wait_for_selector("#picked[data-state=drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_is_used_by_keyboard(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.evaluate("location.hash") == ""
    wanted = {"figure-gaps", "handoff-rows", "filter-text", "timeline"}
    for _ in range(150):
        page.keyboard.press("Tab")
        wanted.discard(page.evaluate("document.activeElement.id"))
        if not wanted:
            break
    assert wanted == set()


def test_landmarks_and_names(seen):
    page = seen("zero_bubble")
    for role in ("banner", "main", "contentinfo", "navigation"):
        assert page.get_by_role(role).count() == 1
    named = "all => all.map(s => document.getElementById(s.getAttribute('aria-labelledby'))?.textContent ?? '')"
    assert all(page.eval_on_selector_all("main section", named))
    bare = "all => all.filter(t => !t.caption && t.getAttribute('role') !== 'presentation').length"
    assert page.eval_on_selector_all("table", bare) == 0


def test_on_paper_it_is_light_and_short(opened):
    page = opened("zero_bubble", dark=True)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(cells(page, "#handoff-rows table")) == 60
    assert "Printed are the first 60 of 124 handoffs" in page.locator("#handoffs").inner_text()
    assert page.locator(".bar").is_hidden()


def test_the_page_asks_for_nothing(report_of):
    text = report_of("demo").read_text()
    head = unescape(text[: text.index("<script")])
    assert "default-src 'none'" in head
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", head)


def test_a_file_that_cannot_be_written_is_told(analysis_of, tmp_path):
    with pytest.raises(UsageError, match="the report cannot be written"):
        write_report(analysis_of("cpu"), tmp_path / "no" / "report.html", "0")

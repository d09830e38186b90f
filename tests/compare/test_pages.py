"""Pages of comparisons, sweeps and what-if in a real browser: what they show, and that they ask for nothing."""

from __future__ import annotations

import pytest

import gapscope
from gapscope.cli.whatif import _told
from gapscope.compare import Arm, compare, comparison_told, sweep, sweep_told
from gapscope.demo import DEMO_RECORDING
from gapscope.page.compared import comparison_page, study_page
from gapscope.page.replayed import effects_page, fixes_page
from gapscope.page.simple import write_page
from tests.compare.built import over_sizes, restarts
from tests.compare.test_figures import HOSTILE
from tests.page.conftest import browser  # noqa: F401 - a fixture
from tests.page.reading import caption, cells

SHOW_ALL = "() => document.querySelectorAll('[data-figure]').forEach(place => place.scrollIntoView())"


@pytest.fixture
def opened(browser, tmp_path):  # noqa: F811
    contexts, wrong = [], []

    def open_page(page, *, dark=False):
        path = tmp_path / "page.html"
        write_page(page, path, "0")
        context = browser.new_context(color_scheme="dark" if dark else "light")
        context.set_default_timeout(120_000)
        contexts.append(context)
        shown = context.new_page()
        shown.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        own = (path.as_uri(), "data:", "blob:")
        shown.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
        shown.goto(path.as_uri())
        shown.wait_for_selector("html[data-ready]")
        shown.evaluate(SHOW_ALL)
        for place in shown.locator("[data-figure]").all():
            place.scroll_into_view_if_needed()
            place.locator(".plot-container").wait_for()
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def test_a_comparison(opened, none, late):
    found = compare(Arm(HOSTILE, restarts(none, 4, seed=1)), Arm("late", restarts(late, 4, seed=2)))
    told = comparison_told(found)
    page = opened(comparison_page(told, found.values))
    primary = told["metrics"][0]
    verdict = page.locator("#verdicts").inner_text()
    assert verdict.startswith("step: slower, ")
    assert primary["reason"][:1].upper() + primary["reason"][1:] + "." in verdict
    rows = cells(page, caption(page, "All metrics; those beside the primary one are adjusted for being many"))
    assert [(row[0], row[-1]) for row in rows] == [(m["metric"], m["verdict"]) for m in told["metrics"]]
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("h1").inner_text()
    numbers = page.evaluate("async () => (await gapscope.inflated('data-numbers')).metrics.map(m => m.difference_ns)")
    assert numbers == [m["difference_ns"] for m in told["metrics"]]


def test_one_restart_claims_nothing(opened, none, late):
    found = compare(Arm("none", [none]), Arm("late", [late]))
    page = opened(comparison_page(comparison_told(found), found.values), dark=True)
    assert "step: no claim (n=1 restart)" in page.locator("#verdicts").inner_text()
    text = page.locator("main").inner_text()
    assert not any(word in text for word in ("slower", "inconclusive", "equivalent"))


def test_a_sweep(opened, none):
    sizes = [2**k for k in range(18, 30, 2)]
    arms = [Arm(n, over_sizes(none, sizes, 5, slope, seed=seed, base_ns=3_000_000))
            for n, slope, seed in (("copy", 0.7, 1), ("mailbox", 1.0, 2))]  # fmt: skip
    found = sweep_told(sweep(arms, "size_bytes", {arm.name: [None] * 5 for arm in arms}))
    told = {
        "title": "", "base": "copy", "order": [], "comparisons": [], "sweep": found, "study": "study.toml",
        "arms": [{"name": arm.name, "label": "", "runs": [run.name for run in arm.runs]} for arm in arms],
    }  # fmt: skip
    page = opened(study_page(told, []))
    verdict = page.locator("#verdicts").inner_text()
    assert "mailbox against copy: crossover" in verdict
    assert found["crossings"][0]["words"] in verdict
    rows = cells(page, caption(page, "gap 0 → 1: mailbox against copy"))
    assert [row[0] for row in rows] == [row["value_words"] for row in found["rows"]]


def test_whatif(opened):
    analysis = gapscope.analyze([DEMO_RECORDING])
    page = opened(fixes_page({"fixes": analysis.fixes.to_dicts()}))
    assert "late_submission @ rank 0" in page.locator("#verdicts").inner_text()
    rows = cells(page, caption(page, "One cause gone, and at its best tenth"))
    assert rows[0][0] == "late_submission @ rank 0"
    found = analysis.whatif(gapscope.Scenario(cause="late_submission"))
    page = opened(effects_page({**_told(analysis, found), "units": found.units.to_dicts()}), dark=True)
    assert page.locator("h1").inner_text() == "What if: late_submission := 0"
    drawn = page.evaluate("() => document.getElementById('figure-effects-step').data[2].y")
    steady = found.units.filter(unit="step", steady=True)
    assert drawn == pytest.approx((steady["before_ns"] / 1_000).to_list())

"""A Chromium for the tests of the page, and the pages it opens.

Chromium is looked for in ``GAPSCOPE_CHROMIUM`` and on ``PATH``, Playwright drives it. Without either, tests that open a
page are skipped and say so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import gapscope
from gapscope.demo import DEMO_RECORDING
from gapscope.page.page import render_report

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = {
    "demo": [DEMO_RECORDING],
    "zero_bubble": sorted((DATA / "examples").glob("pp_zb_torch_rank*")),
    "collectives": sorted((DATA / "causes").glob("late_rank_marked_rank*")),
    "unmarked": sorted((DATA / "two-gpus").glob("tp_torch_rank*")),
    "messages": sorted((DATA / "causes").glob("fragmented_copy_engine_rank*")),
    "interference": sorted((DATA / "causes").glob("interference_nccl_rank*")),
    "gloo": sorted(DATA.glob("gloo_none_torch_rank*")),
    "cpu": sorted(DATA.glob("cpu_pipeline_rank*.gslog")),
    "two_tools": sorted(DATA.glob("mailbox_both*")),
}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
]


def chromium():
    """Where Chromium is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("GAPSCOPE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "browser" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("browser"))  # one browser for all of them


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of one file: while it is open, its driver's event loop is in the way of asyncio's."""
    program = chromium()
    if program is None:
        pytest.skip("no chromium: install Debian's package chromium, or set GAPSCOPE_CHROMIUM to the program")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: it comes with gapscope[dev]")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def analysis_of():
    """Return the analysis of a recording of `RECORDINGS`."""
    known = {}

    def analyzed(name):
        if name not in known:
            known[name] = gapscope.analyze(RECORDINGS[name])
        return known[name]

    return analyzed


@pytest.fixture(scope="session")
def report_of(analysis_of, tmp_path_factory):
    """Return the path of a report: of a recording of `RECORDINGS`, or of an analysis."""
    folder = tmp_path_factory.mktemp("reports")
    known = {}

    def written(what, **options):
        key = what if isinstance(what, str) else id(what)
        if key not in known:
            analysis = analysis_of(what) if isinstance(what, str) else what
            path = folder / f"{len(known)}.html"
            path.write_text(render_report(analysis, gapscope.__version__, **options))
            known[key] = path, analysis  # kept, so that no other object takes its id
        return known[key][0]

    return written


class Opening:
    """Opens reports in a browser; `wrong` is what went wrong in them."""

    def __init__(self, browser, report_of):
        self._browser, self._report_of = browser, report_of
        self._contexts = []
        self.wrong = []

    def __call__(self, what="demo", fragment="", *, width=1280, height=900, dark=False, **options):
        path = self._report_of(what, **options)
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(120_000)  # a machine may be busy; nothing here measures time
        self._contexts.append(context)
        page = self._watched(context.new_page(), path)
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]")
        return page

    def _watched(self, page, path):
        wrong = self.wrong
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        own = (path.as_uri(), "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
        return page

    def close(self):
        for context in self._contexts:
            context.close()


@pytest.fixture
def opened(browser, report_of):
    """Return a function that opens a report of one's own; what goes wrong in the page fails the test."""
    opening = Opening(browser, report_of)
    yield opening
    opening.close()
    assert opening.wrong == []


@pytest.fixture(scope="module")
def shared_pages(browser, report_of):
    """Return the opening of pages that all tests of one file may look at, and those that are open, by name."""
    opening = Opening(browser, report_of)
    yield opening, {}
    opening.close()


@pytest.fixture
def seen(shared_pages):
    """Return a function that gives a page that is open already, as opening one takes two seconds.

    Tests look at it and pick handoffs; they do not sort, filter or choose colors. Which one is picked is not known.
    """
    opening, pages = shared_pages

    def look(name="demo"):
        if name not in pages:
            pages[name] = opening(name)
        return pages[name]

    yield look
    wrong = [*opening.wrong]
    opening.wrong.clear()
    assert wrong == []

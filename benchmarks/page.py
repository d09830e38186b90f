"""How large ``report.html`` is and how long Chromium takes to open it, by the number of handoffs.

Usage: python benchmarks/page.py [--chromium PROGRAM] [--rounds N]

The demo recording again and again with other lengths (`tests/page/large.py`); what was recorded around handoffs is
there for the first 20 alone, and adds up to 8 MB to a real report. *Ready* is from navigation until the table of
handoffs can be used, *timeline* until the first one is drawn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import gapscope
from gapscope.demo import DEMO_RECORDING
from gapscope.page.page import render_report
from tests.page.large import enlarged

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CASES = (20, 2_000, 20_000)


def opened(browser: Browser, path: Path) -> tuple[float, float]:
    """Return the seconds until the page is ready, and until its first timeline is drawn, by the page's own clock."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector("#picked[data-state=drawn]", timeout=120_000)
    times = page.evaluate("gapscope.page.times")
    page.close()
    return times["ready"] / 1e3, times["drawn"] / 1e3


def main() -> None:
    """Build, open and print a row per case."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    analysis = gapscope.analyze(DEMO_RECORDING)
    print("| handoffs | tiles | written in | size | ready, median (min-max) | timeline, median |")
    print("|---|---|---|---|---|---|", flush=True)
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"])
        for handoffs in CASES:
            large = enlarged(analysis, handoffs)
            begun = time.perf_counter()
            path = Path(folder) / f"{handoffs}.html"
            path.write_text(render_report(large, gapscope.__version__))
            written = time.perf_counter() - begun
            seconds = [opened(browser, path) for _ in range(options.rounds)]
            ready, drawn = ([pair[i] for pair in seconds] for i in (0, 1))
            print(
                f"| {handoffs:,} | {large.tiles.height:,} | {written:.1f} s | {path.stat().st_size / 1e6:.1f} MB | "
                f"{statistics.median(ready):.2f} s ({min(ready):.2f}-{max(ready):.2f}) | "
                f"{statistics.median(drawn):.2f} s |",
                flush=True,
            )
        browser.close()


if __name__ == "__main__":
    main()

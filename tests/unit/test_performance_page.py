"""`docs/performance.md` is made from the lines that were kept, and says what they say."""

from __future__ import annotations

import copy
import re

import pytest

from benchmarks.performance import page, records
from benchmarks.performance.cases import WAYS
from benchmarks.performance.inputs import INPUTS

INPUT = "torch_50MB"
ABOUT = {
    "kind": "series",
    "date": "2026-11-30T12:00:00+00:00",
    "machine": {
        "processor": "A processor",
        "cores": 2,
        "memory_bytes": 8_000_000_000,
        "kernel": "6.1",
        "virtual": True,
    },
    "versions": {"gapscope": "0.1", "code": "12345678", "python": "3.12.1"},
    "peers": {"orjson": "3.13.0"},
}
HOLDS = {
    "kind": "input",
    "name": INPUT,
    "files": [{"name": "rank0.json", "bytes": 60_000_000}, {"name": "rank1.json", "bytes": 40_000_000}],
    "events": 400_000,
    "kernels": 50_000,
}


def ran(way, seconds, peak_bytes=500_000_000, **more):
    return {
        "kind": "run",
        "case": f"{more.pop('name', INPUT)}/{way}",
        "seconds": seconds,
        "peak_bytes": peak_bytes,
        "load_before": 0.5,
        "found": {"handoffs": 580, "edges": 1},
        "command": f"command of {way}",
        **more,
    }


def rendered(*lines):
    return page.render(records.arrange(lines))


def row(text, title):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def titles():
    return {way.name: way.title for way in WAYS[INPUT]}


def test_the_page_is_what_the_kept_lines_make():
    """No number of the page is written by hand: ``python -m benchmarks.performance render`` makes it."""
    assert page.PAGE.read_text() == page.render(records.arrange(records.read(records.FILE)))


def test_another_number_makes_another_page():
    kept = records.read(records.FILE)
    runs = [k for k, record in enumerate(kept) if record["kind"] == "run"]
    assert runs
    changed = copy.deepcopy(kept)
    changed[runs[-1]]["seconds"] += 10
    assert page.render(records.arrange(changed)) != page.PAGE.read_text()


def test_a_row_has_median_extremes_rates_and_ratio():
    lines = [ran("first", s) for s in (2.5, 2.0, 2.25)] + [ran("orjson", s, 10**9 * (s - 3)) for s in (4.5, 5.0)]
    text = rendered(ABOUT, HOLDS, *lines)
    assert row(text, titles()["first"])[2:] == ["3", "2.25 (2.00-2.50)", "44", "0.18", "0.50 GB", "1.00"]
    assert row(text, titles()["orjson"])[2:] == ["2", "4.75 (4.50-5.00)", "21", "0.084", "2.00 GB", "2.11"]
    assert "‡ |" not in text
    assert "2 files, 100.0 MB, 400,000 events, of which 50,000 kernels." in text


def test_a_row_of_another_series_says_so_and_only_the_newest_counts():
    later = {**ABOUT, "date": "2026-12-01T12:00:00+00:00"}
    text = rendered(ABOUT, HOLDS, ran("first", 9.0), ran("orjson", 4.0), later, ran("first", 2.0))
    assert row(text, titles()["first"])[2:4] == ["1", "2.00"]
    assert row(text, titles()["orjson"])[-1] == "2.00 ‡"
    assert [f"**{day} 12:00 UTC**" in text for day in ("2026-11-30", "2026-12-01")] == [True, True]


def test_a_series_that_the_page_does_not_use_is_not_named():
    later = {**ABOUT, "date": "2026-12-01T12:00:00+00:00"}
    assert "2026-11-30" not in rendered(ABOUT, HOLDS, ran("first", 9.0), later, ran("first", 2.0))


def test_what_has_no_row_is_named_with_its_reason():
    absent = {"kind": "absent", "case": f"{INPUT}/perfetto", "reason": "out of memory | <b>"}
    text = rendered(ABOUT, HOLDS, ran("first", 2.0), absent)
    assert f"- {INPUTS[INPUT].title}, {titles()['perfetto']}: failed: `out of memory | <b>`." in text
    assert f"- {INPUTS[INPUT].title}, {titles()['json']}: not run." in text
    assert f"- {INPUTS['nsys_50M'].title}: nothing was run." in text
    again = rendered(ABOUT, HOLDS, ran("first", 2.0), absent, ran("perfetto", 3.0))
    assert "out of memory" not in again


def test_growth_is_shown_per_million_events():
    name = "torch_500MB"
    more = {**HOLDS, "name": name, "events": 4_000_000}
    text = rendered(ABOUT, HOLDS, more, ran("first", 1.0), ran("first", 8.0, name=name), ran("second", 0.5, name=name))
    growth = text.split("## Growth with events")[1].split("## ")[0]
    assert row(growth, INPUTS[INPUT].title)[3:5] == ["1.00", "2.50"]
    assert row(growth, INPUTS[name].title)[3:] == ["8.00", "2.00", "12", "0.50 GB", "0.50", "580", "1"]
    assert "## Growth with ranks" not in text


def test_every_row_has_its_command():
    text = rendered(ABOUT, HOLDS, *(ran(way.name, 1.0) for way in WAYS[INPUT]))
    for way in WAYS[INPUT]:
        assert f"# {way.title}\ncommand of {way.name}\n" in text


def test_a_run_belongs_to_a_series():
    with pytest.raises(ValueError, match="before any series"):
        rendered(ran("first", 1.0))


def test_kept_lines_name_no_place_of_the_machine():
    assert not re.search(r"/(?:work|tmp|root|home)/|://", records.FILE.read_text())

"""The view of a pair of clocks, and its plot: what is drawn is what was found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from bisect import bisect_right
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gapscope
from gapscope.clocks import align
from gapscope.clocks.domains import Step
from gapscope.clocks.pair import PAIR_OBSERVATION, PAIR_WINDOW, PairView, clock_of_rank, lower_hull, nearest, pair_view
from gapscope.errors import UsageError
from gapscope.events import find_ends
from gapscope.plots import alignment_figure, write_figure
from gapscope.plots.alignment import MOST_MARKERS
from gapscope.testing import Recording, trace

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (REPOSITORY.parent / "shared" / "traces" / "lab", REPOSITORY / "tests" / "data")
TORCH = [f"mailbox_none_torch_rank{r}.json.gz" for r in (0, 1)]
BOTH = ["mailbox_both.sqlite.gz", "mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"]
BEGIN, MS = 10**18, 10**6
FORTH, BACK = (5_000, 3_000, 8_000, 6_000), (9_000, 7_000, 4_000, 6_000)
CHROMIUM = shutil.which("chromium")


def files(forth=FORTH, back=BACK, behind_ns=0, clock="unix"):
    """Two files of hosts that send each other one message per ms; the second shows times ``behind_ns`` too small."""
    a, b = (Recording(name, pid=pid, clock=clock) for name, pid in (("a", 10), ("b", 11)))
    for src, dst, source, destination, delays in ((0, 1, a, b, forth), (1, 0, b, a, back)):
        for i, delay in enumerate(delays, start=1):
            t = BEGIN + i * MS + src * 400_000
            key = f"src={src} dst={dst} seq={i} step={i} device=cpu"
            source.mark(f"submit {key}", t, t + 10)
            destination.mark(f"receive {key}", t - 100, t + delay)
    b.on_clock(lambda t: t - behind_ns)
    return a, b


def aligned(*recordings):
    run = trace(*recordings)
    return align(run, find_ends(run))


def view_of(*recordings):
    alignment = aligned(*recordings)
    return pair_view(alignment, clock_of_rank(alignment, 0), clock_of_rank(alignment, 1))


@cache
def lab(*names):
    found = [next((f / n for f in FOLDERS if (f / n).exists()), None) for n in names]
    if None in found:
        pytest.skip("the recordings are not here")
    run = gapscope.load(found)
    return align(run, find_ends(run))


@cache
def lab_view(tool="torch"):
    alignment = lab(*BOTH)
    return pair_view(alignment, clock_of_rank(alignment, 0, "torch"), clock_of_rank(alignment, 1, tool))


def traces(figure, name):
    return [t for t in figure.data if t.name == name]


def notes(figure):
    return [a.text for a in figure.layout.annotations]


# --- the view


def test_bounds_of_a_pair_are_the_recorded_delays():
    view = view_of(*files())
    messages = view.observations.filter(pl.col("kind") == "message")
    shown = messages.select(
        "at_ns", "side", "bound_ns", "instance", "earlier_clock", "earlier_what", "later_what"
    ).rows()
    forth = [
        (BEGIN + i * MS + d // 2, "upper", d, f"0>1/0/{i}", "rank 0 host", f"submit 0>1/0/{i}", f"available 0>1/0/{i}")
        for i, d in enumerate(FORTH, start=1)
    ]
    back = [
        (BEGIN + i * MS + 400_000 + d // 2, "lower", -d, f"1>0/0/{i}", "rank 1 host", f"submit 1>0/0/{i}",
         f"available 1>0/0/{i}")
        for i, d in enumerate(BACK, start=1)
    ]  # fmt: skip
    assert shown == sorted(forth + back)
    assert (view.one, view.two) == ("rank 0 host", "rank 1 host")
    assert dict(view.observations.schema) == PAIR_OBSERVATION
    assert view.counts.rows() == [
        ("message", "lower", 4), ("message", "upper", 4), ("transfer", "lower", 4), ("transfer", "upper", 4)
    ]  # fmt: skip


def test_windows_of_a_pair_are_those_of_the_alignment():
    view = view_of(*files())
    [window] = view.windows.rows(named=True)
    # 3 µs in the first and 4 µs in the last of some windows, loosened by 60 ppm over the distance to the far end of
    # the recording, each window rounding up; windows were joined since.
    drift = 146
    assert window == {
        "window_start_ns": BEGIN + 999_900, "window_end_ns": BEGIN + 4_406_001, "offset_ns": 0,
        "lo_ns": -4_000 - drift, "hi_ns": 3_000 + drift, "proven_lo_ns": -4_000 - drift,
        "proven_hi_ns": 3_000 + drift, "quality": "bounded",
    }  # fmt: skip
    assert dict(view.windows.schema) == PAIR_WINDOW
    assert view.interval_ns == view.proven_ns == (-4_146, 3_146)


def test_the_hulls_of_a_pair():
    corners = view_of(*files()).hull.with_columns(pl.col("at_ns") - BEGIN).rows()
    assert corners == [
        ("upper", MS + 2_500, 5_000), ("upper", 2 * MS + 1_500, 3_000), ("upper", 4 * MS + 3_000, 6_000),
        ("lower", 1_404_500, -9_000), ("lower", 3_402_000, -4_000), ("lower", 4_403_000, -6_000),
    ]  # fmt: skip


def test_the_other_way_round_is_the_negative():
    alignment = lab(*TORCH)
    there, back = pair_view(alignment, 0, 1), pair_view(alignment, 1, 0)
    assert there.observations["bound_ns"].to_list() == (-back.observations["bound_ns"]).to_list()
    assert there.observations["beyond_ns"].equals(back.observations["beyond_ns"])
    assert there.windows["lo_ns"].to_list() == (-back.windows["hi_ns"]).to_list()
    assert there.windows["proven_hi_ns"].to_list() == (-back.windows["proven_lo_ns"]).to_list()
    assert there.windows["offset_ns"].to_list() == (-back.windows["offset_ns"]).to_list()


def test_a_device_clock_is_taken_where_it_stands_against_its_host():
    a, b = Recording("a", pid=10, clock="unix"), Recording("b", pid=11, clock="unix")
    for i in range(1, 6):
        t = BEGIN + i * MS
        a.mark(f"submit src=0 dst=1 seq={i} step={i}", t, t + 10)
        a.kernel(t + 1, t + 100, t + 200)
        b.mark(f"receive src=0 dst=1 seq={i} step={i}", t, t + 10)
        b.kernel(t + 1, t - 20_000, t + 5_000)  # written 20 µs before its launch: the device clock is behind
    alignment = aligned(a, b)
    view = pair_view(alignment, 0, 1)
    rows = view.observations.filter(pl.col("kind") == "message")
    [gpu] = alignment.domains.table.filter((pl.col("rank") == 1) & pl.col("device").is_not_null())["domain"]
    for row, i in zip(rows.rows(named=True), range(1, 6), strict=True):
        available = pl.Series([BEGIN + i * MS + 5_000])
        own = alignment.offsets(pl.Series([gpu]), available)[0] - alignment.offsets(pl.Series([1]), available)[0]
        assert own == pytest.approx(20_001, abs=100)
        slack = int(alignment.domains.resolution_ns[gpu]) - 1
        assert (row["side"], row["bound_ns"]) == ("upper", 5_000 + own + slack)
        assert row["later_clock"] == "rank 1 gpu:0"


@pytest.mark.parametrize("names", [TORCH, BOTH], ids=["torch", "both"])
def test_lab_all_that_ties_two_files_is_shown(names):
    alignment = lab(*names)
    one, two = clock_of_rank(alignment, 0, "torch"), clock_of_rank(alignment, 1, "torch")
    view = pair_view(alignment, one, two)
    table = alignment.against([(one, two)])
    # With a third file, the table counts what ties the first file to either of the others: 120 nested ranges more.
    assert table["n_hard"].unique().to_list() == [60 if names is TORCH else 20 + 120]
    assert view.observations.height == (60 if names is TORCH else 20)
    ends = set(view.windows["window_end_ns"]) | set(view.windows["window_start_ns"])
    assert set(table["window_start_ns"]) | set(table["window_end_ns"]) <= ends
    for row in table.rows(named=True):
        inside = (pl.col("window_start_ns") >= row["window_start_ns"]) & (
            pl.col("window_end_ns") <= row["window_end_ns"]
        )
        same = view.windows.filter(inside).select("offset_ns", "lo_ns", "hi_ns", "quality").unique().rows()
        assert same == [(row["offset_ns"], row["lo_ns"], row["hi_ns"], row["quality"])]
    narrower = (pl.col("lo_ns") >= pl.col("proven_lo_ns")) & (pl.col("hi_ns") <= pl.col("proven_hi_ns"))
    assert view.windows.select(narrower.all()).item()


def test_lab_the_chosen_offset_contradicts_no_record_by_more_than_drift():
    view = lab_view()
    joined = view.observations.join_asof(view.windows, left_on="at_ns", right_on="window_start_ns")
    over = pl.when(pl.col("side") == "upper").then(pl.col("offset_ns") - pl.col("bound_ns"))
    over = over.otherwise(pl.col("bound_ns") - pl.col("offset_ns"))
    assert joined.select(over.max()).item() <= 0


def test_a_clock_that_stepped_has_no_hull():
    alignment = aligned(*files())
    domains = replace(alignment.domains, steps=(Step(1, 1, BEGIN, BEGIN + 1),))
    view = pair_view(replace(alignment, domains=domains), 0, 1)
    assert view.stepped
    assert view.hull.is_empty()
    assert "One of both clocks stepped: its offset is no straight line, and no hulls are drawn." in notes(
        alignment_figure(view)
    )


def test_clocks_of_ranks():
    alignment = lab(*BOTH)
    label = alignment.domains.table["label"]
    assert label[clock_of_rank(alignment, 1, "torch")] == "rank 1 host"
    assert label[clock_of_rank(alignment, 1, "nsys")] == "mailbox_both.sqlite.gz host"
    with pytest.raises(UsageError, match=r"^No recording is of rank 7\. The ranks there are: 0, 1\.$"):
        clock_of_rank(alignment, 7)
    with pytest.raises(
        UsageError, match=r"^Rank 1 was recorded on 2 clocks: .*\(nsys\), .*\(torch\)\. Name the tool\.$"
    ):
        clock_of_rank(alignment, 1)
    with pytest.raises(UsageError, match=r"^No recording by nsys is of rank 0\. No rank is known\.$"):
        clock_of_rank(lab(*TORCH), 0, "nsys")


@pytest.mark.parametrize(("one", "two"), [(0, 0), (0, 2), (2, 0), (0, 99), (-1, 0)])
def test_only_two_host_clocks_are_a_pair(one, two):
    with pytest.raises(UsageError, match="same clock" if one == two else "is not a host clock of this run"):
        pair_view(lab(*TORCH), one, two)


# --- hulls


def exactly_on_or_above(t, v, hull_t, hull_v):
    corners = list(zip(hull_t.tolist(), hull_v.tolist(), strict=True))
    times = [c[0] for c in corners]
    for x, y in zip(t.tolist(), v.tolist(), strict=True):
        i = min(max(bisect_right(times, x) - 1, 0), max(len(corners) - 2, 0))
        (ax, ay), (bx, by) = corners[i], corners[min(i + 1, len(corners) - 1)]
        if ax == bx:
            assert y >= ay
        else:
            assert (y - ay) * (bx - ax) >= (by - ay) * (x - ax)
    return True


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50, 600, 5_000])
@pytest.mark.parametrize("shape", ["noise", "cup", "cap", "line", "few times"])
def test_hull_against_brute_force(n, shape):
    random = np.random.default_rng(n)
    t = BEGIN + random.integers(0, 5 if shape == "few times" else 10**13, n)
    x = (t - BEGIN) // 10**4
    v = {"cup": x * x // 10**6, "cap": -x * x // 10**6, "line": 3 * x}.get(shape, random.integers(-(10**12), 10**12, n))
    hull_t, hull_v = lower_hull(t, v)
    points = set(zip(t.tolist(), v.tolist(), strict=True))
    corners = list(zip(hull_t.tolist(), hull_v.tolist(), strict=True))
    assert set(corners) <= points
    assert corners == sorted(corners)
    if n:
        assert (corners[0][0], corners[-1][0]) == (t.min(), t.max())
        assert exactly_on_or_above(t, v, hull_t, hull_v)
    for a, b, c in zip(corners, corners[1:], corners[2:], strict=False):
        assert (b[1] - a[1]) * (c[0] - b[0]) < (c[1] - b[1]) * (b[0] - a[0])


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_lab_bounds_lie_beyond_their_hull(tool):
    view = lab_view(tool)
    for side, sign in (("upper", 1), ("lower", -1)):
        rows, corners = (f.filter(pl.col("side") == side) for f in (view.observations, view.hull))
        assert corners.join(rows, on=["at_ns", "bound_ns"], how="anti").is_empty()
        arrays = [f[c].to_numpy() * s for f in (rows, corners) for c, s in (("at_ns", 1), ("bound_ns", sign))]
        assert exactly_on_or_above(*arrays)


# --- the figure


def test_the_figure_shows_the_numbers_of_the_view():
    view = lab_view("nsys")
    figure = alignment_figure(view)
    zero = view.windows["window_start_ns"][0]
    for kind, side, n in view.counts.iter_rows():
        rows = view.observations.filter((pl.col("kind") == kind) & (pl.col("side") == side))
        [drawn] = traces(figure, f"{kind.replace('_', ' ')}: {side} bound ({n})")
        assert drawn.y == pytest.approx([b / 1_000 for b in rows["bound_ns"]])
        assert drawn.x == pytest.approx([(t - zero) / 1e9 for t in rows["at_ns"]])
        assert drawn.marker.symbol.startswith({"upper": "triangle-down", "lower": "triangle-up"}[side])
        assert [c[1] for c in drawn.customdata] == rows["earlier_what"].str.replace_all(">", "&gt;").to_list()
        assert [c[4] for c in drawn.customdata] == rows["later_clock"].to_list()
    [offset] = traces(figure, "chosen offset")
    assert offset.y[::2] == offset.y[1::2] == pytest.approx([o / 1_000 for o in view.windows["offset_ns"]])
    assert offset.x[::2] == pytest.approx([(t - zero) / 1e9 for t in view.windows["window_start_ns"]])
    assert offset.x[1::2] == pytest.approx([(t - zero) / 1e9 for t in view.windows["window_end_ns"]])
    for column, end in (("hi_ns", "upper"), ("lo_ns", "lower")):
        [line] = traces(figure, f"{end} end of the interval")
        assert line.y[::2] == line.y[1::2] == pytest.approx([v / 1_000 for v in view.windows[column]])
        [hull] = traces(figure, f"hull of the {end} bounds")
        assert hull.y == pytest.approx([v / 1_000 for v in view.hull.filter(pl.col("side") == end)["bound_ns"]])
    [area] = traces(figure, "interval of the offset")
    n = 2 * view.windows.height
    assert area.y[:n:2] == pytest.approx([v / 1_000 for v in view.windows["hi_ns"]])
    assert area.y[n : 2 * n : 2] == pytest.approx([v / 1_000 for v in reversed(view.windows["lo_ns"])])
    assert figure.layout.xaxis.title.text == "time since the first window (s)"
    assert figure.layout.yaxis.title.text == "offset (µs)"


def test_title_and_notes_of_a_plain_pair():
    figure = alignment_figure(view_of(*files()))
    title = (
        "Offset of rank 0 host against rank 1 host: proven between \N{MINUS SIGN}4.1 and +3.1 µs "
        "over the whole recording, 16 constraints"
    )
    assert figure.layout.title.text == title
    assert figure.layout.title.subtitle.text.startswith("8 message, 8 transfer; narrowest interval")
    assert figure.layout.xaxis.title.text == "time since the first window (ms)"
    # the 8 µs forth and the 9 µs back, each of a message and a transfer
    assert notes(figure) == [
        "4 constraints lie above or below what is shown: double-click to see all.",
        "Constraints may lie inside the interval: it leaves room for drift in each window and for device clocks.",
    ]


def test_axes_are_cut_and_data_are_not():
    view = view_of(*files(forth=(5_000, 3_000, 900_000, 6_000)))
    figure = alignment_figure(view)
    low, high = (1_000 * v for v in figure.layout.yaxis.range)
    assert low < view.windows["lo_ns"].min() < view.windows["hi_ns"].max() < high < 900_000
    assert max(traces(figure, "message: upper bound (4)")[0].y) == 900
    assert notes(figure)[0] == "4 constraints lie above or below what is shown: double-click to see all."


def test_long_silence_is_cut():
    a, b = files()
    a.mark("other", BEGIN - 10**9, BEGIN - 10**9 + 10)
    view = view_of(a, b)
    figure = alignment_figure(view)
    left, right = figure.layout.xaxis.range
    assert left == pytest.approx(1_001 - 1_004.406 / 50, abs=0.01)
    assert 1_004.406 < right < 1_007
    assert notes(figure)[0] == "Shown is where the constraints are; the recordings reach from 0 to 1,004 ms."


def test_one_side_alone():
    view = view_of(*files(back=()))
    assert view.proven_ns[0] is None
    figure = alignment_figure(view)
    assert "proven to be at most +3.1 µs, 8 constraints" in figure.layout.title.text
    assert traces(figure, "interval of the offset") == []
    [line] = traces(figure, "upper end of the interval")
    assert line.showlegend
    assert traces(figure, "lower end of the interval") == []


def test_files_that_cannot_be_aligned():
    view = view_of(*files(back=(), clock="relative"))
    figure = alignment_figure(view)
    assert not view.placed
    assert figure.layout.title.text == "Offset of rank 0 host against rank 1 host: not aligned, 8 constraints"
    assert {t.name for t in figure.data} == {
        "hull of the upper bounds", "message: upper bound (4)", "transfer: upper bound (4)",
        "upper end of the interval",
    }  # fmt: skip


def test_nothing_ties_two_files():
    a, b = files(forth=(), back=())
    for r, (source, peer) in enumerate(((a, 1), (b, 0))):
        source.mark(f"submit src={r} dst={peer} seq=1 step=1", BEGIN, BEGIN + 10)
    view = view_of(a, b)
    figure = alignment_figure(view)
    assert figure.layout.title.text.endswith("host: nothing proven, 0 constraints")
    assert figure.layout.title.subtitle.text == "nothing ties both files directly"
    assert [t.name for t in figure.data] == ["chosen offset"]


def test_clocks_far_apart_keep_their_nanoseconds():
    behind = 5_000 * 10**9 + 1
    view = view_of(*files(behind_ns=behind))
    assert set(view.observations["bound_ns"]) == {-behind + d for d in FORTH} | {-behind - d for d in BACK}
    figure = alignment_figure(view)
    base = view.windows["offset_ns"][0]
    [drawn] = traces(figure, "message: upper bound (4)")
    assert [round(1_000 * y) + base + behind for y in drawn.y] == list(FORTH)
    shown = f"{base:+,}".replace("-", "\N{MINUS SIGN}")
    assert figure.layout.yaxis.title.text == f"offset (µs from {shown} ns)"
    assert f"µs from {shown} ns over the whole recording, 16 constraints" in figure.layout.title.text


def large_view(n=100_000):
    random = np.random.default_rng(1)
    at = np.sort(BEGIN + random.integers(0, 10**10, n))
    bound = 20_000 + random.exponential(10**6, n).astype(np.int64)
    rows = pl.DataFrame({"at_ns": at, "bound_ns": bound}).with_row_index("i")
    upper = pl.col("i") % 2 == 0
    rows = rows.with_columns(
        side=pl.when(upper).then(pl.lit("upper")).otherwise(pl.lit("lower")),
        bound_ns=pl.when(upper).then("bound_ns").otherwise(-pl.col("bound_ns")),
        beyond_ns=pl.col("bound_ns") - 30_000,
        kind=pl.lit("message"),
        instance=pl.col("i").cast(pl.String),
        **{f"{e}_{w}": pl.lit("x") for e in ("earlier", "later") for w in ("clock", "what")},
    ).select(*PAIR_OBSERVATION)
    window = {"window_start_ns": BEGIN, "window_end_ns": BEGIN + 10**10, "offset_ns": 0, "quality": "bounded"}
    ends = {"lo_ns": -30_000, "hi_ns": 30_000, "proven_lo_ns": -30_000, "proven_hi_ns": 30_000}
    hulls = []
    for side, sign in (("upper", 1), ("lower", -1)):
        mine = rows.filter(pl.col("side") == side)
        t, v = lower_hull(mine["at_ns"].to_numpy(), sign * mine["bound_ns"].to_numpy())
        hulls.append(pl.DataFrame({"side": [side] * len(t), "at_ns": t, "bound_ns": sign * v}))
    counts = pl.DataFrame({"kind": "message", "side": ["lower", "upper"], "n": [n // 2, n // 2]})
    return PairView("one", "two", rows, pl.DataFrame([{**window, **ends}]), pl.concat(hulls), counts, False)


def test_of_many_the_nearest_are_drawn():
    view = large_view()
    figure = alignment_figure(view)
    markers = [t for t in figure.data if t.mode == "markers"]
    drawn = sum(len(t.x) for t in markers)
    assert MOST_MARKERS - 100 < drawn <= MOST_MARKERS + view.hull.height
    assert (
        f"{drawn:,} of 100,000 constraints are drawn: of each stretch of time those nearest to the interval."
        in notes(figure)
    )
    assert [t.name for t in markers] == ["message: lower bound (50,000)", "message: upper bound (50,000)"]
    kept = nearest(view, MOST_MARKERS)
    assert kept.height == drawn
    assert view.hull.join(kept, on=["side", "at_ns", "bound_ns"], how="anti").is_empty()
    part = ((pl.col("at_ns") - BEGIN) // 10**8).alias("part")
    least = pl.col("beyond_ns").min()  # of every hundredth of the time, and of each side
    of_all, of_kept = (f.group_by("side", part).agg(least).sort("side", "part") for f in (view.observations, kept))
    assert of_all.equals(of_kept)


def test_names_of_files_are_no_markup():
    view = replace(view_of(*files()), one="<b>x</b>&")
    title = alignment_figure(view).layout.title.text
    assert title.startswith("Offset of &lt;b&gt;x&lt;/b&gt;&amp; against rank 1 host: ")


def test_plotly_is_loaded_when_a_figure_is_made():
    code = "import sys, gapscope.plots; sys.exit('plotly' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the page


def test_a_page_needs_no_network(tmp_path):
    path = tmp_path / "out.html"
    figure = alignment_figure(replace(view_of(*files()), one="</title><script>alert(1)</script>"))
    write_figure(figure, path)
    page = path.read_text(encoding="utf-8")
    assert "<title>Offset of &lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; against rank 1 host: proven" in page
    assert "alert(1)</script>" not in page
    # Addresses in the text of the library stay unused: of maps, licences and namespaces.
    outside = re.sub(r"<script\b[^>]*>.*?</script>", "<script></script>", page, flags=re.DOTALL)
    assert not re.search(r"https?:|//", outside.replace("<!DOCTYPE html>", ""))
    assert not re.search(r"<(script|img|iframe|link)\b[^>]*\b(src|href)\s*=\s*['\"]?(https?:)?//", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("where", [".", "none/out.html"])
def test_a_page_that_cannot_be_written(tmp_path, where):
    with pytest.raises(UsageError, match=r"the plot cannot be written: (Is a directory|No such file or directory)\.$"):
        write_figure(alignment_figure(view_of(*files())), tmp_path / where)


WATCH = """<script>
const seen = {errors: []};
window.addEventListener("error", e => seen.errors.push(String(e.message)));
document.addEventListener("securitypolicyviolation", e => seen.errors.push(e.blockedURI));
console.error = (...a) => seen.errors.push(a.join(" "));
console.warn = console.error;
window.addEventListener("load", () => setTimeout(() => {
  const color = getComputedStyle(document.querySelector(".gtitle")).fill;
  const size = document.querySelector(".main-svg").getBoundingClientRect();
  const from = performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:"));
  Plotly.Fx.hover("figure", [{curveNumber: CURVE, pointNumber: POINT}]);
  const hover = document.querySelector(".hoverlayer .hovertext text:not(.name)").textContent;
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({...seen, color, from, hover, fills: Math.abs(size.height - innerHeight) < 2});
  document.body.append(report);
}, 1000));
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: the page is not opened in a browser")
@pytest.mark.parametrize(("scheme", "color"), [("light", "rgb(34, 34, 34)"), ("dark", "rgb(228, 228, 228)")])
def test_a_browser_draws_the_page(tmp_path, scheme, color):
    path = tmp_path / "out.html"
    figure = alignment_figure(lab_view("nsys"))
    write_figure(figure, path)
    curve = [t.mode for t in figure.data].index("markers")
    low, high = figure.layout.yaxis.range
    point = next(i for i, y in enumerate(figure.data[curve].y) if low < y < high)
    watch = WATCH.replace("CURVE", str(curve)).replace("POINT", str(point))
    page = path.read_text(encoding="utf-8").replace("<style>", watch + "<style>", 1)
    path.write_text(page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}",
             f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", "--virtual-time-budget=5000",
             "--window-size=1280,1000"]  # fmt: skip
    done = subprocess.run([CHROMIUM, *flags, "--dump-dom", path.as_uri()], capture_output=True, timeout=120, check=True)
    dom = done.stdout.decode()
    [text] = re.findall(r'<pre id="report">(.*)</pre>', dom)
    report = json.loads(unescape(text))
    shown = figure.data[curve]
    instance, *records = shown.customdata[point]
    hover = f"nested {instance}{records[0]} ({records[1]})not after {records[2]} ({records[3]})"
    hover += f"offset ≥ {shown.y[point]:+,.3f} µs, at {f'{shown.x[point]:.6f}'.rstrip('0')} s"
    assert report == {"errors": [], "color": color, "from": [], "hover": unescape(hover), "fills": True}
    assert len(re.findall(r'<g class="trace scatter ', dom)) == len(figure.data)
    assert len(re.findall(r'class="point ', dom)) == lab_view("nsys").observations.height
    assert len(re.findall(r'class="legendtext"', dom)) == sum(t.showlegend is not False for t in figure.data)

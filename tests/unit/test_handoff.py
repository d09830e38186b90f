"""One handoff as an object: how it is named, what it is made of, and how it shows itself; and the figures by name."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import gapscope
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.figures import FIGURES
from gapscope.handoff import PLOTLY_MIME
from gapscope.testing import Recording, trace
from tests.page.built import BASE_NS, HOSTILE, destination, hostile, source, unaligned, without_handoffs

DATA = Path(__file__).parents[1] / "data"


@cache
def demo():
    return gapscope.analyze(DEMO_RECORDING)


@cache
def recorded(pattern):
    return gapscope.analyze(sorted(DATA.glob(pattern)))


@cache
def built():
    return gapscope.analyze(trace(source(), destination()))


def of_two_channels():
    """The same pair of ranks and seq, twice."""
    a, b = Recording("a", pid=10), Recording("b", pid=11)
    for channel in (0, 1):
        key, t = f"src=0 dst=1 seq=1 channel={channel} device=cpu", BASE_NS + channel * 100_000
        a.mark(f"produce {key}", t, t + 1_000)
        a.mark(f"submit {key}", t + 2_000, t + 3_000)
        b.mark(f"receive {key}", t, t + 5_000)
        b.mark(f"consume {key}", t + 6_000, t + 7_000)
    return gapscope.analyze(trace(a, b))


def without_consumer():
    """Three handoffs whose consumer is not marked: no gap."""
    b = destination()
    b.rows["ranges"] = [row for row in b.rows["ranges"] if "consume" not in row["name"]]
    return gapscope.analyze(trace(source(), b))


def text_of(html):
    return unescape(re.sub(r"<[^>]*>", "", html))


# Which one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["0>1/0/28", "0-1:28", "0>1:28", "0-1/0:28", " 0-1:28 "])
def test_a_handoff_has_several_names(key):
    assert demo().handoff(key).id == "0>1/0/28"


def test_without_a_key_it_is_the_longest_explained_gap_past_start_up():
    steady = demo().handoffs.filter("steady")
    assert demo().handoff().id == steady.sort("gap_ns")["handoff_id"][-1]
    assert demo().handoffs.sort("gap_ns")["handoff_id"][-1] != demo().handoff().id, "start-up has a longer one"


def test_it_holds_its_own_rows_and_no_others():
    found = demo().handoff("0-1:28")
    rows = demo().handoffs.filter(pl.col("handoff_id") == found.id).to_dicts()
    assert [found.row] == rows
    assert found.tiles.equals(demo().tiles.filter(pl.col("handoff_id") == found.id).sort("start_ns"))
    assert found.tiles["duration_ns"].sum() == found.row["gap_ns"]
    assert found.timeline.handoff["handoff_id"] == found.id


@pytest.mark.parametrize("key", ["0-1:999", "1-0:28", "0-1/7:28", "", "nonsense", "0-1"])
def test_an_unknown_key_lists_some_that_are_there(key):
    with pytest.raises(UsageError, match=re.escape(f"Handoff {key}: there is none. There are 0>1/0/9, ")) as info:
        demo().handoff(key)
    assert "(20 in all)" in str(info.value)


def test_a_key_that_fits_several_lists_them():
    run = of_two_channels()
    with pytest.raises(UsageError, match=r"several fit\. Name one by its id: 0>1/0/1, 0>1/1/1"):
        run.handoff("0-1:1")
    assert run.handoff("0-1/1:1").id == run.handoff("0>1/1/1").id == "0>1/1/1"


def test_both_rows_of_a_collective_have_their_id():
    run = recorded("causes/late_rank_marked*")
    ids = run.handoffs["handoff_id"]
    assert run.handoff("tp/0/16@0").row["kind"] == "collective"
    assert [run.handoff(i).id for i in ids] == ids.to_list()


@pytest.mark.parametrize("key", [None, "0-1:1"])
def test_no_handoffs_say_so(key):
    with pytest.raises(UsageError, match="No handoffs were found"):
        without_handoffs().handoff(key)


def test_no_explained_gap_says_so():
    run = without_consumer()
    assert run.handoffs["gap_ns"].null_count() == 3
    with pytest.raises(UsageError, match="No handoff has a gap that can be explained"):
        run.handoff()
    assert run.handoff("0-1:2").row["status"] == "incomplete"


# What there is to see -------------------------------------------------------------------------------------------


KINDS = {
    "gap": lambda: demo().handoff("0-1:28"),
    "start-up": lambda: demo().handoff("0-1:9"),
    "no gap": lambda: without_consumer().handoff("0-1:2"),
    "unaligned": lambda: unaligned().handoff("0-1:2"),
    "collective": lambda: recorded("causes/late_rank_marked*").handoff("tp/0/16@0"),
    "incomplete collective": lambda: recorded("examples/pp_1f1b_torch*").handoff("0/0/6@0"),
    "mark log": lambda: recorded("cpu_pipeline*").handoff(),
    "built": lambda: built().handoff("0-1:2"),
}


@cache
def seen(kind):
    return KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_is_of_the_same_handoff(kind):
    handoff = seen(kind)
    bundle = handoff._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", PLOTLY_MIME}
    assert f"handoff {handoff.id}" in bundle["text/plain"]
    assert f"handoff {handoff.id}" in text_of(bundle["text/html"])
    title = unescape(bundle[PLOTLY_MIME]["layout"]["title"]["text"])
    assert title.startswith(f"Handoff {handoff.id}: ")
    assert handoff.id in repr(handoff)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_notebook_gets_is_json(kind):
    figure = seen(kind)._repr_mimebundle_()[PLOTLY_MIME]
    assert json.loads(json.dumps(figure, allow_nan=False))["layout"]["title"]


@pytest.mark.parametrize("kind", ["no gap", "unaligned", "incomplete collective"])
def test_without_a_gap_none_is_given(kind):
    handoff = seen(kind)
    assert handoff.row["gap_ns"] is None
    assert handoff.tiles.height == 0
    assert "no gap is known" in handoff.figure().layout.title.text
    assert not re.search(r"gap [\d.]+ (ns|µs|ms)", handoff.text())
    assert "held by  " not in handoff.text()


def test_unaligned_ranks_are_said_to_be_so():
    text = seen("unaligned").text()
    assert "unaligned" in text
    assert seen("unaligned").row["status"] == "unaligned"


def test_the_text_has_every_cause_and_the_headroom():
    handoff = demo().handoff("0-1:28")
    text = handoff.text()
    for cause in handoff.tiles["cause"].unique():
        assert cause in text
    assert "Without late_submission the consumer would have started 2.17 ms sooner; then submit_call holds" in text
    assert str(handoff) == text


def test_the_text_is_as_wide_as_asked_and_has_every_tile_if_asked():
    handoff = demo().handoff("0-1:28")
    assert max(map(len, handoff.text(width=90).splitlines())) <= 90
    lines, every = handoff.text(), handoff.text(every=True)
    assert lines.count("submit_call") < every.count("submit_call")


def test_the_text_is_plain_where_a_kernel_asks_for_colors(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernels of notebooks do
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    handoff = demo().handoff("0-1:28")
    assert "\x1b" not in handoff.text() + handoff._repr_mimebundle_()["text/plain"]


def test_rich_consoles_print_it():
    out = Console(file=io.StringIO(), width=118)
    out.print(demo().handoff("0-1:28"))
    assert "handoff 0>1/0/28: gap 2.52 ms" in out.file.getvalue()


def test_comparing_does_not_look_into_frames():
    one, two = demo().handoff("0-1:28"), demo().handoff("0-1:28")
    assert one == one
    assert one != two
    assert len({one, two}) == 2


# Names from recordings are text ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evil():
    return hostile()


def tags(html):
    return set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", html))


def test_html_of_a_handoff_has_no_tag_of_a_recording(evil):
    html = evil.handoff("0-1:2")._repr_html_()
    assert "evil" in html
    assert tags(html) <= {"pre", "span", "code"}
    assert HOSTILE not in html


def test_html_of_an_analysis_has_no_tag_of_a_recording(evil):
    html = evil._repr_html_()
    assert "onerror" in html
    assert "<script" not in html
    assert "<img" not in html
    assert HOSTILE not in html


def test_figures_have_no_tag_of_a_recording_but_their_own(evil):
    figures = [evil.handoff("0-1:2").figure(), *(evil.figure(name) for name in FIGURES if name != "units")]
    for figure in figures:
        texts = json.dumps(figure.to_plotly_json()["data"]) + json.dumps(figure.layout.to_plotly_json())
        assert tags(texts) <= {"b", "br", "extra", "i"}, figure.layout.title.text


# Figures by name ------------------------------------------------------------------------------------------------


def test_every_figure_of_a_run_has_a_title_and_an_axis_with_a_unit():
    run = recorded("examples/pp_1f1b_torch*")
    for name in FIGURES:
        layout = run.figure(name).layout
        assert layout.title.text, name
        units = (layout.xaxis.title.text or "") + (layout.yaxis.title.text or "")
        assert re.search(r"\((µs|ms|s)\)|share", units), name


def test_an_unknown_figure_lists_those_there_are():
    with pytest.raises(UsageError, match="There is no figure 'gap': gaps, history, causes, phases, units, clocks"):
        demo().figure("gap")


def test_only_history_has_an_edge():
    with pytest.raises(UsageError, match="'history' shows one"):
        demo().figure("gaps", edge="0 → 1")
    with pytest.raises(UsageError, match="There is no edge '1 → 0': 0 → 1"):
        demo().figure("history", edge="1 → 0")
    assert "0 → 1" in demo().figure("history", edge="0 → 1").layout.title.text


def test_history_takes_the_edge_with_most_counted_handoffs():
    run = recorded("examples/gloo_none_torch*")
    (edge,) = run.summary["edges"]
    assert f"{edge['src_rank']} → {edge['dst_rank']}" in run.figure("history").layout.title.text


@pytest.mark.parametrize(
    ("name", "run", "why"),
    [
        ("gaps", without_handoffs, "No handoff has a gap"),
        ("history", without_consumer, "No handoff has a gap"),
        ("phases", unaligned, "No handoff has a gap"),
        ("causes", without_consumer, "No gap is explained"),
        ("units", of_two_channels, "No step or request is marked"),
        ("clocks", demo, "only one host clock"),
    ],
)
def test_nothing_to_draw_says_why(name, run, why):
    with pytest.raises(UsageError, match=why):
        run().figure(name)


def test_dots_of_the_gaps_are_the_handoffs():
    figure = demo().figure("gaps")
    named = [i for t in figure.data if t.mode == "markers" for i in t.customdata]
    assert sorted(named) == sorted(demo().handoffs.filter(pl.col("gap_ns") > 0)["handoff_id"])


# Analyses in notebooks ------------------------------------------------------------------------------------------


def test_an_analysis_shows_its_report():
    bundle = demo()._repr_mimebundle_()
    assert bundle["text/plain"] == repr(demo()) == "Analysis(20 handoffs, 19 complete and steady, 1 findings)"
    assert bundle["text/html"] == demo()._repr_html_()
    text = text_of(bundle["text/html"])
    for said in ("20 handoffs", "2.42 ms", "late_submission", "20.1 µs"):
        assert said in text

"""Names in text reports: shown as they were recorded, and without what a terminal would act on."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

import gapscope
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.findings import Finding
from gapscope.reports.tables import plain_table
from gapscope.reports.text import render_text
from gapscope.testing import Recording, trace

EPOCH = 1_700_000_000_000_000_000
MARKUP = ["k[/]", "[bold red]stage[/bold red]", "[link=http://x]k", "k:smile:"]
ESCAPES = "k\x1b]0;title\x07\x1b[31mred\x9b2J\x7f"


def analyzed(name, path="r"):
    source, destination = Recording(f"{path}0.json", pid=10), Recording(f"{path}1.json", pid=11)
    for i in (1, 2, 3):
        t, key = EPOCH + i * 1000, f"src=0 dst=1 seq={i}"
        source.mark(f"produce {key}", t, t + 100)
        source.kernel(t + 10, t + 50, t + 200, name=name)
        source.mark(f"submit {key}", t + 110, t + 120)
        source.kernel(t + 111, t + 220, t + 230, stream=13, name=name)
        destination.mark(f"receive {key}", t, t + 10)
        destination.kernel(t + 1, t + 240, t + 250, stream=13, name=name)
        destination.mark(f"consume {key}", t + 11, t + 20)
        destination.kernel(t + 12, t + 260, t + 300, name=name)
    return gapscope.analyze(trace(source, destination))


def terminal(report):
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=118, color_system="truecolor", _environ={}).print(report)
    return out.getvalue()


@pytest.mark.parametrize("name", MARKUP)
def test_a_name_like_markup_is_shown_as_it_is(name):
    handoff = analyzed(name).handoff("0-1:2")
    for every in (False, True):
        assert name in handoff.text(every=every, width=160)
    html = handoff._repr_html_()
    assert "<a " not in html
    assert all(word in html for word in name.split())


def test_a_file_name_like_markup_is_shown_as_it_is(capsys):
    found = analyzed("k", path="[bold]r[x]")
    print_report(render_text(found.summary, found.findings, verbose=True))
    assert "[bold]r[x]0.json" in capsys.readouterr().out
    assert "[bold]r[x]0.json" in found._repr_html_()


def test_the_head_of_a_column_is_no_markup_either():
    table = plain_table("held by [/]:x", ">n")
    table.add_row("[/]", Text("1"))
    assert "held by [/]:x" in terminal(table)


def test_no_control_character_of_a_name_reaches_a_terminal(capsys):
    handoff = analyzed(ESCAPES).handoff("0-1:2")
    texts = [handoff.text(every=True), terminal(handoff), handoff._repr_html_()]
    print_report(handoff.rendered())
    texts.append(capsys.readouterr().out)
    for text in texts:
        without_styles = re.sub(r"\x1b\[[0-9;]*m", "", text) if text is texts[1] else text
        assert "k]0;title[31mred2J" in without_styles.replace("&#x27;", "'")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", without_styles)
    assert "\x1b[31mred" not in texts[1]


def test_a_text_on_stderr_has_none_either(capsys):
    warn_of_unreadable([Finding("unreadable_file", "error", "bad \x1b]0;x\x07.", path="a\x1b[2J.json")], strict=False)
    assert capsys.readouterr().err == "gapscope: not read: a[2J.json: bad ]0;x.\n"

"""What is shown while something takes long: a bar by itself after a second, and that loops are being compiled."""

import io
import time

import numpy as np
import pytest
from numba import njit
from rich.console import Console

from gapscope.cli import progress
from gapscope.compiling import COMPILING, compiling_told


@pytest.fixture
def screen(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=text, force_terminal=True, width=80))
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.05)
    return text


def shown_within(screen, words, seconds=10.0):
    until = time.monotonic() + seconds
    while words not in screen.getvalue():
        assert time.monotonic() < until, screen.getvalue()
        time.sleep(0.01)


def test_the_bar_comes_though_nothing_more_is_said(screen):
    with progress.LateProgress() as late:
        late("handoffs", 1.0)
        assert not screen.getvalue()
        shown_within(screen, "handoffs")
        late("causes", 1.0)
        shown_within(screen, "causes")


def test_what_is_over_soon_shows_nothing(screen):
    with progress.LateProgress() as late:
        late("handoffs", 1.0)
    time.sleep(0.2)
    assert not screen.getvalue()


def test_nothing_is_shown_on_a_pipe(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=text))
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    with progress.LateProgress() as late:
        late("handoffs", 1.0)
        time.sleep(0.1)
    assert not text.getvalue()


def test_compiling_is_said_and_what_was_said_before_comes_back():
    @njit
    def total(values):
        return values.sum()

    said = []
    with compiling_told(lambda *given: said.append(given)) as tell:
        tell("handoffs", 0.5)
        assert total(np.arange(3)) == 3
        assert total(np.arange(4)) == 6
    total(np.arange(3.0))  # nobody listens any more
    assert said == [("handoffs", 0.5), (COMPILING, 0.5), ("handoffs", 0.5)]

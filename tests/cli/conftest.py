"""The command line in this process, as a user meets it."""

import sys
from typing import NamedTuple

import pytest

from gapscope.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; no traceback may ever reach the user."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gapscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Outcome(exit_info.value.code or 0, out, err)

    return run

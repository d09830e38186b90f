"""What the tests of README and docs share."""

import shlex
import sys

import pytest

from gapscope.cli import main


@pytest.fixture
def gapscope_command(monkeypatch, capsys):
    """Run a ``gapscope`` command line in this process; return what it printed."""

    def run(command):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        assert exit_info.value.code == 0, err
        assert err == ""
        return out

    return run

"""Commands without a list of findings say that files were read in part: a tile may be unexplained for that alone."""

from pathlib import Path

import pytest

from gapscope.load import one_file

PAIR = [Path(__file__).parents[1] / "data" / f"mailbox_graph_torch_rank{rank}.json.gz" for rank in (0, 1)]


@pytest.mark.parametrize("command", [["explain"], ["whatif"], ["whatif", "--cause", "movement"]])
@pytest.mark.parametrize("steps", [[], ["--steps", "12:20"]])
def test_it_is_said_that_files_were_read_in_part(cli, monkeypatch, command, steps):
    monkeypatch.setattr(one_file, "WINDOWED_BYTES", 0)
    told = cli(*command, *PAIR, *steps, "--no-cache")
    assert told.code == 0
    assert told.out
    assert told.err.count("Of 2 files only what lies around the chosen steps was read.") == bool(steps)

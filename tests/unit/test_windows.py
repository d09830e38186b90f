"""When each process was recorded, from tables in pieces, held against the rows themselves."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gapscope.load import assembling
from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import no_progress

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("at_once", [7, 1 << 20])
@pytest.mark.parametrize("name", ["mailbox_graph_nsys.sqlite.gz", "mailbox_mixed_rank1.json.gz"])
def test_windows_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch, name: str, at_once: int) -> None:
    monkeypatch.setattr(assembling, "_AT_ONCE", at_once)
    path = DATA / name
    source = find_reader(path).read(path, ReadOptions(), no_progress)
    rows = {table: source.tables[table].collect() for table in ("ops", "calls", "ranges")}
    for process, start_ns, end_ns, n_ops in assembling.windows_of(source).iter_rows():
        mine = [frame.filter(pl.col("process") == process) for frame in rows.values()]
        times = [t for frame in mine for t in (*frame["start_ns"], *frame["end_ns"]) if t is not None]
        assert (start_ns, end_ns, n_ops) == (min(times), max(times), mine[0].height)

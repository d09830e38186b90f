"""Nothing hangs on the order in which polars happens to return groups: in a job of equal pairs every sum is a tie."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest
from polars.lazyframe.group_by import LazyGroupBy

from benchmarks.performance.inputs import as_rank
from gapscope import Analysis, LoadOptions, analyze
from gapscope.pipeline import TABLES

PAIR = Path(__file__).parents[1] / "data" / "two-gpus"
RANKS = 12


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("job")
    texts = [gzip.decompress((PAIR / f"copy_engine_none_torch_rank{k}.json.gz").read_bytes()) for k in (0, 1)]
    paths = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        path.write_bytes(as_rank(texts[rank % 2], rank, RANKS))
    return paths


def test_results_are_the_same_in_any_order_of_groups(job: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate, turned = LazyGroupBy.agg, []
    group_by = pl.LazyFrame.group_by

    def in_turned_order(frame: pl.LazyFrame, *by: object, maintain_order: bool = False, **named: object) -> LazyGroupBy:
        groups = group_by(frame, *by, maintain_order=maintain_order, **named)
        groups.is_free = not maintain_order
        return groups

    def ordered(by_key: bool) -> Analysis:
        def agg(groups: LazyGroupBy, *aggs: object, **named: object) -> pl.LazyFrame:
            found = aggregate(groups, *aggs, **named)
            if not groups.is_free:
                return found
            turned.append(1)
            keys = found.collect_schema().names()[:1]
            return found.sort(keys, descending=not by_key, maintain_order=True)

        monkeypatch.setattr(LazyGroupBy, "agg", agg)
        return analyze(job, options=LoadOptions(use_cache=False), unmarked=True)

    monkeypatch.setattr(pl.LazyFrame, "group_by", in_turned_order)
    one, other = ordered(by_key=True), ordered(by_key=False)
    assert len(turned) > 100
    listed = one.fixes.filter(pl.col("cause").is_not_null() & (pl.col("to") == "0"))
    assert listed.height == 10  # of more that are equal
    for table in TABLES:
        assert getattr(one, table).equals(getattr(other, table)), table
    assert one.summary == other.summary


def test_edges_stand_in_the_order_of_their_time() -> None:
    found = analyze([PAIR / f"tp_torch_rank{k}.json.gz" for k in (0, 1)], options=LoadOptions(use_cache=False))
    edges = found.summary["causes"]["edges"]
    assert len(edges) > 1
    assert [edge["gap_ns"] for edge in edges] == sorted((edge["gap_ns"] for edge in edges), reverse=True)
    assert len({edge["gap_ns"] for edge in edges}) == len(edges)

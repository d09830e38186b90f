"""Names by string id, looked up once each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from gapscope.readers.nsys_ids import Names


class Strings:
    """Strings by id that note which were asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, ids):
        self.asked += ids.to_list()
        return {i: f"name {i}" for i in ids if i != 404}


@pytest.mark.parametrize("far", [0, 2**40, -(2**40)])
def test_each_id_is_asked_for_once(far):
    strings = Strings()
    names = Names(strings)
    assert names.column(pl.Series([far + 5, 3, far + 5])).to_list() == [f"name {far + 5}", "name 3", f"name {far + 5}"]
    assert names.column(pl.Series([404, None, 3])).to_list() == ["unnamed (404)", "unnamed", "name 3"]
    assert names.column(pl.Series([None, None], dtype=pl.Int64)).to_list() == ["unnamed", "unnamed"]
    assert names.column(pl.Series([], dtype=pl.Int64)).to_list() == []
    assert sorted(strings.asked) == sorted([3, 404, far + 5])


def test_names_from_several_threads():
    strings = Strings()
    names = Names(strings)
    pieces = [pl.Series([(k * 7 + i) % 1000 + 1 for i in range(300)]) for k in range(200)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(names.column, pieces))
    assert [g.to_list() for g in got] == [["unnamed (404)" if i == 404 else f"name {i}" for i in p] for p in pieces]
    assert len(strings.asked) == len(set(strings.asked))

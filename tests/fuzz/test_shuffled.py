"""The order of events in a file, or of rows in a table, says nothing: the answer is the same in every order."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from tests.fuzz import built, exports
from tests.fuzz.recordings import (
    DATA,
    JSON_FILES,
    SQLITE_FILES,
    analyzed,
    content,
    events,
    handoffs_of,
    read,
    whole,
    whole_of,
)


def assert_same(path, undamaged):
    """Tables, counts, findings and handoffs are those of the file in its own order."""
    source = read(path)
    for name, frame in undamaged.source.tables.items():
        assert source.tables[name].collect().equals(frame.collect()), name
    own, other = undamaged.source.info, source.info
    assert (other.events, other.dropped, other.truncated) == (own.events, own.dropped, False)
    assert {f.message for f in source.findings} == {f.message for f in undamaged.source.findings}
    assert handoffs_of(analyzed(source, undamaged.others)) == undamaged.handoffs


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", JSON_FILES)
def test_events_of_a_real_file_in_any_order(tmp_path, name, seed):
    raw, spans = content(name), events(name)
    texts = [raw[start:end] for start, end in spans]
    random.Random(seed).shuffle(texts)
    path = tmp_path / Path(name).name.removesuffix(".gz")
    path.write_bytes(raw[: spans[0][0]] + b",\n".join(texts) + raw[spans[-1][1] :])
    assert len(json.loads(path.read_bytes())["traceEvents"]) == len(spans)
    assert_same(path, whole(name))


@pytest.mark.parametrize("layout", built.LAYOUTS)
def test_events_of_every_layout_in_any_order(tmp_path, layout):
    ranks = built.recorded(layout, (1, 2, 3))
    path = tmp_path / "both.json"
    texts = built.lines(ranks[0].events() + ranks[1].events())
    path.write_bytes(built.kineto(texts))
    undamaged = whole_of(read(path))
    assert {row["status"] for row in undamaged.handoffs.values()} == {"complete"}
    random.Random(layout).shuffle(texts)
    path.write_bytes(built.kineto(texts))
    assert_same(path, undamaged)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SQLITE_FILES)
def test_rows_of_a_real_export_in_any_order(tmp_path, name, seed):
    path = tmp_path / Path(name).name.removesuffix(".gz")
    path.write_bytes(content(name))
    generator = random.Random(seed)
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in exports.columns(path).items():
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            generator.shuffle(rows)
            connection.execute(f'DELETE FROM "{table}"')
            connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
        connection.commit()
    assert_same(path, whole_of(read(DATA / name)))


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_a_parquet_export_in_any_order(tmp_path, seed):
    database, folder = tmp_path / "both.sqlite", tmp_path / "both_pqtdir"
    exports.build(database, built.recorded("plain", (1, 2, 3)))
    exports.as_parquet(database, folder)
    undamaged = whole_of(read(folder))
    assert undamaged.handoffs["0>1/0/2"] == {"status": "complete", **built.plain_times(2)}
    for file in folder.iterdir():
        pl.read_parquet(file).sample(fraction=1, shuffle=True, seed=seed).write_parquet(file)
    assert_same(folder, undamaged)

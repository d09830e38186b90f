"""Integer columns decoded from the pages of a SQLite table, against SQLite itself."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.readers.nsys_pages import NotPlainError, PageFile
from gapscope.readers.nsys_records import integer_series

EDGES = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    2**15 - 1,
    2**23,
    -(2**23) - 1,
    2**31,
    2**47,
    -(2**47) - 1,
    2**63 - 1,
    -(2**63),
]
INTEGER = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
TEXT = st.text(max_size=40)


def write(path, rows, columns, page_size=512):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", rows)
        connection.commit()
        return connection.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]


def decode(path, root, positions, workers=2):
    with PageFile(path) as pages, ThreadPoolExecutor(workers) as pool:
        pieces = pages.decode(
            pages.leaves(root),
            positions,
            lambda records: [records.integers(k, "x") for k in range(len(positions))],
            pool,
        )
    return [[value for piece in pieces for value in piece[n]] for n in range(len(positions))]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(INTEGER, TEXT, INTEGER, INTEGER), max_size=200),
    page_size=st.sampled_from([512, 1024, 4096, 65536]),
)
def test_equal_to_sqlite(rows, page_size):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        root = write(path, rows, ["a INTEGER", "b TEXT", "c INTEGER", "d INTEGER"], page_size)
        got = decode(path, root, [3, 0])
    assert got == [[r[3] for r in rows], [r[0] for r in rows]]


def test_a_tree_of_several_levels_in_many_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("gapscope.readers.nsys_pages._PIECE_BYTES", 4096)
    rows = [(n * n, -n) for n in range(20_000)]
    root = write(tmp_path / "t", rows, ["a INTEGER", "b INTEGER"])
    assert decode(tmp_path / "t", root, [0, 1]) == [[a for a, _ in rows], [b for _, b in rows]]


def test_more_kinds_of_records_than_are_kept(tmp_path):
    rows = list(itertools.product([None, *EDGES], repeat=3)) * 2
    root = write(tmp_path / "t", rows, ["a INTEGER", "b INTEGER", "c INTEGER"], 4096)
    assert decode(tmp_path / "t", root, [0, 1, 2]) == [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("n", [62, 63, 64, 80, 130])
def test_records_of_many_columns(tmp_path, n):
    rows = [tuple(EDGES[(k + r * r) % len(EDGES)] for k in range(n)) for r in range(50)]
    root = write(tmp_path / "t", rows, [f"c{k} INTEGER" for k in range(n)], 4096)
    last = [0, n - 2, n - 1]
    assert decode(tmp_path / "t", root, last) == [[row[k] for row in rows] for k in last]


def test_pages_in_disorder_after_deletions_and_changes(tmp_path):
    path = tmp_path / "t"
    root = write(path, [(n, None) for n in range(5000)], ["a INTEGER", "b INTEGER"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x TEXT)")
        connection.execute("DELETE FROM t WHERE a % 3 = 0")
        connection.executemany("INSERT INTO other VALUES (?)", [("y" * 100,)] * 500)
        connection.execute("UPDATE t SET b = a * 1000000007 WHERE a % 2 = 0")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, 1) for n in range(9000, 12000)])
        connection.commit()
        expected = connection.execute("SELECT a, b FROM t ORDER BY rowid").fetchall()
    assert decode(path, root, [0, 1]) == [[a for a, _ in expected], [b for _, b in expected]]


def test_columns_added_later_are_null(tmp_path):
    root = write(tmp_path / "t", [(1,), (2,)], ["a INTEGER"])
    with closing(sqlite3.connect(tmp_path / "t")) as connection:
        connection.execute("ALTER TABLE t ADD COLUMN b INTEGER")
        connection.execute("INSERT INTO t VALUES (3, 4)")
        connection.commit()
    assert decode(tmp_path / "t", root, [0, 1]) == [[1, 2, 3], [None, None, 4]]


def test_no_rows(tmp_path):
    root = write(tmp_path / "t", [], ["a INTEGER"])
    assert decode(tmp_path / "t", root, [0]) == [[]]


@pytest.mark.parametrize(
    ("rows", "columns", "reason"),
    [
        ([("text",)], ["a INTEGER"], "not plain"),
        ([(1.5,)], ["a INTEGER"], "not plain"),
        ([("x" * 5000, 1)], ["t TEXT", "a INTEGER"], "not plain"),  # spills onto overflow pages
    ],
)
def test_what_is_not_plain(tmp_path, rows, columns, reason):
    root = write(tmp_path / "t", rows, columns)
    with pytest.raises(NotPlainError, match=reason):
        decode(tmp_path / "t", root, [len(columns) - 1])


def test_a_table_without_row_ids_is_not_plain(tmp_path):
    path = tmp_path / "t"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER) WITHOUT ROWID")
        connection.commit()
        root = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    with pytest.raises(NotPlainError):
        decode(path, root, [1])


def test_page_numbers_out_of_range(tmp_path):
    root = write(tmp_path / "t", [(n,) for n in range(1000)], ["a INTEGER"])
    for bad in (0, 10**6):
        with pytest.raises(NotPlainError, match="out of range"):
            decode(tmp_path / "t", bad, [0])
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content[: root * 512])  # the root is there, its children are not
    with pytest.raises(NotPlainError):
        decode(tmp_path / "t", root, [0])


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 200])
def test_no_database(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(NotPlainError):
        PageFile(tmp_path / "t")


def test_integer_series():
    values = np.array([1, 0, 3])
    assert integer_series("x", values, np.zeros(3, np.uint8)).to_list() == [1, 0, 3]
    assert integer_series("x", values, np.ones(3, np.uint8)).to_list() == [None, None, None]
    assert integer_series("x", values, np.array([0, 1, 0], np.uint8)).to_list() == [1, None, 3]

"""SQLite exports of nsys for the tests: a tiny one, built, and changes to real ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import polars as pl

from tests.fuzz.built import BASE_NS, Rank

_SESSION_NS = 1_000_000  # what the times of the session count from, after BASE_NS
_TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER",
}


def build(path: Path, ranks: Iterable[Rank], page_size: int = 512) -> None:
    """Write an export with what the ranks did; its pages are as small as SQLite makes them."""
    strings: dict[str, int] = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        for table, columns in _TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        for rank in ranks:
            for event in rank.events():
                table, row = _row(event, rank.rank, strings)
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(k, v) for v, k in strings.items()])
        connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (BASE_NS + _SESSION_NS,))
        connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
        connection.commit()


def _row(event: dict, rank: int, strings: dict[str, int]) -> tuple[str, tuple]:
    name = event["args"]["name"] if event["ph"] == "M" else event["name"]
    string = strings.setdefault(name, len(strings) + 1)
    process = (10 + rank) << 24
    if event["ph"] == "M":
        return "ThreadNames", (string, 100, process | event["tid"])
    start = round(1000 * event["ts"]) - _SESSION_NS
    times = (start, start + round(1000 * event["dur"]))
    if event["cat"] == "user_annotation":
        return "NVTX_EVENTS", (*times, 59, name, process | event["tid"], 0)
    if event["cat"] == "cuda_runtime":
        return "CUPTI_ACTIVITY_KIND_RUNTIME", (*times, process | event["tid"], event["args"]["correlation"], string)
    return "CUPTI_ACTIVITY_KIND_KERNEL", (*times, rank, 1, 7, event["args"]["correlation"], process, string)


def changed(path: Path, *statements: str) -> None:
    """Carry out SQL on an export."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def columns(path: Path) -> dict[str, list[str]]:
    """Return the columns of each table."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')] for name in names}


def as_parquet(path: Path, folder: Path) -> None:
    """Write the tables as a parquet export."""
    folder.mkdir()
    for table in columns(path):
        with closing(sqlite3.connect(path)) as connection:
            frame = pl.read_database(f'SELECT * FROM "{table}"', connection, infer_schema_length=None)
        frame.write_parquet(folder / f"{table}.parquet")

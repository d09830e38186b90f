"""Read kernels and API calls of an nsys SQLite export and do nothing with them: ``sqlite_readers.py WAY FILE``."""

from __future__ import annotations

import json
import sqlite3
import sys

QUERIES = [
    "SELECT start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName "
    "FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
]


def with_sqlite3(path: str) -> int:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    return sum(len(db.execute(query).fetchall()) for query in QUERIES)


def with_adbc(path: str) -> int:
    from adbc_driver_sqlite import dbapi

    rows = 0
    with dbapi.connect(f"file:{path}?mode=ro&immutable=1") as db, db.cursor() as cursor:
        for query in QUERIES:
            cursor.execute(query)
            rows += cursor.fetch_arrow_table().num_rows
    return rows


def with_connectorx(path: str) -> int:
    import connectorx  # type: ignore[import-not-found]

    return sum(
        connectorx.read_sql(
            f"sqlite://{path}", query, return_type="arrow", partition_on="start", partition_num=2
        ).num_rows
        for query in QUERIES
    )


def main() -> None:
    way, path = sys.argv[1:]
    read = {"sqlite3": with_sqlite3, "adbc": with_adbc, "connectorx": with_connectorx}[way]
    print(json.dumps({"rows": read(path)}))


if __name__ == "__main__":
    main()

"""The chosen rows of NVTX_EVENTS from the pages of a large SQLite file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.readers.nsys_ids import PID_BITS
from gapscope.readers.nsys_pages import PlainTable
from gapscope.readers.nsys_raw import PAYLOAD, REAL_PAYLOADS, WHOLE_PAYLOADS, Columns, RangeChoice
from gapscope.readers.nsys_records import Records


def chosen_ranges(
    table: PlainTable, columns: Columns, choice: RangeChoice, registered: Collection[int], pool: Executor
) -> pl.DataFrame:
    """Return some columns of the chosen rows, and the payload; see `gapscope.readers.nsys_raw.RawTables.ranges`.

    Args:
        table: The table.
        columns: Wanted columns, with their types.
        choice: Which rows.
        registered: Ids of the strings that fit ``choice.registered_prefixes``.
        pool: Threads to use.

    Raises:
        NotPlainError: Something in the table is not plain, such as a payload that is no whole number.
    """
    pages, leaves, position = table
    payloads = [c for c in (*WHOLE_PAYLOADS, *REAL_PAYLOADS) if c in position]
    tested = {"eventType", *(("text",) if choice.prefixes else ()), *(("textId",) if registered else ())}
    tested |= {"domainId", "globalTid"} if choice.domains else set()
    names = list(dict.fromkeys([*columns, *sorted(tested), *payloads]))
    texts = [c for c in names if c == "text"]
    at = {name: k for k, name in enumerate(names)}

    def chosen(records: Records) -> pl.DataFrame:
        keep = _chosen(records, at, choice, registered)
        rows = np.flatnonzero(keep)
        some = replace(records, values=records.values.take(rows, 1), nulls=records.nulls.take(rows, 1))
        frame = pl.DataFrame([some.texts(at[c], c) if c in texts else some.integers(at[c], c) for c in columns])
        values = [some.integers(at[c], c) for c in payloads]
        return frame.with_columns(pl.coalesce(*values, pl.lit(None, pl.Int64)).alias(PAYLOAD))

    positions = [position[c] for c in names]
    nothing = pl.DataFrame(schema={**columns, PAYLOAD: pl.Int64})
    return pl.concat([nothing, *pages.decode(leaves, positions, chosen, pool, [position[c] for c in texts])])


def _chosen(
    records: Records, at: Mapping[str, int], choice: RangeChoice, registered: Collection[int]
) -> npt.NDArray[np.bool_]:
    def is_any(column: str, values: Collection[int]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.isin(records.values[at[column]], list(values))
        found &= records.nulls[at[column]] == 0
        return found

    wanted: npt.NDArray[np.bool_] = np.full(records.values.shape[1], choice.everything)
    if choice.prefixes:
        wanted |= records.starts_with(at["text"], choice.prefixes)
    if registered:
        wanted |= is_any("textId", registered)
    for process, domain in choice.domains:
        of_process = records.values[at["globalTid"]] >> PID_BITS == process
        wanted |= of_process & (records.nulls[at["globalTid"]] == 0) & is_any("domainId", [domain])
    return wanted & is_any("eventType", choice.event_types)

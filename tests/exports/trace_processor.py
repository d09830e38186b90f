"""Asks Perfetto's own trace processor what it reads in a trace.

It is looked for in ``GAPSCOPE_TRACE_PROCESSOR``, the folder with its WebAssembly build, and runs in node; ``.ci/run``
fetches it. Where there is none, tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

ENGINE = os.environ.get("GAPSCOPE_TRACE_PROCESSOR", "")
NODE = shutil.which("node")
needed = pytest.mark.skipif(
    not (NODE and ENGINE and (Path(ENGINE) / "trace_processor.wasm").exists()),
    reason="no trace processor of Perfetto: set GAPSCOPE_TRACE_PROCESSOR to its folder, and have node on PATH",
)

_APPEND, _FINALIZE, _QUERY = 1, 2, 3


def ask(trace: bytes, *queries: str) -> list[pl.DataFrame]:
    """Return the answers to queries about a trace."""
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    stream = protos.TraceProcessorRpcStream()
    stream.msg.add(request=_APPEND, append_trace_data=trace)
    stream.msg.add(request=_FINALIZE)
    for query in queries:
        stream.msg.add(request=_QUERY).query_args.sql_query = query
    for number, request in enumerate(stream.msg):
        request.seq = number
    program = str(Path(__file__).with_suffix(".cjs"))
    run = subprocess.run([NODE, program, ENGINE], input=stream.SerializeToString(), capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()[-2000:]
    answers = protos.TraceProcessorRpcStream.FromString(run.stdout).msg
    assert not [a.append_result.error for a in answers if a.append_result.error]
    results, batches = [], []
    for answer in answers:
        if answer.HasField("query_result"):
            batches.append(answer.query_result)
            assert not answer.query_result.error, answer.query_result.error
            if answer.query_result.batch[-1].is_last_batch:
                results.append(_frame(batches))
                batches = []
    assert len(results) == len(queries)
    return results


def _frame(results) -> pl.DataFrame:
    names = list(results[0].column_names)
    cells = []
    for batch in (b for result in results for b in result.batch):
        texts = iter(batch.string_cells.split("\0"))
        values = {2: iter(batch.varint_cells), 3: iter(batch.float64_cells), 4: texts, 5: iter(batch.blob_cells)}
        cells += [None if kind == 1 else next(values[kind]) for kind in batch.cells]
    rows = [cells[i : i + len(names)] for i in range(0, len(cells), len(names))]
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)

"""What load generators write: latencies of requests as the client saw them, checked and joined with gapscope's own.

    table        the normal form: one row per request, facts about the run
    numbers      decimal text to integer nanoseconds
    records      JSON objects of a file
    columns      the arrays of a record as columns of the table
    vllm         results of ``vllm bench serve`` and of ``benchmark_serving.py``
    sglang       results of ``sglang.bench_serving``
    reading      the registry: which format a record is of
    in_flight    how many requests were under way, and whether they grew more
    checks       what a comparison of latencies has to know
    join         requests of the client and requests that gapscope saw

To add a format, write one file with a `gapscope.loadgen.reading.Format` and add it to `FORMATS` there.
"""

from gapscope.loadgen.checks import LoadChecks, check_load, with_latency
from gapscope.loadgen.join import JoinedRequests, join_requests
from gapscope.loadgen.reading import FORMATS, read_latencies
from gapscope.loadgen.table import LATENCIES, Latencies, LoadRun

__all__ = [
    "FORMATS",
    "LATENCIES",
    "JoinedRequests",
    "Latencies",
    "LoadChecks",
    "LoadRun",
    "check_load",
    "join_requests",
    "read_latencies",
    "with_latency",
]

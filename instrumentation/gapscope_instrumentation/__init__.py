"""Marks for pipeline handoffs, inside the job that is looked at.

    import gapscope_instrumentation as gs

    to_next = gs.Edge(dst=1)                     # rank 0; on rank 1: gs.Edge(src=0)
    with gs.step(n):
        handoff = to_next.handoff(mb=mb, bytes=y.nbytes)
        with gs.produce(handoff):
            y = stage(x)
        with gs.submit(handoff):
            dist.isend(y, 1)

Off until ``GAPSCOPE=1`` is in the environment or `capture` is used. Imports nothing but the standard library; torch and
nvtx are used where the job has them.
"""

from gapscope_instrumentation.adapters import adapters, attach, detach
from gapscope_instrumentation.contract import CONTRACT_VERSION, NVTX_DOMAIN, format_mark, pack_group, pack_pair
from gapscope_instrumentation.edges import Edge
from gapscope_instrumentation.errors import AdapterError
from gapscope_instrumentation.handoff import Handoff, host
from gapscope_instrumentation.marks import (
    available,
    consume,
    consumer_start,
    movement_start,
    produce,
    producer_finish,
    receive,
    request,
    stage,
    step,
    submit,
    transfer,
)
from gapscope_instrumentation.recorder import capture, flush, log_path, start_if_asked, status

__all__ = [
    "CONTRACT_VERSION",
    "NVTX_DOMAIN",
    "AdapterError",
    "Edge",
    "Handoff",
    "adapters",
    "attach",
    "available",
    "capture",
    "consume",
    "consumer_start",
    "detach",
    "flush",
    "format_mark",
    "host",
    "log_path",
    "movement_start",
    "pack_group",
    "pack_pair",
    "produce",
    "producer_finish",
    "receive",
    "request",
    "stage",
    "status",
    "step",
    "submit",
    "transfer",
]

start_if_asked()

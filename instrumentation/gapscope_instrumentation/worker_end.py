"""The end of a worker process, which atexit does not see."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

_FIRST = 1000  # before the finalizers that libraries register, none of which has such a priority


def at_end_of_worker(callback: Callable[[], object]) -> None:
    """Call something when this process ends, if it is a worker of multiprocessing; elsewhere do nothing.

    A forked worker ends by ``os._exit`` after its own finalizers, without what atexit knows. To be called when it
    has begun its work: what is registered before is dropped.

    Args:
        callback: Called once, by the worker's main thread; may be called by atexit as well.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        import_module("multiprocessing.util").Finalize(None, callback, exitpriority=_FIRST)

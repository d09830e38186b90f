"""Which threads capture a CUDA graph now, without asking CUDA: the question would itself be a call in the recording.

``torch.cuda.CUDAGraph.capture_begin`` and ``capture_end`` are wrapped while marks are on. Whatever captures through
torch goes through them (``torch.cuda.graph``, ``make_graphed_callables``, the compiler's graph trees).
"""

from __future__ import annotations

import functools
import sys
from threading import get_ident
from typing import Any

threads: set[int] = set()
"""Threads that capture, by ``threading.get_ident``."""

_replaced: list[tuple[Any, str, Any, Any]] = []


def watch() -> None:
    """Watch captures from now on, if torch is loaded. Does nothing the second time."""
    torch = sys.modules.get("torch")
    graph = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    if _replaced or graph is None or not {"capture_begin", "capture_end"} <= vars(graph).keys():
        return
    begin, end = vars(graph)["capture_begin"], vars(graph)["capture_end"]

    @functools.wraps(begin)
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        found = begin(*args, **kwargs)
        threads.add(get_ident())
        return found

    @functools.wraps(end)
    def capture_end(*args: Any, **kwargs: Any) -> Any:
        threads.discard(get_ident())
        return end(*args, **kwargs)

    for name, old, new in (("capture_begin", begin, capture_begin), ("capture_end", end, capture_end)):
        setattr(graph, name, new)
        _replaced.append((graph, name, old, new))


def unwatch() -> None:
    """Restore what `watch` replaced, unless someone else has replaced it since."""
    for graph, name, old, new in _replaced:
        if vars(graph).get(name) is new:
            setattr(graph, name, old)
    _replaced.clear()
    threads.clear()

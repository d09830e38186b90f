"""Adapters: marks for a framework's pipeline, without an edit of the job.

To add one, write a file with an `Adapter` and its name in `contract.ADAPTERS`.
"""

from __future__ import annotations

from importlib import import_module

from gapscope_instrumentation.adapters.base import Adapter, Attached
from gapscope_instrumentation.contract import ADAPTERS
from gapscope_instrumentation.errors import AdapterError

_attached: dict[str, Attached] = {}


def adapters() -> tuple[str, ...]:
    """Return the names that `attach` takes."""
    return ADAPTERS


def find(name: str) -> Adapter:
    """Return an adapter.

    Raises:
        AdapterError: There is none of that name.
    """
    if name not in ADAPTERS:
        raise AdapterError(f"there is no adapter {name!r}; known are {', '.join(ADAPTERS)}")
    adapter: Adapter = import_module(f"{__name__}.{name}").ADAPTER
    return adapter


def attach(name: str) -> None:
    """Mark what a framework does from now on. The second time does nothing.

    Args:
        name: One of `adapters`.

    Raises:
        AdapterError: The framework is not installed, or lacks what the adapter needs; it is named, and nothing was
        changed.
    """
    if name not in _attached:
        _attached[name] = find(name).attach()


def detach(name: str) -> None:
    """Restore what `attach` changed. Does nothing where it is not attached."""
    attached = _attached.pop(name, None)
    if attached is not None:
        attached.undo()

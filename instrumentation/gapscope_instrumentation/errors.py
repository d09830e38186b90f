"""What the instrumentation refuses to do, and why."""

from __future__ import annotations


class AdapterError(RuntimeError):
    """An adapter does not fit the framework that is installed. Nothing was changed."""

"""Engines: where recordings are looked for and read. What comes back is the same tables from each of them.

`local` reads in threads of this process; `ray` reads each file on the node of a Ray cluster where it lies. `placing`
decides where, `node` is what runs there, and `wire` is how tables travel.
"""

from __future__ import annotations

from gapscope.errors import UsageError
from gapscope.load.engines.base import Asked, Engine, Recording
from gapscope.load.engines.local import LocalEngine

__all__ = ["ENGINES", "Asked", "Engine", "Recording", "engine_of"]

ENGINES = ("local", "ray")


def engine_of(name: str, ray_address: str | None, workers: int | None) -> Engine:
    """Return an engine.

    Args:
        name: One of `ENGINES`.
        ray_address: Address of the Ray cluster; None: ``RAY_ADDRESS``, else one that runs here, else one is started.
        workers: Files read at once by threads of this process; None: one per processor, four at most.

    Raises:
        UsageError: There is no such engine, or it is not installed.
    """
    if name == "local":
        return LocalEngine(workers)
    if name == "ray":
        from gapscope.load.engines.ray import RayEngine  # noqa: PLC0415 - only who asks for Ray needs it

        return RayEngine(ray_address, workers)
    raise UsageError(f"There is no engine {name!r}. Engines are {', '.join(ENGINES)}.")

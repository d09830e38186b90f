"""The compiler of the loops, made ready in a third of the time that the first loop takes to do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gapscope.collector import without_cycle_collection


def ready_compiler() -> None:
    """Load what numba loads with the first loop, all but ``scipy.linalg``; costs nothing the second time."""
    from numba.core.compiler_lock import global_compiler_lock  # noqa: PLC0415 - takes time that kept results do not need
    from numba.core.registry import cpu_target  # noqa: PLC0415

    with global_compiler_lock, without_cycle_collection(), _without_blas():
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()


@contextmanager
def _without_blas() -> Iterator[None]:
    """Keep numba from importing ``scipy.linalg`` only to learn that it is there, as it is: gapscope requires scipy.

    A loop that multiplies matrices, and gapscope has none, makes numba import it all the same.
    """
    from numba.np import linalg  # noqa: PLC0415 - as above

    look_for_it = getattr(linalg, "ensure_blas", None)
    if look_for_it is None:  # a version of numba that does it in another way
        yield
        return
    linalg.ensure_blas = lambda: None
    try:
        yield
    finally:
        linalg.ensure_blas = look_for_it

"""Loops compiled by numba, and where their machine code is kept.

All of them take half a minute to compile and a fifth of a second to load, so it is kept as numba does: in
``NUMBA_CACHE_DIR`` if that is set, else beside the source, else in numba's folder of the user. No folder that can be
written to, a full disk or a file that cannot be read cost time, never the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba as nb
from numba.core.caching import FunctionCache, NullCache

from gapscope.errors import LoopsNotKeptWarning

F = TypeVar("F", bound=Callable[..., Any])


def loop(function: F) -> F:
    """Compile on first use, without the interpreter lock."""
    return kept(function, nogil=True)


def kept(function: F, **options: Any) -> F:  # noqa: ANN401 - numba's own
    """Compile on first use, and keep the machine code.

    Args:
        function: The loop.
        options: What numba's ``njit`` takes, but for ``cache``.
    """
    dispatcher: Any = nb.njit(**options)(function)
    try:
        dispatcher._cache = _Kept(function)  # what numba's own `enable_caching` does with a cache of its own
    except RuntimeError:  # numba found no folder that it may write to
        dispatcher._cache = _Nowhere()
    return cast("F", dispatcher)


class _Kept(NullCache):
    """numba's cache of one function, in which nothing that goes wrong ends the run.

    Raises:
        RuntimeError: There is no folder for it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        make: Any = FunctionCache  # numba has no types
        self._own = make(function)

    @property
    def cache_path(self) -> str:
        return str(self._own.cache_path)

    def load_overload(self, sig: object, target_context: object) -> object:
        try:
            return self._own.load_overload(sig, target_context)
        except Exception:  # damaged files fail in as many ways as pickle has
            self.flush()  # else each run would fail to load it, and to keep it
            return None

    def save_overload(self, sig: object, cres: object) -> None:
        try:
            self._own.save_overload(sig, cres)
        except OSError as error:
            _warn(error.strerror or str(error))

    def flush(self) -> None:
        with suppress(OSError):
            self._own.flush()


class _Nowhere(NullCache):
    def save_overload(self, sig: object, cres: object) -> None:
        _warn("no folder for them can be written to")


_warned: list[str] = []


def _warn(reason: str) -> None:
    """Warn once in a process."""
    if not _warned:
        _warned.append(reason)
        warnings.warn(
            f"Compiled loops could not be kept ({reason}): each run compiles for half a minute. Set NUMBA_CACHE_DIR to "
            "a folder with room.",
            LoopsNotKeptWarning,
            stacklevel=2,
        )

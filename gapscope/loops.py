"""Loops compiled by numba, and where their machine code is kept.

All of them take half a minute to compile and a fifth of a second to load, so it is kept as numba does: in
``NUMBA_CACHE_DIR`` if that is set, else beside the source, else in numba's folder of the user. No folder that can be
written to, a full disk or a file that cannot be read cost time, never the run.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Callable
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar, cast

import numba as nb
from numba.core.caching import CompileResultCacheImpl, NullCache
from numba.core.serialize import dumps

from gapscope.entries import digest_of
from gapscope.errors import LoopsNotKeptWarning

_dumped: Any = dumps  # numba has no types
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
    """Machine code of one function: a file for each kind of arguments, named by what it was compiled from.

    numba's own cache would do, but has an index that can point to machine code of an older source where a write was
    interrupted, and runs machine code in which a bit went bad. What it makes and takes back is kept here under a seal.

    Raises:
        RuntimeError: There is no folder for it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        make: Any = CompileResultCacheImpl
        self._own = make(function)
        self._folder = Path(self._own.locator.get_cache_path())
        self._source = self._own.locator.get_source_stamp()
        self._name = f"{self._own.filename_base}.{digest_of(repr(self._source).encode())[:8]}"

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, sig: object, target_context: Any) -> object:  # noqa: ANN401 - numba's own
        target_context.refresh()
        path = self._file(sig, target_context.codegen())
        try:
            content = path.read_bytes()
            if content[:_SEAL] != _sealing(path, content[_SEAL:]):
                return None
            return self._own.rebuild(target_context, pickle.loads(content[_SEAL:]))
        except Exception:  # what is not there, cannot be read, or is of another release of numba is compiled
            return None

    def save_overload(self, sig: object, cres: Any) -> None:  # noqa: ANN401 - numba's own
        if not self._own.check_cachable(cres):
            return
        path, content = self._file(sig, cres.codegen), _dumped(self._own.reduce(cres))
        beside = path.with_name(f".{token_hex(8)}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                beside.write_bytes(_sealing(path, content) + content)
                beside.replace(path)
                self._remove_outdated()
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            _warn(f"in {self._folder}: {error.strerror or error}")

    def _file(self, sig: object, codegen: Any) -> Path:  # noqa: ANN401 - numba's own
        said = repr((sig, codegen.magic_tuple(), nb.__version__, self._source))
        return self._folder / f"{self._name}.{digest_of(said.encode())}{_ENDING}"

    def _remove_outdated(self) -> None:
        """Remove what was compiled from another source."""
        for path in self._folder.glob(f"{escape(self._own.filename_base)}.*{_ENDING}"):
            if not path.name.startswith(self._name):
                path.unlink(missing_ok=True)


_SEAL = 32  # bytes
_ENDING = ".loop"


def _sealing(path: Path, content: bytes) -> bytes:
    """Return what vouches for the content of a file, and that it belongs there."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


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
            "another folder.",
            LoopsNotKeptWarning,
            stacklevel=2,
        )

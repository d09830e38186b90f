"""Attach adapters as soon as the job has loaded their framework, and never load it for their sake.

``GAPSCOPE_ATTACH=torch_pipelining,c10d`` names them. An adapter is attached right after the last of the modules that it
changes was imported by the job. Until then a finder watches imports of those names alone; it finds nothing itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

from gapscope_instrumentation.adapters import attach, find
from gapscope_instrumentation.errors import AdapterError

states: dict[str, str] = {}
"""Per adapter that was asked for, in one phrase: attached, what it waits for, or why it cannot be attached."""


def attach_on_import(names: str) -> None:
    """Attach adapters, each when its framework is there; warn of one that cannot be, and go on.

    Args:
        names: Names with commas between.
    """
    for name in [part.strip() for part in names.split(",") if part.strip()]:
        if name not in states:
            try:
                modules = {target.module for target in find(name).targets}
            except (AdapterError, ImportError, AttributeError) as error:
                _cannot(name, error)
                continue
            _When(name, modules)


class _When:
    """Attaches one adapter when all of its modules are loaded."""

    def __init__(self, name: str, modules: set[str]) -> None:
        self._name = name
        self._missing = {module for module in modules if not _loaded(module)}
        self._look()
        if self._missing:
            _finder().watch(self._missing, self._notice)

    def _notice(self, module: str) -> None:
        if module in self._missing:
            self._missing.discard(module)
            self._look()

    def _look(self) -> None:
        if self._missing:
            states[self._name] = f"waits for {', '.join(sorted(self._missing))}"
            return
        try:
            attach(self._name)
            states[self._name] = "attached"
        except Exception as error:  # an import of the job must not fail for it
            _cannot(self._name, error)


def _cannot(name: str, error: Exception) -> None:
    states[name] = f"not attached: {error}"
    warnings.warn(f"gapscope: the adapter {name!r} is not attached: {error}", RuntimeWarning, stacklevel=3)


def _loaded(module: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False)


class _Finder(importlib.abc.MetaPathFinder):
    """Has all other finders look for a watched module, and tells when it was loaded."""

    def __init__(self) -> None:
        self._watched: dict[str, list[Callable[[str], None]]] = {}

    def watch(self, modules: set[str], tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the name of each module once it is loaded."""
        for module in modules:
            self._watched.setdefault(module, []).append(tell)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return what the other finders find, with a loader that tells; None for all modules that nobody waits for."""
        if fullname not in self._watched:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, lambda: self._tell(fullname))
                return spec  # type: ignore[no-any-return]
        return None

    def _tell(self, module: str) -> None:
        for tell in self._watched.pop(module, ()):
            tell(module)
        if not self._watched and self in sys.meta_path:
            sys.meta_path.remove(self)


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and tells afterwards."""

    def __init__(self, own: importlib.abc.Loader, tell: Callable[[], None]) -> None:
        self._own, self._tell = own, tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make the module object."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; from here on it has its own loader, as if nobody had watched."""
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._tell()


def _finder() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    made = _Finder()
    sys.meta_path.insert(0, made)
    return made

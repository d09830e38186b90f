"""What an adapter is, and how it changes a framework so that all can be restored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gapscope_instrumentation.errors import AdapterError


@dataclass(frozen=True)
class Target:
    """A function that an adapter replaces or relies on, or a table of functions.

    Attributes:
        module: Where it is.
        path: Its name there, through classes: ``PipelineStage.get_fwd_send_ops``.
        parameters: Parameters that it must have, by name, in this order among others; none for a table.
    """

    module: str
    path: str
    parameters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Full name, for people."""
        return f"{self.module}.{self.path}"

    def resolve(self) -> tuple[Any, str, Any]:
        """Return its owner, its name there, and itself as it stands in the owner.

        Raises:
            AdapterError: It is not there or has other parameters.
        """
        try:
            owner: Any = import_module(self.module)
        except ImportError as error:
            raise AdapterError(f"{self.module} cannot be imported ({error})") from error
        *through, last = self.path.split(".")
        try:
            for part in through:
                owner = getattr(owner, part)
            found = getattr(owner, last)
        except AttributeError as error:
            raise AdapterError(f"{self.name} is not there: another version of the framework?") from error
        there = list(inspect.signature(found).parameters) if callable(found) else []
        missing = [p for p in self.parameters if p not in there]
        if missing or [p for p in there if p in self.parameters] != list(self.parameters):
            wanted = ", ".join(self.parameters)
            raise AdapterError(
                f"{self.name} takes ({', '.join(there)}), and ({wanted}) is what the adapter was made for"
            )
        return owner, last, inspect.getattr_static(owner, last)


@dataclass
class Attached:
    """What an adapter has changed, so that it can be undone.

    A replaced function that someone else has wrapped meanwhile stays, and does nothing any more: `active` is False.
    """

    active: bool = True
    changes: list[tuple[Any, str, Any, Any, bool]] = field(default_factory=list)
    cleanups: list[Callable[[], None]] = field(default_factory=list)

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Put ``new`` in the place of an attribute."""
        own = name in vars(owner)
        old = inspect.getattr_static(owner, name)
        setattr(owner, name, new)
        self.changes.append((owner, name, old, new, own))

    def undo(self) -> None:
        """Restore everything, last first."""
        self.active = False
        for owner, name, old, new, own in reversed(self.changes):
            if inspect.getattr_static(owner, name, None) is not new:
                continue  # wrapped again by someone else: what we put there passes everything through now
            if own:
                setattr(owner, name, old)
            else:
                delattr(owner, name)
        self.changes.clear()
        for cleanup in reversed(self.cleanups):
            cleanup()
        self.cleanups.clear()


@dataclass(frozen=True)
class Adapter:
    """Marks for one framework.

    Attributes:
        name: As `gapscope_instrumentation.attach` takes it.
        checked: Releases whose sources it was checked against.
        targets: What it replaces or relies on; all are checked before anything is changed.
        install: Makes the changes.
    """

    name: str
    checked: str
    targets: Sequence[Target]
    install: Callable[[Attached], None]

    def attach(self) -> Attached:
        """Check every target, then change them.

        Raises:
            AdapterError: A target does not fit; nothing was changed.
        """
        for target in self.targets:
            try:
                target.resolve()
            except AdapterError as error:
                raise AdapterError(
                    f"{self.name} (checked against {self.checked}): {error}. Nothing was attached."
                ) from error
        attached = Attached()
        try:
            self.install(attached)
        except BaseException:
            attached.undo()
            raise
        return attached

"""Marks as NVTX ranges, for Nsight Systems and whatever else listens to NVTX.

Start/end ranges in the domain ``gapscope`` with registered, fixed messages and the key as payload (compact form), so that
memory stays flat. ``GAPSCOPE_NVTX=text`` writes all fields into the text instead; NVTX keeps every such text for ever.
What the installed package can do is tried, not concluded from its version:

- a domain object with ``start_range`` (0.2.12 and later);
- without that, the package's own ``start_range``, to which 0.2.11 gives the payload as well;
- with a `DummyDomain`, nothing: the package was told by the attached tool that the domain is disabled (or no tool is
  attached). Nsight Systems 2023.4 says so to 0.2.12 and later, whatever it records.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from gapscope_instrumentation.contract import DEFINITIONS, MARKS, NVTX_DOMAIN, PREFIX
from gapscope_instrumentation.handoff import Handoff, group_number

REMEDY = (
    "an NVTX tool is attached, but nvtx {version} was told that the domain 'gapscope' is disabled, and would record nothing "
    "(Nsight Systems 2023.4 does that to nvtx 0.2.12 and later). Install nvtx==0.2.11 in this environment or record with "
    "a newer Nsight Systems."
)
_ANNOUNCED_AGAIN = 256


class NvtxEmitter:
    """Marks in the NVTX domain ``gapscope``."""

    name = "nvtx"

    def __init__(self, start: Callable[..., Any], end: Callable[[Any], Any], point: Callable[..., Any], texts: bool) -> None:
        self._start, self._end, self._point, self._texts = start, end, point, texts
        self._names = [PREFIX + mark for mark in MARKS]
        self._groups: dict[str, int] = {}

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open a range."""
        if self._texts:
            return self._start(self._names[mark] + handoff.text, None)
        if handoff.group is not None:
            self._announce(handoff)
        try:
            return self._start(mark, handoff.payload)
        except ValueError:  # the key does not fit into 63 bits
            return self._start(self._names[mark] + handoff.text, None)

    def end(self, token: object) -> None:
        """Close a range."""
        self._end(token)

    def point(self, mark: int, handoff: Handoff) -> None:
        """Set an instant."""
        if self._texts:
            self._point(self._names[mark] + handoff.text, None)
            return
        if handoff.group is not None:
            self._announce(handoff)
        try:
            self._point(mark, handoff.payload)
        except ValueError:
            self._point(self._names[mark] + handoff.text, None)

    def define(self, what: str, text: str) -> None:
        """Say who speaks (`DEFINITIONS`)."""
        if what in DEFINITIONS:
            self._point(f"{PREFIX}{what} {text}", None)

    def close(self) -> None:
        """Nothing is left to write."""

    def _announce(self, handoff: Handoff) -> None:
        """Say now and then which group a number stands for: a capture may begin late."""
        group = handoff.group or ""
        said = self._groups.get(group, 0)
        if said % _ANNOUNCED_AGAIN == 0:
            rank = "" if handoff.rank is None else f" rank={handoff.rank}"
            self.define("group", f"group={group} number={group_number(group)}{rank}")
        if len(self._groups) < 1 << 16:
            self._groups[group] = said + 1


def tool_attached() -> bool:
    """Tell if a tool asked to listen to NVTX in this process."""
    return bool(os.environ.get("NVTX_INJECTION64_PATH") or os.environ.get("NVTX_INJECTION32_PATH"))


def open_nvtx() -> tuple[NvtxEmitter | None, str]:
    """Return the emitter, None where nothing would be recorded, and one phrase on what was found."""
    choice = os.environ.get("GAPSCOPE_NVTX", "compact").lower()
    if choice in ("off", "0", "none"):
        return None, "switched off (GAPSCOPE_NVTX)"
    if not tool_attached():
        return None, "no tool listens"
    try:
        import nvtx  # noqa: PLC0415 - a job without a capture does not need it
    except ImportError:
        return None, "the nvtx package is not installed (pip install nvtx)"
    version = _version()
    domain = _fresh_domain(nvtx)
    texts = choice == "text"
    if domain is None:
        return None, "the nvtx package is older than 0.2.11 and has no domains"
    if type(domain).__name__ == "DummyDomain":
        if getattr(nvtx, "enabled", lambda: True)():
            return None, REMEDY.format(version=version)
        return None, "switched off (NVTX_DISABLE)"
    if hasattr(domain, "start_range"):
        emitter = _with_domain(domain, texts)
        how = f"nvtx {version}, domain"
    else:
        emitter = _without_domain(nvtx, texts)
        how = f"nvtx {version}, package calls"
    if emitter is None:
        return None, f"nvtx {version} gives two messages one name (NVIDIA/NVTX issue 123); install another version"
    return emitter, how + (", text" if texts else ", compact")


def _fresh_domain(nvtx: Any) -> Any:
    """Return a domain object made now: an older one keeps the answer that the tool gave then."""
    kind = getattr(nvtx, "Domain", None)
    if kind is not None:
        return kind(NVTX_DOMAIN)
    get = getattr(nvtx, "get_domain", None)
    return None if get is None else get(NVTX_DOMAIN)


def _with_domain(domain: Any, texts: bool) -> NvtxEmitter | None:
    attributes: list[Any] = []
    if not texts:
        attributes = [domain.get_event_attributes(message=PREFIX + mark) for mark in MARKS]
        if len({id(a) for a in attributes}) != len(MARKS):
            return None

    def start(mark: Any, payload: int | None) -> Any:
        if payload is None:
            return domain.start_range(message=mark)
        return domain.start_range(attributes[mark], payload=payload)

    def point(mark: Any, payload: int | None) -> None:
        if payload is None:
            domain.mark(message=mark)
        else:
            domain.mark(attributes[mark], payload=payload)

    return NvtxEmitter(start, domain.end_range, point, texts)


def _without_domain(nvtx: Any, texts: bool) -> NvtxEmitter | None:
    names = [PREFIX + mark for mark in MARKS]

    def start(mark: Any, payload: int | None) -> Any:
        message = mark if payload is None else names[mark]
        return nvtx.start_range(message, domain=NVTX_DOMAIN, payload=payload)

    def point(mark: Any, payload: int | None) -> None:
        nvtx.mark(mark if payload is None else names[mark], domain=NVTX_DOMAIN, payload=payload)

    return NvtxEmitter(start, nvtx.end_range, point, texts)


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - takes 20 ms

    try:
        return metadata.version("nvtx")
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get("nvtx"), "__version__", "of unknown version")

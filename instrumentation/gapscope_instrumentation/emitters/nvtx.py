"""Marks as NVTX ranges, for Nsight Systems and whatever else listens to NVTX.

Start/end ranges in the domain ``gapscope`` with registered, fixed messages and the key as payload (compact form), so
that memory stays flat. ``GAPSCOPE_NVTX=text`` writes all fields into the text instead; NVTX keeps every such text for
ever. What the installed package can do is tried, not concluded from its version:

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
    "an NVTX tool is attached, but nvtx {version} was told that the domain 'gapscope' is disabled, and would record "
    "nothing (Nsight Systems 2023.4 does that to nvtx 0.2.12 and later). Install nvtx==0.2.11 in this environment or "
    "record with a newer Nsight Systems."
)
_ANNOUNCED_AGAIN = 256
_NAMES = tuple(PREFIX + mark for mark in MARKS)


class NvtxEmitter:
    """Marks in the NVTX domain ``gapscope``.

    Args:
        begin: Opens a range: mark, handoff; returns what ``end`` needs.
        end: Closes it: the package's own function, with nothing between.
        point: Sets an instant.
        say: Sets an instant with any text.
    """

    name = "nvtx"

    def __init__(
        self,
        begin: Callable[[int, Handoff], object],
        end: Callable[[Any], None],
        point: Callable[[int, Handoff], None],
        say: Callable[[str], None],
    ) -> None:
        self.begin, self.end, self.point, self._say = begin, end, point, say

    def define(self, what: str, text: str) -> None:
        """Say who speaks (`DEFINITIONS`)."""
        if what in DEFINITIONS:
            self._say(f"{PREFIX}{what} {text}")

    def close(self) -> None:
        """Nothing is left to write."""


class _Groups:
    """Says now and then which group a number of the compact form stands for: a capture may begin late."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._said = say, dict[str, int]()

    def __call__(self, handoff: Handoff) -> None:
        group = handoff.group or ""
        said = self._said.get(group, 0)
        if said % _ANNOUNCED_AGAIN == 0:
            rank = "" if handoff.rank is None else f" rank={handoff.rank}"
            self._say(f"{PREFIX}group group={group} number={group_number(group)}{rank}")
        if said or len(self._said) < 1 << 16:
            self._said[group] = said + 1


def tool_attached() -> bool:
    """Tell if a tool asked to listen to NVTX in this process."""
    return bool(os.environ.get("NVTX_INJECTION64_PATH") or os.environ.get("NVTX_INJECTION32_PATH"))


def open_nvtx() -> tuple[NvtxEmitter | None, str]:  # noqa: PLR0911 - one for each thing that can be amiss
    """Return the emitter, None where nothing would be recorded, and one phrase on what was found."""
    choice = os.environ.get("GAPSCOPE_NVTX", "compact").lower()
    if choice in ("off", "0", "none"):
        return None, "switched off (GAPSCOPE_NVTX)"
    if not tool_attached():
        return None, "no tool listens"
    try:
        import nvtx
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


def _with_domain(domain: Any, texts: bool) -> NvtxEmitter | None:  # noqa: C901 - closures, for speed
    start, mark_instant = domain.start_range, domain.mark

    def say(text: str) -> None:
        mark_instant(message=text)

    if texts:
        return _in_text(lambda text: start(message=text), domain.end_range, say)
    attributes = [domain.get_event_attributes(message=PREFIX + mark) for mark in MARKS]
    if len({id(a) for a in attributes}) != len(MARKS):
        return None
    announce = _Groups(say)

    def begin(mark: int, handoff: Handoff) -> object:
        payload = handoff._payload
        if payload is None or handoff.group is not None:
            try:
                payload = handoff.payload
            except ValueError:  # it does not fit into 63 bits, or is of another message than the first
                return start(message=_NAMES[mark] + handoff.text)
            if handoff.group is not None:
                announce(handoff)
        return start(attributes[mark], payload=payload)

    def point(mark: int, handoff: Handoff) -> None:
        try:
            payload = handoff.payload
        except ValueError:
            say(_NAMES[mark] + handoff.text)
            return
        if handoff.group is not None:
            announce(handoff)
        mark_instant(attributes[mark], payload=payload)

    return NvtxEmitter(begin, domain.end_range, point, say)


def _without_domain(nvtx: Any, texts: bool) -> NvtxEmitter:
    start, mark_instant = nvtx.start_range, nvtx.mark

    def say(text: str) -> None:
        mark_instant(text, domain=NVTX_DOMAIN)

    if texts:
        return _in_text(lambda text: start(text, domain=NVTX_DOMAIN), nvtx.end_range, say)
    announce = _Groups(say)

    def begin(mark: int, handoff: Handoff) -> object:
        payload = handoff._payload
        if payload is None or handoff.group is not None:
            try:
                payload = handoff.payload
            except ValueError:
                return start(_NAMES[mark] + handoff.text, domain=NVTX_DOMAIN)
            if handoff.group is not None:
                announce(handoff)
        return start(_NAMES[mark], domain=NVTX_DOMAIN, payload=payload)

    def point(mark: int, handoff: Handoff) -> None:
        try:
            payload = handoff.payload
        except ValueError:
            say(_NAMES[mark] + handoff.text)
            return
        if handoff.group is not None:
            announce(handoff)
        mark_instant(_NAMES[mark], domain=NVTX_DOMAIN, payload=payload)

    return NvtxEmitter(begin, nvtx.end_range, point, say)


def _in_text(start: Callable[[str], object], end: Callable[[Any], None], say: Callable[[str], None]) -> NvtxEmitter:
    return NvtxEmitter(
        lambda mark, handoff: start(_NAMES[mark] + handoff.text),
        end,
        lambda mark, handoff: say(_NAMES[mark] + handoff.text),
        say,
    )


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("nvtx")
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get("nvtx"), "__version__", "of unknown version")

"""Edges and groups: where keys come from, on both sides, without communication.

The k-th handoff from one rank to another has the number k on both, so each side only counts. An edge counts while
nothing is
switched on as well: a capture may begin on two ranks at different moments.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from gapscope_instrumentation import identity, marking
from gapscope_instrumentation.contract import MARKS
from gapscope_instrumentation.handoff import FIELDS, Handoff

_new = object.__new__


class Edge:
    """All handoffs from one rank to another, or of one group of ranks.

    Pass it to a mark, and the k-th ``produce``, the k-th ``submit``, ... are of handoff k; or take a handle with
    `handoff`, which carries the key through callbacks, threads and coroutines. On one side of an edge, use one of the
    two.

    Args:
        src: Source rank; `gapscope_instrumentation.host` for host memory. None with ``dst``: this rank.
        dst: Destination rank, as above. None with ``src``: this rank.
        channel: What else shares this pair of ranks (0 to 15): direction, message type, virtual stage.
        group: Instead of ranks, the name of a communicator.
        fields: Fields of every handoff of the edge, such as ``kind="kv"`` or ``device="cpu"``.

    Raises:
        ValueError: One end is left out and nothing tells this process's rank, or no end is given.
    """

    _counts_itself = True

    def __init__(
        self,
        src: int | None = None,
        dst: int | None = None,
        *,
        channel: int = 0,
        group: str | None = None,
        **fields: Any,
    ) -> None:
        marking.notice_torch()
        if group is None:
            if src is None and dst is None:
                raise ValueError("an edge needs src= or dst= (the other end is this rank), or group=")
            src = _own_rank("src") if src is None else src
            dst = _own_rank("dst") if dst is None else dst
        else:
            fields.setdefault("rank", identity.rank())
        self.src, self.dst, self.channel, self.group = src, dst, channel, group
        self._known = Handoff(src, dst, channel=channel, group=group, **fields).__dict__
        self._handles = count()
        self._counts = tuple(count() for _ in MARKS)
        self._off = tuple(marking.Off(mark, self, counted) for mark, counted in enumerate(self._counts))

    def handoff(self, **fields: Any) -> Handoff:
        """Return the next handoff of the edge; call it once per handoff, on either side in the same order.

        Args:
            fields: What is known of it: ``step``, ``mb``, ``bytes``, ``name``, ... (`Handoff`).
        """
        if marking._compiling():
            return NO_HANDOFF
        return self._made(next(self._handles), fields)

    def _made(self, seq: int, fields: dict[str, Any] | None) -> Handoff:
        made = _new(Handoff)
        if not marking._emitters:
            made.__dict__ = {**self._known, "seq": seq}
        elif fields and not fields.keys() <= FIELDS:
            made.__dict__ = {**self._known, "seq": seq, "step": marking.current_step.get()}
            made.set(**fields)
        else:
            made.__dict__ = {**self._known, "seq": seq, "step": marking.current_step.get(), **(fields or {})}
        return made

    def _this(self, mark: int) -> Handoff:
        return self._made(next(self._counts[mark]), None)

    def _skip(self, mark: int) -> None:
        next(self._counts[mark])

    def __repr__(self) -> str:
        where = f"group={self.group!r}" if self.group is not None else f"src={self.src}, dst={self.dst}"
        return f"Edge({where}, channel={self.channel})"


def _own_rank(end: str) -> int:
    rank = identity.rank()
    if rank is None:
        raise ValueError(
            f"{end} was left out, and nothing tells the rank of this process: initialize torch.distributed first, "
            f"set RANK, or pass {end}="
        )
    return rank


NO_HANDOFF = Handoff(0, 0, 0)
"""What stands for a handoff inside compiled code, where nothing is marked."""

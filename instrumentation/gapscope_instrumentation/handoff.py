"""A handoff as the marks carry it: its key, and what is known about it."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, ClassVar

from gapscope_instrumentation.contract import (
    DIRECTIONS,
    LOG_KEY,
    NULL32,
    NULL64,
    RANK_BITS,
    pack_group,
    pack_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_PACK = struct.Struct(LOG_KEY).pack
_Bytes = bytes  # a handoff has a field of that name


def host(number: int = 0) -> int:
    """Return the end of a handoff that is host memory, for keys of KV offload and load.

    >>> Handoff(src=host(0), dst=1, seq=7).text
    ' src=host:0 dst=1 seq=7'
    """
    if number < 0:
        raise ValueError(f"host memory has numbers from 0 on, not {number}")
    return -1 - number


def group_number(name: str) -> int:
    """Return the number that stands for a group in compact form, the same on every rank."""
    return (
        int(name) if name.isdecimal() and int(name) < 1 << RANK_BITS else zlib.crc32(name.encode()) % (1 << RANK_BITS)
    )


def one_word(value: object) -> str:
    """Return the text of a value without white space, as the text form has it: one odd field must not cost the mark.

    >>> one_word("two words")
    'two_words'
    """
    try:
        text = str(value)
    except Exception:  # of the user's own class
        text = type(value).__name__
    return "_".join(text.split()) or "_"


class Handoff:
    """One handoff, or one message of it: key, fields, and its forms, each made once.

    It is the handle that callbacks, threads and coroutines pass on: any of them may mark it.

    Attributes:
        src: Source rank, ``host(n)`` for host memory; None for a collective.
        dst: Destination rank, ``host(n)`` for host memory; None for a collective.
        seq: Number within (src, dst, channel), or within the group.
        channel: What shares a pair of ranks: direction, message type.
        group: Name of the communicator of a collective.
        slot: Tensor, where several are one handoff.
        bytes: Bytes of this message.
        step, mb, dir, src_stage, dst_stage, kind, transport, name, device, job: As in the contract; None: not said.
        rank: The rank that marks, for collectives, where nothing else tells it.
        extra: Fields of your own; they are kept as they are.
    """

    src: int | None
    dst: int | None
    seq: int | None
    # Defaults stand in the class: most fields of most handoffs are not said, and a handle has to be cheap.
    channel: int = 0
    slot: int = 0
    group: str | None = None
    bytes: int | None = None
    step: int | None = None
    mb: int | None = None
    dir: str | None = None
    src_stage: int | None = None
    dst_stage: int | None = None
    kind: str | None = None
    transport: str | None = None
    name: str | None = None
    device: str | None = None
    job: str | None = None
    rank: int | None = None
    extra: dict[str, object] | None = None
    _text: str | None = None
    _payload: int | None = None
    _key: _Bytes | None = None
    _key_of: object = None  # the log whose words the key record numbers

    def __init__(self, src: int | None = None, dst: int | None = None, seq: int | None = None, **fields: Any) -> None:
        self.src, self.dst, self.seq = src, dst, seq
        if fields:
            self.set(**fields)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the forms: they are made anew, the one of the log with the words of the log that it goes to."""
        return {name: value for name, value in self.__dict__.items() if name not in _FORMS}

    def set(self, **fields: Any) -> None:
        """Say more about it; marks that are set from now on have it."""
        for form in _FORMS:
            self.__dict__.pop(form, None)
        own = fields.keys() - FIELDS - {"src", "dst", "seq"}
        if own:
            self.extra = {**(self.extra or {}), **{name: fields.pop(name) for name in sorted(own)}}
        self.__dict__.update(fields)

    def message(self, slot: int, bytes: int | None = None, **fields: Any) -> Handoff:  # noqa: A002 - the contract's name
        """Return another message of the same handoff: same key, own slot and size."""
        own = {name: value for name, value in self.__dict__.items() if name in FIELDS}
        own.update(self.extra or {}, slot=slot, bytes=bytes, **fields)
        return Handoff(self.src, self.dst, self.seq, **own)

    _off: ClassVar[tuple[Any, ...]] = ()  # brackets that do nothing, per mark
    _counts_itself: ClassVar[bool] = False

    def _this(self, mark: int) -> Handoff:
        return self

    def _skip(self, mark: int) -> None:
        pass

    @property
    def payload(self) -> int:
        """The key in compact form; of a unit, its number.

        Raises:
            ValueError: The key does not fit, or it is of another message than the first (the form has no slot); such
                a handoff is marked in text.
        """
        if self._payload is None:
            seq = self.seq or 0
            if self.slot:
                raise ValueError("the compact form has no slot")
            if not all(isinstance(part, int) for part in (self.src or 0, self.dst or 0, self.channel, seq)):
                raise ValueError("the compact form has whole numbers")
            if self.src is None and self.group is None:
                self._payload = seq if self.step is None else self.step
            elif self.group is not None:
                self._payload = pack_group(group_number(one_word(self.group)), self.channel, seq)
            else:
                self._payload = pack_pair(self.src or 0, self.dst or 0, self.channel, seq)
        return self._payload

    @property
    def text(self) -> str:
        """The fields in text form, with a leading space."""
        if self._text is None:
            src, dst = self.src, self.dst
            plain = self.extra is None and self.group is None and self.job is None and self.rank is None
            if plain and isinstance(src, int) and isinstance(dst, int) and src >= 0 and dst >= 0:
                self._text = self._usual_text()
            else:
                self._text = self._full_text()
        return self._text

    def _usual_text(self) -> str:
        text = f" src={self.src} dst={self.dst} seq={self.seq}"
        if self.channel:
            text += f" channel={self.channel}"
        if self.slot:
            text += f" slot={self.slot}"
        own = self.__dict__
        for name in _SAID:
            if own.get(name) is not None:
                text += f" {name}={one_word(own[name])}"
        return text

    def _full_text(self) -> str:
        def end(rank: int | None) -> object:
            return f"host:{-1 - rank}" if isinstance(rank, int) and rank < 0 else rank

        fields = {name: getattr(self, name) for name in ("src", "dst", "seq", "channel", "group", "slot", *_SAID)}
        fields |= {"src": end(self.src), "dst": end(self.dst), "rank": self.rank, "job": self.job}
        fields |= {"channel": self.channel or None, "slot": self.slot or None}
        said = {one_word(name).replace("=", "_"): value for name, value in (fields | (self.extra or {})).items()}
        return "".join(f" {name}={one_word(value)}" for name, value in said.items() if value is not None)

    def key_record(self, word: Callable[[str], int], log: object = None) -> _Bytes:
        """Return the part of a mark's record in the log that is the same for all marks of this message.

        Args:
            word: Numbers a word.
            log: Whose words these are; the record is made anew for another.

        Raises:
            struct.error: A field does not fit into its column; such a mark is written in text form.
        """
        if self._key is None or self._key_of is not log:
            self._key_of = log
            src = self.src if self.group is None else word(self.group)
            self._key = _PACK(
                self.slot, 0 if self.kind is None else word(self.kind), self.channel,
                NULL32 if src is None else src, NULL32 if self.dst is None else self.dst,
                NULL32 if self.mb is None else self.mb,
                NULL32 if self.src_stage is None else self.src_stage,
                NULL32 if self.dst_stage is None else self.dst_stage,
                0 if self.transport is None else word(self.transport), 0 if self.name is None else word(self.name),
                0 if self.device is None else word(self.device), 0 if self.dir is None else DIRECTIONS.index(self.dir),
                NULL64 if self.seq is None else self.seq, NULL64 if self.step is None else self.step,
                NULL64 if self.bytes is None else self.bytes,
            )  # fmt: skip
        return self._key

    def __repr__(self) -> str:
        return f"Handoff({self.text.strip()})"


_FORMS = ("_text", "_payload", "_key", "_key_of")
_SAID = ("step", "mb", "bytes", "dir", "src_stage", "dst_stage", "kind", "transport", "name", "device")
FIELDS = {*_SAID, "channel", "group", "slot", "job", "rank"}

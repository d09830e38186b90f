"""What the instrumentation writes and the analyzer reads: mark names, text form, compact form.

The one module that both packages share. It imports nothing.

Text form, in any NVTX domain and as a torch.profiler annotation::

    gapscope::submit src=0 dst=1 seq=57 step=9 mb=0 bytes=24576

Compact form, in the NVTX domain ``gapscope``: a registered message that is the mark's name
(``gapscope::submit``) and one int64 payload with the key, from the top:

    ====  =======================================================
    bits  field
    ====  =======================================================
    1     zero, so that the payload is never negative
    1     kind: 0 a pair of ranks, 1 a group
    16    src, or the number of the group
    16    dst, or zero
    4     channel
    26    seq modulo 2**26; the analyzer unwraps it
    ====  =======================================================
"""

CONTRACT_VERSION = 1
"""Version of the names, the text form and the compact form."""

PREFIX = "gapscope::"
"""Starts the text of every mark."""

NVTX_DOMAIN = "gapscope"
"""NVTX domain of marks in compact form."""

HANDOFF_BRACKETS = ("produce", "submit", "receive", "consume")
"""Host brackets around the code that enqueues the work of a handoff."""

HANDOFF_POINTS = ("producer_finish", "movement_start", "available", "consumer_start")
"""Points: the event itself."""

UNITS = ("step", "request")
"""Brackets around the unit whose end users feel."""

MARKS = HANDOFF_BRACKETS + HANDOFF_POINTS + UNITS

KEY_FIELDS = ("src", "dst", "channel", "seq", "group", "slot")
"""Fields that name a handoff and its message. ``channel`` and ``slot`` default to 0."""

INTEGER_FIELDS = ("src", "dst", "channel", "seq", "slot", "step", "mb", "bytes", "src_stage", "dst_stage", "rank")
TEXT_FIELDS = ("group", "dir", "name", "kind", "transport", "device", "job", "requests", "id")

SEQ_BITS = 26
CHANNEL_BITS = 4
RANK_BITS = 16
SEQ_MODULUS = 1 << SEQ_BITS
_DST_SHIFT = SEQ_BITS + CHANNEL_BITS
_SRC_SHIFT = _DST_SHIFT + RANK_BITS
_KIND_SHIFT = _SRC_SHIFT + RANK_BITS


def format_mark(mark: str, **fields: object) -> str:
    """Return the text form of a mark; fields that are None are left out.

    >>> format_mark("submit", src=0, dst=1, seq=57, bytes=24576)
    'gapscope::submit src=0 dst=1 seq=57 bytes=24576'
    """
    if mark not in MARKS:
        raise ValueError("unknown mark %r; known are %s" % (mark, ", ".join(MARKS)))
    parts = [PREFIX + mark]
    for key, value in fields.items():
        if value is None:
            continue
        text = str(value)
        if not text or any(c.isspace() for c in text) or "=" in key:
            raise ValueError("field %s=%r must be one word without spaces" % (key, text))
        parts.append(key + "=" + text)
    return " ".join(parts)


def pack_pair(src: int, dst: int, channel: int, seq: int) -> int:
    """Return the compact payload of a handoff between two ranks.

    >>> hex(pack_pair(0, 1, 0, 57))
    '0x40000039'
    """
    _check("src", src, RANK_BITS)
    _check("dst", dst, RANK_BITS)
    _check("channel", channel, CHANNEL_BITS)
    return src << _SRC_SHIFT | dst << _DST_SHIFT | channel << SEQ_BITS | seq % SEQ_MODULUS


def pack_group(group: int, channel: int, seq: int) -> int:
    """Return the compact payload of a handoff within a group of ranks.

    >>> unpack(pack_group(3, 0, 9))
    (True, 3, 0, 0, 9)
    """
    _check("group", group, RANK_BITS)
    _check("channel", channel, CHANNEL_BITS)
    return 1 << _KIND_SHIFT | group << _SRC_SHIFT | channel << SEQ_BITS | seq % SEQ_MODULUS


def unpack(payload: int) -> "tuple[bool, int, int, int, int]":
    """Return ``(is_group, src or group, dst, channel, seq modulo 2**26)`` of a compact payload.

    >>> unpack(pack_pair(2, 3, 1, 2**26 + 5))
    (False, 2, 3, 1, 5)
    """
    rank_mask = (1 << RANK_BITS) - 1
    return (
        bool(payload >> _KIND_SHIFT & 1),
        payload >> _SRC_SHIFT & rank_mask,
        payload >> _DST_SHIFT & rank_mask,
        payload >> SEQ_BITS & ((1 << CHANNEL_BITS) - 1),
        payload & (SEQ_MODULUS - 1),
    )


def _check(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError("%s=%d does not fit into %d bits of the compact form" % (name, value, bits))

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

A src or dst of 0xFF00 + n is host memory n (``host:n`` in text). For the units, ``gapscope::step`` and
``gapscope::request``, the payload is the number of the step, or the count of the request within its process.

Log form, one file per process, all of it in slots of 96 bytes, little endian. The first slot is `LOG_HEAD`, padded with
spaces; the first byte of every other says what it is:

    ====  ==========================================================================================
    1     a mark, laid out as `LOG_MARK` and `LOG_KEY`, with the columns `LOG_COLUMNS`
    2     the head of a text, laid out as `LOG_TEXT`: what it is (`LOG_TEXTS`), its bytes in all, and
          the first of them; a mark's text has its thread, start and end, a word's its number
    3     more of the text: one byte 3 and 95 of the text
    4     a clock anchor, laid out as `LOG_ANCHOR`: monotonic before, Unix time, monotonic after
    5     a time of the device, laid out as a mark: ``end_ns`` is when the host asked for it,
          ``error_ns`` how far off it may be
    ====  ==========================================================================================

Times of the log are nanoseconds of the host's monotonic clock; the anchors tie them to Unix time.
"""

CONTRACT_VERSION = 2
"""Version of the names, the text form, the compact form and the log form."""

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

DEFINITIONS = ("process", "group")
"""Points that say who speaks, in text form: ``gapscope::process rank=0 host=a pid=9 gpu=GPU-...`` and
``gapscope::group group=tp0 number=17 rank=0``, the number that stands for a group in compact form."""

MARKS = HANDOFF_BRACKETS + HANDOFF_POINTS + UNITS

KEY_FIELDS = ("src", "dst", "channel", "seq", "group", "slot")
"""Fields that name a handoff and its message. ``channel`` and ``slot`` default to 0."""

INTEGER_FIELDS = ("src", "dst", "channel", "seq", "slot", "step", "mb", "bytes", "src_stage", "dst_stage", "rank")
TEXT_FIELDS = ("group", "dir", "name", "kind", "transport", "device", "job", "requests", "id")

ADAPTERS = ("torch_pipelining", "c10d", "megatron", "deepspeed", "vllm", "sglang")
"""Frameworks that `gapscope_instrumentation.attach` knows; each is a module of its ``adapters``."""

DIRECTIONS = ("", "fwd", "bwd")
"""Values of ``dir`` as the log numbers them."""

SEQ_BITS = 26
CHANNEL_BITS = 4
RANK_BITS = 16
SEQ_MODULUS = 1 << SEQ_BITS
HOST_MEMORY = 0xFF00
"""From here on, src and dst of the compact form are host memory; ranks end below."""

LOG_SLOT_BYTES = 96
LOG_HEAD = b"gapscope mark log 2\n"
LOG_MARK = "<4B4q"
LOG_KEY = "<2H6i4H3q"
LOG_COLUMNS = (
    ("type", "u1"),
    ("mark", "u1"),  # position in MARKS
    ("flags", "u1"),  # LOG_OPEN, LOG_GROUP
    ("reserved", "u1"),
    ("thread", "i8"),  # the system's own number of the thread
    ("start_ns", "i8"),
    ("end_ns", "i8"),
    ("error_ns", "i8"),
    # from here on LOG_KEY, the same in all marks of one message
    ("slot", "u2"),
    ("kind", "u2"),  # number of a word; 0: none
    ("channel", "i4"),
    ("src", "i4"),  # host memory n is -1-n; of a group: number of the word that names it
    ("dst", "i4"),
    ("mb", "i4"),
    ("src_stage", "i4"),
    ("dst_stage", "i4"),
    ("transport", "u2"),  # number of a word
    ("name", "u2"),  # number of a word
    ("device", "u2"),  # number of a word
    ("dir", "u2"),  # position in DIRECTIONS
    ("seq", "i8"),
    ("step", "i8"),
    ("bytes", "i8"),
)
"""Columns of a mark and their types (of numpy), in order. Null is the least value of an i4 or i8."""
LOG_TEXT = "<4BI3q64s"  # type, what, flags, 0, bytes, thread, start_ns, end_ns, text
LOG_ANCHOR = "<4BI3q64s"  # type, 0, 0, 0, 0, monotonic before, unix, monotonic after, nothing
LOG_TEXTS = ("mark", "process", "word", "note")
"""What a text may be: a mark in text form; a JSON object on the process (rank, world_size, host, boot_id, pid, gpu,
...; a later one completes an earlier one); a word, its number in the place of the thread; a JSON object with
``note``."""
LOG_OPEN, LOG_GROUP = 1, 2
"""Flags: not closed yet when it was written (a later record of the same mark closes it); the key is of a group."""
NULL32, NULL64 = -(2**31), -(2**63)

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
    """Return the compact payload of a handoff between two ranks, or a rank and host memory (``-1-n``).

    >>> hex(pack_pair(0, 1, 0, 57))
    '0x40000039'
    >>> unpack(pack_pair(-1, 0, 0, 3))
    (False, 65280, 0, 0, 3)
    """
    src = HOST_MEMORY - 1 - src if src < 0 else src
    dst = HOST_MEMORY - 1 - dst if dst < 0 else dst
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

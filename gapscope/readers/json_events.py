"""Projecting scanner for arrays of Chrome trace events: from bytes to integer columns, no Python object per event.

The compiled part walks bytes once and writes one row of int64 per wanted event. Texts become numbers of a growing
table of distinct strings. Times are read from their decimal text into integer nanoseconds, never through a float.
What is wanted (keys, categories, names) is data: see `Spec`.

All compiled functions are in this one file, because numba notices a change only in the file of the outermost one.
"""
# ruff: noqa: ANN401, C901, PLR0911, PLR0912, PLR0915, PLR0917, PLR1714, SIM102, SIM109, SIM110
# (One walk over bytes, written for a compiler: no generators, no sets, as few calls and tests as will do.)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.core.options import DefaultOptions
from numba.extending import intrinsic

from gapscope.loops import kept

Bytes = npt.NDArray[Any]  # uint8
Ints = npt.NDArray[Any]  # int64: the compiler takes elements for plain integers, the stubs of numpy would not

NULL = -(2**63)
"""Written where an event has no value."""

# Columns of a row; those of the wanted arguments follow.
CLASS, NAME, PID, TID, TEXTS, START, DURATION, FIRST_ARG = range(8)
PID_IS_TEXT, TID_IS_TEXT = 1, 2  # bits of TEXTS: PID or TID is the number of a string
INT, TEXT = 0, 1  # kinds of arguments

# What `scan` stopped for.
DATA, ROWS, GROW, END = range(4)

# Slots of the state array.
POS, ROW, FINAL, OVERLONG, RESYNC, DEBRIS, EVENTS, DAMAGED = range(8)
FIRST_DAMAGE, NO_VALUES, STRINGS, ARENA, BASE, PH, CAT = range(8, 15)
STATE_SIZE = 15

DROP, UNDECIDED = -1, -10
"""Actions of a category besides a class of rows; -2, -3, ... let the name decide, by the group of that number."""
META_GROUP = -2  # names of metadata events (``"ph": "M"``)
NO_CATEGORY, FOREIGN = 0, 1  # categories of an event without one, and with one that `Spec` does not list

NO_TIME = -1  # in state[PH]: an operation without a time that can be used, which is damage

MAX_TEXTS = 12
PADDING = 16
"""Bytes that a buffer must have beyond its data: the scanner looks at eight bytes at once."""

_AFTER_START, _AFTER_CLOSE = 1, 2  # in state[DEBRIS], until the next good event
_NEED, _BAD = -1, -2  # instead of a position: the buffer ends too soon; the content is broken
_SPACE, _QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _POINT, _ZERO = 32, 34, 92, 44, 58, 45, 46, 48
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_X, _M = 88, 77
_MOST, _LONGEST = 2**62, 2**61  # times and durations beyond these are none; base, start and duration fit into int64
_TENTH = (2**63 - 10) // 10
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_PRIME, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


class Spec(NamedTuple):
    """What the scanner keeps. Texts are UTF-8 bytes, one after the other in ``text``, addressed by start and length.

    Attributes:
        text: All the texts.
        keys: Wanted keys of ``args``, sorted by length: start, length, column, kind (INT or TEXT), slot of a TEXT.
        key_from: First row of ``keys`` for each length, and one beyond the last.
        categories: Start, length, action: a class of rows, DROP, or a group of names. Compared without case. Rows
            NO_CATEGORY and FOREIGN have no text.
        names: Start, length, 1 if a prefix is enough, group, class. The first that fits counts.
        outer: Start and length of the keys that may follow the event list; they end the search after damage.
        distinct: Class of which one row for each pair of pid and tid is enough; they count as dropped.
    """

    text: Bytes
    keys: Ints
    key_from: Ints
    categories: Ints
    names: Ints
    outer: Ints
    distinct: int


class Strings(NamedTuple):
    """Distinct strings seen: string k is ``arena[start[k] : start[k + 1] - 1]``, as written in the file."""

    slots: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    start: Ints
    uses: Ints
    where: Ints
    arena: Bytes


_Function = TypeVar("_Function", bound=Callable[..., Any])

# Some versions of numba have types and some do not; what is compiled is checked as the Python that it is written in.
_njit: Any = numba.njit
_intrinsic: Any = intrinsic

# Without reference counts for the arrays, which cannot go away during a call, the scanner is twice as fast. The
# wrappers are for other callers than compiled code and cost compile time only. Options that a numba lacks are left out.
_WISHES = {"no_cfunc_wrapper": True, "_nrt": False}
_OPTIONS = {"nogil": True} | {name: value for name, value in _WISHES.items() if hasattr(DefaultOptions, name)}


def _compiled(function: _Function) -> _Function:
    """Compile on first use, and keep the machine code."""
    return kept(function, **_OPTIONS)


def _helper(function: _Function) -> _Function:
    """Compile what only compiled functions call."""
    return cast("_Function", _njit(no_cpython_wrapper=True, **_OPTIONS)(function))


# Reads through the bare pointer: numba's own indexing would first ask whether the index is negative.


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])


def _load_byte(_context: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(context, builder, signature, args)), ir.IntType(64))

    return types.int64(array, types.int64), generate


def _load_word(_context: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(_pointer(context, builder, signature, args), ir.IntType(64).as_pointer())
        word = builder.load(pointer)
        word.align = 1
        return word

    return types.uint64(array, types.int64), generate


def _count_bytes(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

    return types.int64(types.uint64), generate


_byte: Callable[[Bytes, int], int] = _intrinsic(_load_byte)  # the byte at an index
_word: Callable[[Bytes, int], np.uint64] = _intrinsic(_load_word)  # the eight bytes from there on, the first one lowest
_lowest_byte: Callable[[np.uint64], int] = _intrinsic(_count_bytes)  # position (0 to 7) of the lowest non-zero byte


# ---- tokens ----------------------------------------------------------------------------------------------------------


@_helper
def _skip_space(buf: Bytes, i: int, n: int) -> int:
    while i < n and _byte(buf, i) <= _SPACE:
        i += 1
    return i


@_helper
def _string_end(buf: Bytes, i: int, n: int, lenient: int) -> int:
    """Return where the quote is that closes the string whose first byte is at ``i``.

    ``lenient`` also takes an escaped quote that is followed by what follows a string: a Windows path whose last
    backslash was not escaped.
    """
    while True:
        while i + 8 <= n:
            word = _word(buf, i)
            quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
            found = (((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes)) & _HIGHS
            if found != np.uint64(0):
                i += _lowest_byte(found)
                break
            i += 8
        while i < n and _byte(buf, i) != _QUOTE and _byte(buf, i) != _BACKSLASH:
            i += 1
        if i >= n:
            return _NEED
        if _byte(buf, i) == _QUOTE:
            return i
        if lenient == 1 and i + 1 < n and _byte(buf, i + 1) == _QUOTE:
            after = _skip_space(buf, i + 2, n)
            c = _byte(buf, after)
            if after < n and (c == _COMMA or c == _CLOSE or c == _CLOSE_LIST):
                return i + 1
        i += 2


@_helper
def _nested_end(buf: Bytes, i: int, n: int, opened: int, lenient: int) -> int:
    """Return the position after the bracket that closes ``opened``, an object or list whose content goes on at ``i``.

    Brackets must match and texts must be followed by what may follow a text: else broken content could swallow the
    rest of the file.
    """
    kinds, depth = 1 if opened == _OPEN else 0, 1  # kinds: one bit a level, 1 for objects
    while i < n:
        c = _byte(buf, i)
        if c == _QUOTE:
            i = _string_end(buf, i + 1, n, lenient)
            if i < 0:
                return _NEED
            i = _skip_space(buf, i + 1, n)
            c = _byte(buf, i)
            if i < n and c != _COMMA and c != _COLON and c != _CLOSE and c != _CLOSE_LIST:
                return _BAD
        elif c < _OPEN_LIST:
            i += 1
        elif c == _OPEN or c == _OPEN_LIST:
            if depth >= 62:
                return _BAD
            if kinds & 1 == 1:
                before = i - 1
                while _byte(buf, before) <= _SPACE:
                    before -= 1
                if _byte(buf, before) != _COLON:
                    return _BAD
            kinds = (kinds << 1) | (1 if c == _OPEN else 0)
            depth += 1
            i += 1
        elif c == _CLOSE or c == _CLOSE_LIST:
            if (kinds & 1) != (1 if c == _CLOSE else 0):
                return _BAD
            kinds >>= 1
            depth -= 1
            i += 1
            if depth == 0:
                return i
        else:
            i += 1
    return _NEED


@_compiled
def value_end(buf: Bytes, i: int, n: int, lenient: int) -> int:
    """Return the position after the JSON value at ``i``; -1 if the buffer ends first, -2 if it is broken."""
    c = _byte(buf, i)
    if c == _QUOTE:
        end = _string_end(buf, i + 1, n, lenient)
        return end + 1 if end >= 0 else _NEED
    if c == _OPEN or c == _OPEN_LIST:
        return _nested_end(buf, i + 1, n, c, lenient)
    start = i  # a number or bare word: true, null, NaN, -inf, -nan(ind), ...
    while i < n:
        c = _byte(buf, i)
        if c <= _SPACE or c == _COMMA or c == _CLOSE or c == _CLOSE_LIST:
            return i if i > start else _BAD
        if c == _QUOTE or c == _COLON or c == _OPEN or c == _OPEN_LIST:
            return _BAD
        i += 1
    return _NEED


@_helper
def _is_no_number(buf: Bytes, i: int) -> bool:
    """Tell if the bare word at ``i`` is inf, -inf, nan, NaN, Infinity, ...: what a division by zero left."""
    c = _byte(buf, i + 1) | 32 if _byte(buf, i) == _MINUS else _byte(buf, i) | 32
    return c == 105 or (c == 110 and _byte(buf, i + 1) != 117)


@_helper
def _nanoseconds(buf: Bytes, i: int, end: int) -> int:
    """Return the microseconds that the text ``[i, end)`` says, in nanoseconds; NULL if it is no number or too large.

    Any number of decimals, with or without exponent. Rounded to the nearest, halves to the even neighbour.
    """
    negative = i < end and _byte(buf, i) == _MINUS
    if negative or (i < end and _byte(buf, i) == 43):
        i += 1
    first, digits, whole = i, 0, -1
    while i < end and (_byte(buf, i) == _POINT or (_ZERO <= _byte(buf, i) <= 57)):
        if _byte(buf, i) == _POINT:
            if whole >= 0:
                return NULL
            whole = digits
        else:
            digits += 1
        i += 1
    last, exponent = i, 0
    if digits > 0 and i < end and (_byte(buf, i) | 32) == 101:
        i += 1
        minus = i < end and _byte(buf, i) == _MINUS
        if minus or (i < end and _byte(buf, i) == 43):
            i += 1
        if i >= end:
            return NULL
        while i < end and _ZERO <= _byte(buf, i) <= 57:
            exponent = exponent * 10 + _byte(buf, i) - _ZERO if exponent < 10**6 else exponent
            i += 1
        exponent = -exponent if minus else exponent
    if i != end or digits == 0:
        return NULL
    wanted = (digits if whole < 0 else whole) + exponent + 3  # so many leading digits make up the integer
    value, seen, half, rest = 0, 0, 0, 0
    for k in range(first, last):
        if _byte(buf, k) != _POINT:
            d = _byte(buf, k) - _ZERO
            if seen < wanted:
                if value > _TENTH:
                    return NULL
                value = value * 10 + d
            elif seen == wanted:
                half = d
            else:
                rest |= d
            seen += 1
    while seen < wanted and value > 0:
        if value > _TENTH:
            return NULL
        value *= 10
        seen += 1
    if half > 5 or (half == 5 and (rest > 0 or value & 1 == 1)):
        value += 1
    return -value if negative else value


@_helper
def _text_integer(buf: Bytes, i: int, end: int) -> int:
    """Return the integer that the text ``[i, end)`` is, decimal or ``0x`` hexadecimal; NULL if it is anything else."""
    base, negative = 10, 0
    if i < end and _byte(buf, i) == _MINUS:
        i, negative = i + 1, 1
    elif end - i > 2 and _byte(buf, i) == _ZERO and (_byte(buf, i + 1) | 32) == 120:
        i, base = i + 2, 16
    value = 0 if i < end else NULL
    while i < end:
        c = _byte(buf, i)
        d = c - 48 if c <= 57 else (c | 32) - 87
        if d < 0 or d >= base or (c > 57 and d < 10) or value > (_TENTH if base == 10 else 2**59 - 1):
            return NULL
        value = value * base + d
        i += 1
    return -value if negative == 1 and value != NULL else value


@_helper
def _integer(buf: Bytes, i: int, n: int, lenient: int, state: Ints) -> tuple[int, int]:
    """Return the position after the value at ``i``, and the integer it is, as number or as text; else NULL."""
    start, value = i, 0
    if _byte(buf, i) == _MINUS:
        i += 1
    first = i
    while i < n and _ZERO <= _byte(buf, i) <= 57 and value < 10**17:
        value = value * 10 + _byte(buf, i) - _ZERO
        i += 1
    if i >= n:
        return _NEED, NULL
    c = _byte(buf, i)
    if i > first and (c == _COMMA or c <= _SPACE or c == _CLOSE or c == _CLOSE_LIST):
        return i, -value if first > start else value
    end = value_end(buf, start, n, lenient)
    if end < 0 or _byte(buf, start) == _OPEN or _byte(buf, start) == _OPEN_LIST:
        return end, NULL
    if _is_no_number(buf, start):
        state[NO_VALUES] += 1
    quoted = 1 if _byte(buf, start) == _QUOTE else 0
    value = _text_integer(buf, start + quoted, end - quoted)
    if value == NULL and quoted == 0:  # 4096.0
        value = _nanoseconds(buf, start, end)
        value = value // 1000 if value != NULL and value % 1000 == 0 else NULL
    return end, value


@_helper
def _time(buf: Bytes, i: int, n: int, lenient: int, state: Ints) -> tuple[int, int]:
    """Return the position after the microseconds at ``i``, and them in nanoseconds; NULL if they are no usable time.

    They may be written as text.
    """
    start, value = i, 0
    if _byte(buf, i) == _MINUS:
        i += 1
    first = i
    while i < n and _ZERO <= _byte(buf, i) <= 57 and value < 10**15:
        value = value * 10 + _byte(buf, i) - _ZERO
        i += 1
    usual, decimals = i > first and value <= 9 * 10**15, 0
    if i < n and _byte(buf, i) == _POINT and usual:
        i += 1
        while i < n and _ZERO <= _byte(buf, i) <= 57 and decimals < 3:
            value = value * 10 + _byte(buf, i) - _ZERO
            decimals += 1
            i += 1
    if i >= n:
        return _NEED, NULL
    c = _byte(buf, i)
    if usual and (c == _COMMA or c <= _SPACE or c == _CLOSE or c == _CLOSE_LIST):
        while decimals < 3:
            value *= 10
            decimals += 1
        return i, -value if first > start else value
    end = value_end(buf, start, n, lenient)
    if end < 0:
        return end, NULL
    if _is_no_number(buf, start):
        state[NO_VALUES] += 1
    quoted = 1 if _byte(buf, start) == _QUOTE else 0
    value = _nanoseconds(buf, start + quoted, end - quoted)
    return end, NULL if abs(value) > _MOST else value


# ---- keys ------------------------------------------------------------------------------------------------------------


@_helper
def _same(buf: Bytes, i: int, text: Bytes, k: int, length: int) -> bool:
    for j in range(length):
        if _byte(buf, i + j) != text[k + j]:
            return False
    return True


@_helper
def _wanted_key(buf: Bytes, a: int, b: int, spec: Spec) -> int:
    length = b - a
    if length + 1 < len(spec.key_from):
        for k in range(spec.key_from[length], spec.key_from[length + 1]):
            if _same(buf, a, spec.text, spec.keys[k, 0], length):
                return k
    return -1


@_helper
def _category(buf: Bytes, a: int, b: int, spec: Spec) -> int:
    for k in range(2, len(spec.categories)):
        if spec.categories[k, 1] == b - a:
            i, at = a, spec.categories[k, 0]
            while i < b:
                c, wanted = _byte(buf, i), _byte(spec.text, at)
                if c != wanted and not (c <= 90 and c + 32 == wanted):  # the listed names are lower case
                    break
                i, at = i + 1, at + 1
            if i == b:
                return k
    return FOREIGN


@_helper
def _decide(buf: Bytes, ph: int, cat: int, a: int, b: int, spec: Spec) -> int:
    """Return the class of an event as soon as its type, category and name tell it."""
    group = META_GROUP
    if ph == _X:
        if cat < 0:
            return UNDECIDED
        group = spec.categories[cat, 2]
        if group >= DROP:
            return int(group)
    elif ph != _M:
        return UNDECIDED if ph < 0 else DROP
    if a < 0:
        return UNDECIDED
    for k in range(len(spec.names)):
        length = spec.names[k, 1]
        if spec.names[k, 3] == group and (b - a == length or (b - a > length and spec.names[k, 2] == 1)):
            if _same(buf, a, spec.text, spec.names[k, 0], length):
                return int(spec.names[k, 4])
    return DROP


# ---- events ----------------------------------------------------------------------------------------------------------


@_helper
def _arguments(buf: Bytes, i: int, n: int, lenient: int, row: Ints, spans: Ints, spec: Spec, state: Ints) -> int:
    """Read the object at ``i`` into the columns of the wanted keys; return the position after it."""
    i = _skip_space(buf, i + 1, n)
    while i < n:
        if _byte(buf, i) == _CLOSE:
            return i + 1
        if _byte(buf, i) != _QUOTE:
            return _BAD
        a = i + 1
        b = _string_end(buf, a, n, lenient)
        if b < 0:
            return _NEED
        i = _skip_space(buf, b + 1, n)
        if i < n and _byte(buf, i) != _COLON:
            return _BAD
        i = _skip_space(buf, i + 1, n)
        if i >= n:
            return _NEED
        k = _wanted_key(buf, a, b, spec)
        if k < 0:
            if _is_no_number(buf, i):
                state[NO_VALUES] += 1
            i = value_end(buf, i, n, lenient)
        elif spec.keys[k, 3] == INT:
            i, row[spec.keys[k, 2]] = _integer(buf, i, n, lenient, state)
        else:
            start, slot = i, spec.keys[k, 4]
            i = value_end(buf, i, n, lenient)
            quoted = 1 if _byte(buf, start) == _QUOTE else 0
            spans[2 * slot] = start + quoted
            spans[2 * slot + 1] = i - quoted
        if i < 0:
            return i
        i = _skip_space(buf, i, n)
        if i < n and _byte(buf, i) == _COMMA:
            i = _skip_space(buf, i + 1, n)
        elif i < n and _byte(buf, i) != _CLOSE:
            return _BAD
    return _NEED


@_helper
def _event(buf: Bytes, i: int, n: int, lenient: int, row: Ints, spans: Ints, spec: Spec, state: Ints) -> int:
    """Read the event that opens at ``i`` into ``row``; return the position after it.

    Its class (or DROP) is in ``row[CLASS]``, its type and category in ``state``. An event that can be told to be
    unwanted is only passed over.
    """
    row[:] = NULL
    row[TEXTS] = 0
    spans[:] = -1
    # Not -1 as ph and cat: of functions that get a literal, numba compiles versions of their own.
    opening, ph, cat, verdict = i, row[PID], row[PID], UNDECIDED
    times = 0  # bit 0: has a start; bit 1: has an impossible time
    i = _skip_space(buf, i + 1, n)
    while True:
        if i >= n:
            return _NEED
        if _byte(buf, i) == _CLOSE:
            i += 1
            break
        if _byte(buf, i) != _QUOTE:
            return _BAD
        a = i + 1
        b = _string_end(buf, a, n, lenient)
        if b < 0:
            return _NEED
        i = _skip_space(buf, b + 1, n)
        if i < n and _byte(buf, i) != _COLON:
            return _BAD
        i = _skip_space(buf, i + 1, n)
        if i >= n:
            return _NEED
        start, length, c, second = i, b - a, _byte(buf, a), _byte(buf, a + 1)
        if length == 4 and c == 97 and second == 114 and _byte(buf, i) == _OPEN and verdict != DROP:  # args
            i = _arguments(buf, i, n, lenient, row, spans, spec, state)
        elif length == 2 and c == 116 and second == 115:  # ts
            i, row[START] = _time(buf, i, n, lenient, state)
            times |= 3 if row[START] == NULL else 1
        elif length == 3 and c == 100 and second == 117:  # dur
            i, row[DURATION] = _time(buf, i, n, lenient, state)
            times |= 2 if row[DURATION] == NULL or abs(row[DURATION]) > _LONGEST else 0
        elif length == 3 and second == 105 and (c == 112 or c == 116) and _byte(buf, i) != _QUOTE:  # pid, tid
            i, row[PID if c == 112 else TID] = _integer(buf, i, n, lenient, state)
        else:
            i = value_end(buf, i, n, lenient)
            if i < 0:
                return i
            quoted = 1 if _byte(buf, start) == _QUOTE else 0
            a, b = start + quoted, i - quoted
            if length == 2 and c == 112 and second == 104:  # ph
                ph = _byte(buf, a) if b - a == 1 else 0
                verdict = _decide(buf, ph, cat, spans[0], spans[1], spec)
            elif length == 3 and c == 99 and second == 97:  # cat
                cat = _category(buf, a, b, spec)
                verdict = _decide(buf, ph, cat, spans[0], spans[1], spec)
            elif length == 4 and c == 110 and second == 97:  # name
                spans[0], spans[1] = a, b
                if verdict == UNDECIDED:
                    verdict = _decide(buf, ph, cat, a, b, spec)
            elif length == 3 and second == 105 and (c == 112 or c == 116):  # pid, tid as text
                row[PID if c == 112 else TID] = _text_integer(buf, a, b)
                spans[2 if c == 112 else 4] = a
                spans[3 if c == 112 else 5] = b
        if i < 0:
            return i
        i = _skip_space(buf, i, n)
        if i < n and _byte(buf, i) == _COMMA:
            i = _skip_space(buf, i + 1, n)
        elif i < n and _byte(buf, i) != _CLOSE:
            return _BAD
        if verdict == DROP and (cat >= 0 or ph == _M):
            i = _nested_end(buf, i, n, _byte(buf, opening), lenient)
            if i < 0:
                return i
            break
    if cat < 0:
        cat = NO_CATEGORY
    if verdict == UNDECIDED:
        verdict = _decide(buf, ph, cat, spans[0] if spans[0] >= 0 else 0, spans[1] if spans[0] >= 0 else 0, spec)
    if verdict >= 0 and ph == _X and verdict != spec.distinct and (times & 2 or not times & 1):
        ph = NO_TIME
    row[CLASS], state[PH], state[CAT] = verdict, ph, cat
    return i


@_helper
def _intern(buf: Bytes, a: int, b: int, strings: Strings, state: Ints) -> int:
    """Return the number of the string in ``[a, b)``, new or known. The table has room (see `scan`)."""
    length = b - a
    code, k = np.uint64(length) * _PRIME, a
    while k + 8 <= b:
        code = (code ^ _word(buf, k)) * _PRIME
        code ^= code >> _SHIFT
        k += 8
    while k < b:
        code = (code ^ np.uint64(_byte(buf, k))) * _PRIME
        k += 1
    code ^= code >> _SHIFT
    mask = len(strings.slots) - 1
    slot = np.int64(code & np.uint64(mask))
    while strings.slots[slot] >= 0:
        number = np.int64(strings.slots[slot])
        at = strings.start[number]
        if strings.hashes[number] == code and strings.start[number + 1] - 1 - at == length:
            if _same(buf, a, strings.arena, at, length):
                strings.uses[number] += 1
                return int(number)
        slot = (slot + 1) & mask
    number, at = state[STRINGS], state[ARENA]
    for j in range(length):
        strings.arena[at + j] = _byte(buf, a + j)
    strings.arena[at + length] = 10
    strings.slots[slot] = number
    strings.hashes[number] = code
    strings.uses[number] = 1
    strings.where[number] = state[BASE] + a
    strings.start[number + 1] = at + length + 1
    state[STRINGS] = number + 1
    state[ARENA] = at + length + 1
    return int(number)


@_compiled
def rehash(strings: Strings, count: int) -> None:
    """Fill the slots of a table that has just grown."""
    mask = len(strings.slots) - 1
    for number in range(count):
        slot = np.int64(strings.hashes[number] & np.uint64(mask))
        while strings.slots[slot] >= 0:
            slot = (slot + 1) & mask
        strings.slots[slot] = number


@_helper
def _store(buf: Bytes, row: Ints, spans: Ints, spec: Spec, strings: Strings, state: Ints) -> None:
    """Replace the texts of a finished row by their numbers."""
    if spans[0] >= 0:
        row[NAME] = _intern(buf, spans[0], spans[1], strings, state)
    if spans[2] >= 0 and row[PID] == NULL:
        row[PID] = _intern(buf, spans[2], spans[3], strings, state)
        row[TEXTS] |= PID_IS_TEXT
    if spans[4] >= 0 and row[TID] == NULL:
        row[TID] = _intern(buf, spans[4], spans[5], strings, state)
        row[TEXTS] |= TID_IS_TEXT
    for k in range(len(spec.keys)):
        slot = spec.keys[k, 4]
        if spec.keys[k, 3] == TEXT and spans[2 * slot] >= 0:
            row[spec.keys[k, 2]] = _intern(buf, spans[2 * slot], spans[2 * slot + 1], strings, state)


# ---- damage ----------------------------------------------------------------------------------------------------------


@_helper
def _starts_event(buf: Bytes, i: int, n: int) -> bool:
    """Tell if the brace at ``i`` opens an event: an element of a list whose first key is one of an event's."""
    a = _skip_space(buf, i + 1, n)
    if a >= n or _byte(buf, a) != _QUOTE:
        return False
    a += 1
    b = a
    while b < n and b < a + 5 and _byte(buf, b) != _QUOTE:
        b += 1
    colon = _skip_space(buf, b + 1, n)
    if b >= n or _byte(buf, b) != _QUOTE or colon >= n or _byte(buf, colon) != _COLON or b - a < 2:
        return False
    word = 0
    for k in range(a, b):
        word = word * 256 + _byte(buf, k)
    known = word == 0x7068 or word == 0x7473 or word == 0x6964 or word == 0x636174 or word == 0x706964
    if not known and word != 0x746964 and word != 0x647572 and word != 0x6E616D65 and word != 0x61726773:
        return False  # none of ph, ts, id, cat, pid; tid, dur, name, args
    before = i - 1
    while before >= 0 and _byte(buf, before) <= _SPACE:
        before -= 1
    return before < 0 or _byte(buf, before) != _COLON


@_helper
def _ends_list(buf: Bytes, i: int, n: int, final: bool, spec: Spec) -> int:
    """Tell if the bracket at ``i`` ends the list of events: 2 surely, 1 if it stands between events, 0 not.

    -1 if more bytes are needed to tell. Lists within events end in the same bracket; sure is one before a key that is
    known to follow events, and one between the last two braces of a file.
    """
    before = i - 1
    while before >= 0 and _byte(buf, before) <= _SPACE:
        before -= 1
    yes = 2 if before >= 0 and _byte(buf, before) == _CLOSE else 1
    after = _skip_space(buf, i + 1, n)
    following = _skip_space(buf, after + 1, n)
    if following + 64 > n and not final:
        return _NEED
    if after < n and _byte(buf, after) == _COMMA:
        after, following = following, _skip_space(buf, following + 1, n)
        if after >= n or (_byte(buf, after) != _QUOTE and _byte(buf, after) != _CLOSE):
            return 0
        for k in range(len(spec.outer)):
            start, length = spec.outer[k, 0], spec.outer[k, 1]
            if after + 1 + length < n and _byte(buf, after + 1 + length) == _QUOTE:
                if _same(buf, after + 1, spec.text, start, length):
                    return 2
        if _byte(buf, after) == _QUOTE:
            return 1
    if after < n and _byte(buf, after) == _CLOSE:
        after = following
    c = _byte(buf, after)
    goes_on = c == _COMMA or c == _CLOSE or c == _CLOSE_LIST or c == _QUOTE or c == _OPEN
    return 0 if after < n and goes_on else yes


@_helper
def _next_event(buf: Bytes, i: int, n: int, final: bool, spec: Spec) -> int:
    """Return where the next event or the end of the list is, whatever lies before it; -1 if not in the buffer."""
    last = n if final else n - 128
    while i < last:
        if _byte(buf, i) == _OPEN and _starts_event(buf, i, n):
            return i
        if _byte(buf, i) == _CLOSE_LIST:
            ends = _ends_list(buf, i, n, final, spec)
            if ends == 2:
                return i
            if ends == _NEED:
                return _NEED
        i += 1
    return _NEED


@_compiled
def scan(
    buf: Bytes, n: int, rows: Ints, spans: Ints, dropped: Ints, seen: Ints, state: Ints, spec: Spec, strings: Strings
) -> int:
    """Read events from ``buf[state[POS] : n]`` into ``rows`` from row ``state[ROW]`` on.

    Args:
        buf: The bytes, and PADDING more.
        n: Number of bytes.
        rows: Receives one row for each wanted event.
        spans: Scratch of 2 x MAX_TEXTS.
        dropped: Counts events that made no row, by category and type (``ph``, as a byte).
        seen: Scratch of two columns; pairs of pid and tid of the class ``spec.distinct``, NULL at first.
        state: Positions and counts, see the slots at the top of this file.
        spec: What is wanted.
        strings: Texts.

    Returns:
        DATA (more bytes are needed from ``state[POS]`` on, or the last byte is read), ROWS (``rows`` is full), GROW
        (``strings`` must grow), END (``state[POS]`` is behind the end of the list).
    """
    i, final = state[POS], state[FINAL] == 1
    while True:
        if state[RESYNC] == 1:
            found = _next_event(buf, i, n, final, spec)
            if found < 0:
                state[POS] = n if final else i if i > n - 512 else n - 512
                return DATA
            i, state[RESYNC], state[DEBRIS] = found, 0, _AFTER_START
        while i < n and (_byte(buf, i) <= _SPACE or _byte(buf, i) == _COMMA):
            i += 1
        state[POS] = i
        if i >= n:
            return DATA
        end = _BAD
        if _byte(buf, i) == _OPEN:
            if state[ROW] >= len(rows):
                return ROWS
            if state[STRINGS] + MAX_TEXTS >= len(strings.uses) or state[ARENA] + n - i + MAX_TEXTS > len(strings.arena):
                return GROW
            row, no_values = rows[state[ROW]], state[NO_VALUES]
            for lenient in range(2):
                if end == _BAD:
                    end = _event(buf, i, n, lenient, row, spans, spec, state)
                if end < 0:  # what was counted in it is forgotten with it
                    state[NO_VALUES] = no_values
            if end == _NEED and state[OVERLONG] == 0:
                if not final:
                    return DATA
                if _next_event(buf, i + 1, n, final, spec) < 0:  # nothing follows: the file was cut here
                    state[POS] = n
                    return DATA
        elif _byte(buf, i) == _CLOSE_LIST:
            ends = _ends_list(buf, i, n, final, spec)
            if ends > 0:
                state[POS] = i + 1
                return END
            if ends == _NEED:
                return DATA
            i += 1
            continue
        elif _byte(buf, i) != _QUOTE:
            if i + 1 >= n and not final:
                return DATA
            after = _byte(buf, i + 1)
            brackets = after == _OPEN or after == _CLOSE or after == _CLOSE_LIST
            if _byte(buf, i) == _CLOSE or i + 1 >= n or after <= _SPACE or after == _COMMA or brackets:
                i += 1  # a brace too many and the like: nothing is lost by it; more than one byte was an event
                continue
        if end >= 0 and state[PH] >= 0:
            state[EVENTS] += 1
            state[DEBRIS] = 0
            verdict = row[CLASS]
            if verdict >= 0:
                _store(buf, row, spans, spec, strings, state)
                state[ROW] += 1
            if verdict == spec.distinct:
                slot = (row[PID] * 31 + row[TID]) & (len(seen) - 1)
                if seen[slot, 0] == row[PID] and seen[slot, 1] == row[TID]:
                    state[ROW] -= 1
                seen[slot, 0], seen[slot, 1] = row[PID], row[TID]
                verdict = DROP
            if verdict == DROP:
                dropped[state[CAT], state[PH] & 127] += 1
            i = end
            continue
        # What follows damage may be a part of what was damaged: a piece without a type after a new start, text after
        # an event that closed too soon.
        counts = _byte(buf, i) == _OPEN or state[DEBRIS] == 0
        if end >= 0:
            counts = state[PH] == NO_TIME or state[DEBRIS] != _AFTER_START
        if counts:
            state[EVENTS] += 1
            state[DAMAGED] += 1
            if state[FIRST_DAMAGE] < 0:
                state[FIRST_DAMAGE] = state[BASE] + i
        if end < 0:
            i, state[RESYNC] = i + 1, 1
        else:
            i, state[DEBRIS] = end, _AFTER_CLOSE if counts else state[DEBRIS]

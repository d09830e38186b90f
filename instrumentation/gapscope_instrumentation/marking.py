"""The hot path: from a call in the user's job to the emitters.

With nothing switched on, a mark costs a function call. Inside code that torch compiles, a mark leaves no trace:
neither a graph break nor a call. While a CUDA graph is captured it leaves a note, since what is captured does not run
then.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from threading import get_ident
from time import perf_counter_ns
from typing import Any, TypeVar, cast

from gapscope_instrumentation.capturing import threads as captures
from gapscope_instrumentation.contract import MARKS
from gapscope_instrumentation.emitters.base import Emitter
from gapscope_instrumentation.handoff import Handoff

Function = TypeVar("Function", bound=Callable[..., Any])

PRODUCE, SUBMIT, RECEIVE, CONSUME, PRODUCER_FINISH, MOVEMENT_START, AVAILABLE, CONSUMER_START, STEP, REQUEST = range(10)
assert MARKS[PRODUCE] == "produce"
assert MARKS[REQUEST] == "request"

current_step: ContextVar[int | None] = ContextVar("gapscope_step", default=None)
"""The step that the calling code is in: handoffs made in it bear its number."""

_emitters: tuple[Emitter, ...] = ()
_sink: Emitter | None = None
_until_timed = 7  # not the first one: it may start the profiler
own_costs: deque[tuple[int, int]] = deque(maxlen=512)
"""Of the brackets that were timed last: nanoseconds spent in opening and in closing."""

SAMPLED_EVERY, SAMPLED_AT_FIRST = 61, 7  # primes: not in step with the microbatches
failed: dict[str, str] = {}
"""Emitters that failed in this capture, and why."""


def _never() -> bool:
    return False


_compiling: Callable[[], bool] = _never


def set_emitters(emitters: tuple[Emitter, ...]) -> None:
    """Say where marks go from now on; nowhere if empty. The first opens first and closes last."""
    global _emitters, _sink  # noqa: PLW0603 - two cells that every mark looks at
    _emitters = emitters
    _sink = None if not emitters else emitters[0] if len(emitters) == 1 else _Several(emitters)


def emitters() -> tuple[Emitter, ...]:
    """Return where marks go."""
    return _emitters


def notice_torch() -> None:
    """Learn how torch tells that it compiles, once it is loaded."""
    global _compiling  # noqa: PLW0603 - as above
    torch = sys.modules.get("torch")
    if torch is not None and _compiling is _never:
        _compiling = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", _never)


class Bracket:
    """A bracket around code: use it with ``with``, as a decorator, or by `start` and `end`, on whatever threads."""

    __slots__ = ("_mark", "_sink", "_token", "_where")

    def __init__(self, mark: int, where: Any) -> None:
        self._mark, self._where = mark, where
        self._sink: Emitter | None = None

    def start(self) -> Bracket:
        """Open it. Does nothing while it is open."""
        if self._sink is None and not _compiling():
            self.__enter__()
        return self

    def end(self) -> None:
        """Close it; the second time does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> None:
        global _until_timed  # noqa: PLW0603 - counts down; losing one between threads does no harm
        where, sink = self._where, _sink
        if sink is None:
            where._skip(self._mark)
            return
        handoff = where if where.__class__ is Handoff else where._this(self._mark)
        if captures and get_ident() in captures:
            _note_capture(self._mark)
            return
        _until_timed -= 1
        if _until_timed <= 0:
            _until_timed = SAMPLED_EVERY if len(own_costs) >= 64 else SAMPLED_AT_FIRST
            sink = _Timed(sink)
        try:
            self._token = sink.begin(self._mark, handoff)
        except Exception as error:
            _out_of_order(sink, error)
        else:
            self._sink = sink

    def __exit__(self, kind: object, error: object, at: object) -> None:
        sink = self._sink
        if sink is not None:
            self._sink = None
            if self._token is not None:
                try:
                    sink.end(self._token)
                except Exception as failure:
                    _out_of_order(sink, failure)

    def __call__(self, function: Function) -> Function:
        """Return the function with a bracket around each of its calls."""
        return wrap(function, lambda: bracket(self._mark, self._where))


class _Several:
    """Several emitters as one: the first opens first and closes last, and one that fails does not stop the others."""

    name = "several"

    def __init__(self, emitters: tuple[Emitter, ...]) -> None:
        self._emitters = emitters

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open a bracket with each."""
        tokens: list[Any] = []
        for emitter in self._emitters:
            try:
                tokens.append(emitter.begin(mark, handoff))
            except Exception as error:
                tokens.append(None)
                _out_of_order(emitter, error)
        return tokens

    def end(self, token: object) -> None:
        """Close a bracket with each that opened one, last first."""
        tokens = cast("list[Any]", token)
        for at in range(len(tokens) - 1, -1, -1):
            if tokens[at] is not None:
                try:
                    self._emitters[at].end(tokens[at])
                except Exception as error:
                    _out_of_order(self._emitters[at], error)

    def point(self, mark: int, handoff: Handoff) -> None:
        """Write a point with each."""
        for emitter in self._emitters:
            try:
                emitter.point(mark, handoff)
            except Exception as error:
                _out_of_order(emitter, error)

    def close(self) -> None:
        """Nothing is its own."""


class _Timed:
    """Emitters of one bracket whose own cost is measured: all that is done for it but the call that gets here."""

    def __init__(self, sink: Emitter) -> None:
        self.name, self._sink, self._spent_ns = sink.name, sink, 0

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open the bracket."""
        began = perf_counter_ns()
        token = self._sink.begin(mark, handoff)
        self._spent_ns = perf_counter_ns() - began
        return token

    def end(self, token: object) -> None:
        """Close the bracket, and note what both took."""
        began = perf_counter_ns()
        self._sink.end(token)
        own_costs.append((self._spent_ns, perf_counter_ns() - began))

    def point(self, mark: int, handoff: Handoff) -> None:
        """Is not called."""

    def close(self) -> None:
        """Nothing is its own."""


class Nothing(Bracket):
    """What a bracket is inside compiled code. It is made there: torch cannot enter a context from outside."""

    __slots__ = ()

    def start(self) -> Bracket:
        """Do nothing."""
        return self

    def end(self) -> None:
        """Do nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, at: object) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        """Return the function as it is."""
        return function


class _Idle(Nothing):
    """What the bracket of a handoff is while nothing is switched on; one for all.

    Its methods are a built-in function that takes anything and returns something false: that saves a third of the cost.
    """

    __slots__ = ()
    __enter__ = "".format  # type: ignore[assignment]
    __exit__ = "".format  # type: ignore[assignment]


class Off(Bracket):
    """A bracket of an edge while nothing is switched on: it counts, so that both sides agree whenever that changes.

    One for all its uses: it keeps nothing of them.
    """

    __slots__ = ("_count",)

    def __init__(self, mark: int, where: Any, count: Iterator[int]) -> None:
        super().__init__(mark, where)
        self._count = count

    def start(self) -> Bracket:
        """Open a bracket of its own, should marks have been switched on meanwhile."""
        return Bracket(self._mark, self._where).start()

    def __enter__(self) -> None:
        next(self._count)

    __exit__ = "".format  # type: ignore[assignment]


def bracket(mark: int, where: Any) -> Bracket:
    """Return a bracket on a handoff, or on the next one of an edge."""
    if _compiling():
        return Nothing(mark, None)
    if _emitters:
        return Bracket(mark, where)
    return where._off[mark]  # type: ignore[no-any-return]


def point(mark: int, where: Any) -> None:
    """Mark a point of a handoff, or of the next one of an edge."""
    if not _compiling():
        if _emitters:
            mark_point(mark, where._this(mark))
        else:
            where._skip(mark)


def mark_point(mark: int, handoff: Handoff) -> None:
    """Write a point to all emitters."""
    sink = _sink
    if captures and get_ident() in captures:
        _note_capture(mark)
    elif sink is not None:
        try:
            sink.point(mark, handoff)
        except Exception as error:
            _out_of_order(sink, error)


def wrap(function: Function, around: Callable[[], Any]) -> Function:
    """Return ``function`` with a fresh context around each call, coroutines and generators included."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with around():
                return await function(*args, **kwargs)

        return coroutine  # type: ignore[return-value]
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with around():
                return (yield from function(*args, **kwargs))

        return generator  # type: ignore[return-value]

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with around():
            return function(*args, **kwargs)

    return plain  # type: ignore[return-value]


def _note_capture(mark: int) -> None:
    for emitter in _emitters:
        note = getattr(emitter, "note", None)
        if note is not None:
            note("captured", mark=MARKS[mark])


def _out_of_order(emitter: Emitter, error: Exception) -> None:
    """Take an emitter out that fails, let it write what it has, and say so once."""
    out = [e for e in _emitters if e.name == emitter.name]
    set_emitters(tuple(e for e in _emitters if e not in out))
    if emitter.name not in failed:
        failed[emitter.name] = f"{type(error).__name__}: {error}"
        say(f"marks no longer go to {emitter.name} ({failed[emitter.name]}).")
    for one in out:
        with suppress(Exception):
            one.close()


def say(text: str) -> None:
    """Warn of something; where warnings are errors, a line on stderr, since a mark must not end the job."""
    try:
        warnings.warn("gapscope: " + text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        sys.stderr.write(f"gapscope: {text}\n")


IDLE = _Idle(PRODUCE, None)
Handoff._off = (IDLE,) * len(MARKS)

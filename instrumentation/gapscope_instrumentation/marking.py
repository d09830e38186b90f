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
from collections.abc import Callable, Iterator
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
_until_timed = 61
own_cost = [0, 0, 0]
"""Of one bracket in `SAMPLED_EVERY`: how many were timed, and nanoseconds spent in opening and in closing them."""

SAMPLED_EVERY = 61  # a prime: not in step with the microbatches
_failed: set[str] = set()


def _never() -> bool:
    return False


_compiling: Callable[[], bool] = _never


def set_emitters(emitters: tuple[Emitter, ...]) -> None:
    """Say where marks go from now on; nowhere if empty. The first opens first and closes last."""
    global _emitters  # noqa: PLW0603 - one cell that every mark looks at
    _emitters = emitters


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

    __slots__ = ("_by", "_mark", "_opened", "_where")

    def __init__(self, mark: int, where: Any) -> None:
        self._mark, self._where = mark, where
        self._by: tuple[Emitter, ...] = ()
        self._opened: Any = None

    def start(self) -> Bracket:
        """Open it. Does nothing while it is open."""
        if not self._by and not _compiling():
            self.__enter__()
        return self

    def end(self) -> None:
        """Close it; the second time does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> None:
        global _until_timed  # noqa: PLW0603 - counts down; losing one between threads does no harm
        _until_timed -= 1
        if _until_timed <= 0:
            _until_timed = SAMPLED_EVERY
            self._timed_enter()
            return
        where, self._by = self._where, _emitters
        if not _emitters:
            where._skip(self._mark)
            return
        handoff = where if where.__class__ is Handoff else where._this(self._mark)
        if captures and get_ident() in captures:
            _note_capture(self._mark)
            self._by = ()
        elif len(self._by) == 1:
            try:
                self._opened = self._by[0].begin(self._mark, handoff)
            except Exception as error:
                _out_of_order(self._by[0], error)
                self._by = ()
        else:
            self._opened = _begin(self._by, self._mark, handoff)

    def _timed_enter(self) -> None:
        """Open it, and let its own cost be measured."""
        began = perf_counter_ns()
        Bracket.__enter__(self)  # not what a unit does before: it is done
        if self._by:
            spent = perf_counter_ns() - began
            self._by, self._opened = (_CLOCK,), (self._by, self._opened, spent)

    def __exit__(self, kind: object, error: object, at: object) -> None:
        by, self._by = self._by, ()
        if len(by) == 1:
            if self._opened is not None:
                try:
                    by[0].end(self._opened)
                except Exception as failure:
                    _out_of_order(by[0], failure)
        elif by:
            _end(by, self._opened)

    def __call__(self, function: Function) -> Function:
        """Return the function with a bracket around each of its calls."""
        return wrap(function, lambda: bracket(self._mark, self._where))


class _Clock:
    """Stands for the emitters of a bracket whose own cost is measured."""

    name = "clock"

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Is not called: such a bracket is opened by its emitters."""

    def end(self, token: object) -> None:
        """Close the bracket with its emitters, and note what that took."""
        by, opened, spent_ns = cast("tuple[tuple[Emitter, ...], Any, int]", token)
        began = perf_counter_ns()
        _end(by, [opened] if len(by) == 1 else opened)
        own_cost[2] += perf_counter_ns() - began
        own_cost[1] += spent_ns
        own_cost[0] += 1

    def point(self, mark: int, handoff: Handoff) -> None:
        """Is not called."""

    def close(self) -> None:
        """Nothing is left."""


_CLOCK = _Clock()


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
    if captures and get_ident() in captures:
        _note_capture(mark)
        return
    for emitter in _emitters:
        try:
            emitter.point(mark, handoff)
        except Exception as error:
            _out_of_order(emitter, error)


def _begin(by: tuple[Emitter, ...], mark: int, handoff: Handoff) -> list[Any]:
    """Open a bracket with several emitters; return their tokens."""
    tokens: list[Any] = []
    for emitter in by:
        try:
            tokens.append(emitter.begin(mark, handoff))
        except Exception as error:
            tokens.append(None)
            _out_of_order(emitter, error)
    return tokens


def _end(by: tuple[Emitter, ...], tokens: list[Any]) -> None:
    """Close a bracket, the emitter that opened last first."""
    for at in range(len(by) - 1, -1, -1):
        if tokens[at] is not None:
            try:
                by[at].end(tokens[at])
            except Exception as error:
                _out_of_order(by[at], error)


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
    """Take an emitter out that fails, and say so once."""
    set_emitters(tuple(e for e in _emitters if e is not emitter))
    if emitter.name not in _failed:
        _failed.add(emitter.name)
        warnings.warn(
            f"gapscope: marks no longer go to {emitter.name} ({type(error).__name__}: {error}).",
            RuntimeWarning,
            stacklevel=3,
        )


IDLE = _Idle(PRODUCE, None)
Handoff._off = (IDLE,) * len(MARKS)

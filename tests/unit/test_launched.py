"""What each bracket launched, against the plain rule: what decides its times, and all that is around an operation."""

from __future__ import annotations

import random

import polars as pl
import pytest

from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph.context import Context
from gapscope.graph.items import find_items
from gapscope.testing import Recording, trace

STAGE = ("produce", "consume")
KEY = {"produce": "src=0 dst=1", "submit": "src=0 dst=1", "receive": "src=1 dst=0", "consume": "src=1 dst=0"}


class Nested:
    """Brackets that open and close at random on two threads, and kernels launched meanwhile, at distinct times."""

    def __init__(self, seed, *, n=120):
        rng = random.Random(seed)
        self.r = Recording("rank0", pid=10)
        self.marks, self.ops = [], []
        starts = rng.sample(range(10_000, 20_000), n)
        for thread in (1, 2):
            opened = []
            for now in range(10, 10 * n, 10):
                step = rng.random()
                if step < 0.25 and len(opened) < 5:
                    kind, consumed = rng.choice(list(KEY)), [m for m in opened if m["kind"] == "consume"]
                    own = kind == "receive" and consumed and rng.random() < 0.7
                    seq = consumed[-1]["seq"] if own else len(self.marks) + len(opened) + 1_000 * thread
                    opened.append({"kind": kind, "seq": seq, "start": now, "thread": thread})
                elif step < 0.5 and opened:
                    self.close(opened.pop(), now)
                elif step < 0.9 and len(self.ops) < n:
                    start = starts[len(self.ops)]
                    device, end = rng.randrange(2), start + rng.randrange(1, 3_000)
                    self.r.kernel(now, start, end, stream=7 + device, thread=thread, device=device)
                    self.ops.append({"call": now, "thread": thread, "device": device, "start": start, "end": end})
            while opened:
                self.close(opened.pop(), 10 * n - 10 * len(opened) + 55)

    def close(self, mark, now):
        self.r.mark(f"{mark['kind']} {KEY[mark['kind']]} seq={mark['seq']}", mark["start"], now, mark["thread"])
        self.marks.append({**mark, "end": now})

    def launched(self, mark):
        """Operations of one mark, by the rule."""
        return [op for op in self.ops if self.is_inside(op, mark)]

    def is_inside(self, op, mark):
        around = [m for m in self.marks if m["thread"] == op["thread"] and m["start"] <= op["call"] <= m["end"]]
        if mark not in around:
            return False
        if mark["kind"] not in STAGE:
            return True
        if any(m["kind"] not in STAGE and m["start"] > mark["start"] for m in around):
            return False
        received = [
            m["end"]
            for m in self.marks
            if mark["kind"] == "consume" and m["kind"] == "receive" and m["seq"] == mark["seq"]
            and m["thread"] == mark["thread"] and mark["start"] <= m["start"] <= mark["end"]
        ]  # fmt: skip
        return op["call"] >= max(received, default=0)

    def rows(self, *, deciding):
        """One row for each mark and operation of it: all, or those that decide."""
        found = set()
        for mark in self.marks:
            ops = self.launched(mark)
            for op in ops:
                of_device = [other for other in ops if other["device"] == op["device"]]
                edge = op["start"] == min(o["start"] for o in of_device) or op["end"] == max(
                    o["end"] for o in of_device
                )
                if edge or mark["kind"] not in STAGE or not deciding:
                    found.add((mark["kind"], mark["seq"], op["start"]))
        return found

    def context(self):
        recorded = trace(self.r)
        ends = find_ends(recorded)
        return Context(recorded, align(recorded, ends), find_items(recorded, align(recorded, ends), ends), ends)


def rows(context, ops):
    shift = context.items.start[0] - context.items.times.raw_starts(1)[0]
    return set(ops.select("mark", "seq", pl.col("start") - int(shift)).rows())


@pytest.mark.parametrize("seed", range(12))
def test_what_decides_is_what_started_first_or_ended_last_on_a_device(seed):
    built = Nested(seed)
    context = built.context()
    assert rows(context, context.deciding_ops) == built.rows(deciding=True)


@pytest.mark.parametrize("seed", range(12))
def test_all_brackets_around_any_operation_are_found(seed):
    built = Nested(seed)
    context = built.context()
    items = pl.Series([*range(context.items.n_ops), None, context.items.n_ops])  # the last is of the host
    assert rows(context, context.brackets_of(items)) == built.rows(deciding=False)
    some = items[3:9]
    starts = set(context.items.times.raw_start(some.to_numpy()).tolist())
    expected = {row for row in built.rows(deciding=False) if row[2] in starts}
    assert rows(context, context.brackets_of(some)) == expected


def test_of_what_a_bracket_launched_little_is_kept():
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 10_000)
    for k in range(1_000):
        r.kernel(10 + k, 20_000 + 10 * k, 20_005 + 10 * k)
    ends = find_ends(trace(r))
    assert ends.launched.select("start_ns", "end_ns").rows() == [(20_000, 20_005), (29_990, 29_995)]
    assert ends.brackets.select("first_ns", "last_ns").rows() == [(20_000, 29_995)]


@pytest.mark.parametrize("end", [None, 5])
@pytest.mark.parametrize("untimed", [{0, 500}, {500}, {500, 999}])
def test_an_operation_without_a_start_is_kept_wherever_it_stands(untimed, end):
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 10_000)
    for k in range(1_000):
        r.kernel(10 + k, *((None, end) if k in untimed else (20_000 + 10 * k, 20_005 + 10 * k)))
    reasons = find_ends(trace(r)).brackets.select("first_reason", "last_reason").row(0)
    assert reasons == ("untimed" if 0 in untimed else None, "untimed" if 999 in untimed else None)


@pytest.mark.parametrize("missing", [{0, 500}, {500}, {500, 999}])
def test_a_call_without_an_operation_counts_where_it_could_have_decided(missing):
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 10_000)
    for k in range(1_000):
        called = r.call(10 + k)
        if k not in missing:
            r.op(called, 20_000 + 10 * k, 20_005 + 10 * k)
    reasons = find_ends(trace(r)).brackets.select("first_reason", "last_reason").row(0)
    assert reasons == ("no_record" if 0 in missing else None, "no_record" if 999 in missing else None)

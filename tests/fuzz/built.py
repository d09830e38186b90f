"""Recordings built by hand, as torch.profiler writes them: small enough to be cut at every length.

Handoff `seq` begins at `1000 * seq` microseconds. In the layouts `minimal` and `plain`, `PLAIN` holds its times in
nanoseconds from there; the other layouts are ways in which real frameworks set the marks.
"""

from __future__ import annotations

import json

BASE_NS = 1_795_968_432_000_000_000
PLAIN = {
    "producer_finish_ns": 40_000,
    "submit_ns": 20_000,
    "receive_post_ns": 50_000,
    "movement_start_ns": 41_500,
    "available_ns": 62_000,
    "consumer_start_ns": 66_000,
}
HEAD = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [\n'
TAIL = "\n]}\n"
BACKWARD_THREAD = 99


class Rank:
    """The events of one rank, which is process 10 + rank, thread 10 + rank and GPU rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.marks: list[dict] = []
        self.work: list[dict] = []
        self.spans: list[dict] = []
        self.names: list[dict] = []
        self._correlation = 10 * rank

    def mark(self, text: str, start: float, end: float) -> None:
        self.marks.append(self._host("user_annotation", f"gapscope::{text}", start, end))

    def kernel(self, called: float, *times: tuple[float, float], thread: int | None = None, call="cuLaunch") -> None:
        """One call at ``called`` and the operations that it launches, with their starts and ends."""
        self._correlation += 1
        event = self._host("cuda_runtime", call, called, called + 1, thread)
        self.work.append({**event, "args": {"correlation": self._correlation}})
        for node, (start, end) in enumerate(times):
            self._op("kernel", "k", 7, start, end, {"graph node id": node + 1} if len(times) > 1 else {})

    def copy_without_call(self, start: float, end: float) -> None:
        self._correlation += 1
        self._op("gpu_memcpy", "Memcpy PtoP", 9, start, end, {})

    def span(self, text: str, start: float, end: float) -> None:
        event = {"ph": "X", "cat": "gpu_user_annotation", "name": f"gapscope::{text}", "pid": self.rank, "tid": 9}
        self.spans.append({**event, **_when(start, end)})

    def thread_name(self, thread: int, name: str) -> None:
        self.names.append({"ph": "M", "name": "thread_name", **self._who(thread), "args": {"name": name}})

    def events(self) -> list[dict]:
        """All events in the order of torch.profiler."""
        by_time = sorted(self.work, key=lambda event: event["ts"])
        return self.marks + by_time + self.spans + self.names

    def _op(self, category, name, stream, start, end, more):
        event = {"ph": "X", "cat": category, "name": name, "pid": self.rank, "tid": stream, **_when(start, end)}
        self.work.append({**event, "args": {"correlation": self._correlation, **more}})

    def _host(self, category, name, start, end, thread=None):
        return {"ph": "X", "cat": category, "name": name, **self._who(thread), **_when(start, end)}

    def _who(self, thread):
        return {"pid": 10 + self.rank, "tid": thread or 10 + self.rank}


def _when(start, end):
    return {"ts": start, "dur": round(end - start, 3)}


def minimal(ranks, t, key):
    """One kernel for each mark."""
    source, destination = ranks
    source.mark(f"produce {key}", t, t + 19)
    source.mark(f"submit {key}", t + 20, t + 29)
    source.kernel(t + 10, (t + 20, t + 40))
    source.kernel(t + 25, (t + 41.5, t + 50))
    destination.mark(f"receive {key}", t + 50, t + 59)
    destination.mark(f"consume {key}", t + 60, t + 69)
    destination.kernel(t + 55, (t + 56, t + 62))
    destination.kernel(t + 63, (t + 66, t + 70))


def plain(ranks, t, key):
    """Two kernels are produced, one operation submits, one receives, two kernels consume."""
    plain_source(ranks[0], t, key)
    plain_destination(ranks[1], t, key)


def plain_source(rank, t, key):
    rank.mark(f"produce {key}", t, t + 19)
    rank.mark(f"submit {key}", t + 20, t + 29)
    rank.kernel(t + 5, (t + 12, t + 20))
    rank.kernel(t + 10, (t + 20, t + 40))
    rank.kernel(t + 25, (t + 41.5, t + 50))


def plain_destination(rank, t, key):
    rank.mark(f"receive {key}", t + 50, t + 59)
    rank.mark(f"consume {key}", t + 60, t + 69)
    rank.kernel(t + 55, (t + 56, t + 62))
    rank.kernel(t + 63, (t + 66, t + 70))
    rank.kernel(t + 64, (t + 70, t + 75))


def nested(ranks, t, key):
    """The send stands inside the producing stage, the receive inside the consuming one."""
    source, destination = ranks
    source.mark(f"produce {key}", t, t + 40)
    source.mark(f"submit {key}", t + 20, t + 29)
    source.kernel(t + 5, (t + 12, t + 20))
    source.kernel(t + 25, (t + 41.5, t + 50))
    destination.mark(f"consume {key}", t + 50, t + 69)
    destination.mark(f"receive {key}", t + 52, t + 59)
    destination.kernel(t + 51, (t + 51.5, t + 53))
    destination.kernel(t + 55, (t + 56, t + 62))
    destination.kernel(t + 63, (t + 66, t + 70))


def posted(ranks, t, key):
    """The receive is posted in one bracket and waited for in another."""
    plain_source(ranks[0], t, key)
    ranks[1].mark(f"receive {key}", t + 1, t + 9)
    ranks[1].kernel(t + 5, (t + 45, t + 52))
    plain_destination(ranks[1], t, key)


def slots(ranks, t, key):
    """Two tensors are one handoff."""
    for rank, mark, first in ((ranks[0], "produce", t), (ranks[0], "submit", t + 30), (ranks[1], "receive", t + 50)):
        for slot, start in enumerate((first, first + 10)):
            rank.mark(f"{mark} {key} slot={slot}", start, start + 9)
            rank.kernel(start + 5, (start + 6, start + 15))
    ranks[1].mark(f"consume {key}", t + 70, t + 79)
    ranks[1].kernel(t + 75, (t + 76, t + 80))


def spans(ranks, t, key):
    """The tool records no call for the two copies of a transfer, but its own GPU span of the mark."""
    source, destination = ranks
    source.mark(f"produce {key}", t, t + 19)
    source.mark(f"submit {key}", t + 20, t + 29)
    source.kernel(t + 5, (t + 12, t + 20))
    source.copy_without_call(t + 41.5, t + 45)
    source.copy_without_call(t + 46, t + 50)
    source.span(f"submit {key}", t + 41.5, t + 50)
    destination.mark(f"receive {key}", t + 50, t + 59)
    destination.mark(f"consume {key}", t + 60, t + 69)
    destination.copy_without_call(t + 56, t + 58)
    destination.copy_without_call(t + 59, t + 62)
    destination.span(f"receive {key}", t + 56, t + 62)
    destination.kernel(t + 63, (t + 66, t + 70))


def graphs(ranks, t, key):
    """Both stages are replays of graphs of three kernels."""
    source, destination = ranks
    source.mark(f"produce {key}", t, t + 19)
    source.mark(f"submit {key}", t + 20, t + 29)
    source.kernel(t + 5, (t + 12, t + 20), (t + 20, t + 30), (t + 30, t + 40), call="cudaGraphLaunch")
    source.kernel(t + 25, (t + 41.5, t + 50))
    destination.mark(f"receive {key}", t + 50, t + 59)
    destination.mark(f"consume {key}", t + 60, t + 69)
    destination.kernel(t + 55, (t + 56, t + 62))
    destination.kernel(t + 63, (t + 66, t + 70), (t + 70, t + 71), (t + 71, t + 75), call="cudaGraphLaunch")


def points(ranks, t, key):
    """Beside the brackets, points name the events themselves: the first of two kernels starts the consumer's work."""
    source, destination = ranks
    plain(ranks, t, key)
    source.mark(f"producer_finish {key}", t + 7, t + 7)
    source.mark(f"movement_start {key}", t + 24, t + 24)
    destination.mark(f"available {key}", t + 58, t + 58)
    destination.mark(f"consumer_start {key}", t + 63.5, t + 63.5)


def backward(ranks, t, key):
    """Backward stages: autograd's own thread launches."""
    source, destination = ranks
    source.mark(f"produce {key}", t, t + 19)
    source.mark(f"submit {key}", t + 20, t + 29)
    source.kernel(t + 5, (t + 12, t + 20))
    source.kernel(t + 10, (t + 20, t + 40), thread=BACKWARD_THREAD)
    source.kernel(t + 25, (t + 41.5, t + 50))
    destination.mark(f"receive {key}", t + 50, t + 59)
    destination.mark(f"consume {key}", t + 60, t + 69)
    destination.kernel(t + 55, (t + 56, t + 62))
    destination.kernel(t + 63, (t + 66, t + 70), thread=BACKWARD_THREAD)
    destination.kernel(t + 64, (t + 70, t + 75))
    for rank in ranks:
        if not rank.names:
            rank.thread_name(BACKWARD_THREAD, "pt_autograd_0")


LAYOUTS = {f.__name__: f for f in (minimal, plain, nested, posted, slots, spans, graphs, points, backward)}


def recorded(layout, seqs) -> tuple[Rank, Rank]:
    """Both ranks of some handoffs from rank 0 to rank 1."""
    ranks = Rank(0), Rank(1)
    for seq in seqs:
        LAYOUTS[layout](ranks, 1000 * seq, f"src=0 dst=1 seq={seq}")
    return ranks


def lines(events) -> list[str]:
    return [json.dumps(event, separators=(",", ":")) for event in events]


def kineto(texts, head=HEAD, tail=TAIL) -> bytes:
    """A file of some events, given as JSON text."""
    return (head + ",\n".join(texts) + tail).encode()


def plain_times(seq) -> dict[str, int]:
    """The six times of a handoff of the layouts `minimal` and `plain`."""
    return {name: BASE_NS + 1_000_000 * seq + offset for name, offset in PLAIN.items()}

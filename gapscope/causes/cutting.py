"""Steps cut at moments, and where spans of time on their thread begin and end; their order stays.

Steps stand by walk and in order of time, and each takes some: parts of one take its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import expand
from gapscope.graph.kernels import fixed, leaf

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_THREAD = ["source", "process", "thread"]


def cut_at(steps: pl.DataFrame, step: Ints, at_ns: Ints) -> tuple[pl.DataFrame, Ints]:
    """Cut steps at moments.

    Args:
        steps: Have ``start_ns``, ``end_ns``.
        step: Row of the step of each moment.
        at_ns: The moments, ordered by step and time, no two the same; from its start (nothing is cut there) to its end,
            excluded.

    Returns:
        The steps, and the row of the part that begins at each moment.
    """
    if not len(step):
        return steps, step
    start, end = (steps[c].to_numpy() for c in ("start_ns", "end_ns"))
    is_start = at_ns == start[step]
    parts = 1 + np.bincount(step[~is_start], minlength=steps.height)
    first = np.cumsum(parts) - parts
    # Parts of a step have the numbers from that of its first on; what begins with the step begins with that.
    borders = np.flatnonzero(np.concatenate([[True], step[1:] != step[:-1]]))
    shift = ~is_start[borders] - borders
    row = first[step] + np.arange(len(step)) + np.repeat(shift, np.diff(np.append(borders, len(step))))
    of_step = np.repeat(np.arange(steps.height), parts)
    begins, ends = start[of_step], end[of_step]
    begins[row] = at_ns
    is_cut = of_step[1:] == of_step[:-1]
    ends[:-1][is_cut] = begins[1:][is_cut]
    cut = steps[of_step].with_columns(start_ns=pl.Series(begins), end_ns=pl.Series(ends))
    return cut, row


def cut_inside(steps: pl.DataFrame, moments: pl.Series) -> pl.DataFrame:
    """Cut each step at one moment of its own, if that lies inside; null: whole."""
    inside = ((moments > steps["start_ns"]) & (moments < steps["end_ns"])).fill_null(value=False)
    step = inside.arg_true()
    return cut_at(steps, step.to_numpy().astype(np.int64), moments.gather(step).to_numpy())[0]


@dataclass(frozen=True)
class Spans:
    """Spans of time on threads, no two of one thread overlap.

    Attributes:
        table: Ordered by ``lane`` and ``begin``: these, ``until``, and what is told of them.
        first: ``first[lane]`` to ``first[lane + 1]`` are the spans of a lane.
    """

    table: pl.DataFrame
    first: Ints

    @classmethod
    def of(cls, lanes: pl.DataFrame, spans: pl.DataFrame) -> Spans:
        """Return spans by lane; those of threads that nothing is known of are left out.

        Args:
            lanes: Result of `gapscope.causes.facts.graph_lanes`.
            spans: ``source, process, thread, begin, until``, and what is told of them.
        """
        numbers = lanes.with_row_index("lane").filter(pl.col("thread").is_not_null()).select("lane", *_THREAD)
        table = spans.join(numbers, on=_THREAD).drop(_THREAD).sort("lane", "begin")
        return cls(table, np.searchsorted(table["lane"].to_numpy(), np.arange(lanes.height + 1)).astype(np.int64))

    def met(self, steps: pl.DataFrame, chosen: pl.Series) -> pl.DataFrame:
        """Return ``step, span``: which of the chosen steps (rows) overlap which spans, in their order.

        Args:
            steps: Have ``lane`` (null: none), ``start_ns``, ``end_ns``.
            chosen: Which of them.
        """
        if not self.table.height:
            return pl.DataFrame(schema={"step": pl.Int64, "span": pl.Int64})
        step = chosen.arg_true().to_numpy().astype(np.int64)
        lane = steps["lane"].fill_null(-1).to_numpy()
        start, end = (steps[c].to_numpy() for c in ("start_ns", "end_ns"))
        begin, until = (self.table[c].to_numpy() for c in ("begin", "until"))
        low, high = np.zeros(len(step), np.int64), np.zeros(len(step), np.int64)
        given = (fixed(values) for values in (step, lane, start, end, self.first, begin, until))
        _find(*given, low, high)
        there = high > low
        span, which = expand(low[there], high[there])
        return pl.DataFrame({"step": step[there][which], "span": span.astype(np.int64)})

    def cut(self, steps: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Cut steps where spans begin and end.

        Args:
            steps: The steps.
            pairs: Rows of `met` that count.

        Returns:
            The steps, and the span that each part lies in; null: in none.
        """
        if not pairs.height:
            return steps, pl.Series([None], dtype=pl.Int64).new_from_index(0, steps.height)
        step, span = pairs["step"], pairs["span"]
        end = steps["end_ns"].gather(step)
        begin = pl.Series(np.maximum(steps["start_ns"].gather(step).to_numpy(), self.table["begin"].gather(span)))
        until = self.table["until"].gather(span)
        borders = pl.concat([
            pl.DataFrame({"step": step, "at_ns": begin, "span": span}),
            pl.DataFrame({"step": step, "at_ns": until}).filter(until < end).with_columns(span=pl.lit(-1, pl.Int64)),
        ])  # fmt: skip
        borders = borders.sort("step", "at_ns", -pl.col("span")).unique(
            ["step", "at_ns"], keep="first", maintain_order=True
        )
        steps, row = cut_at(steps, borders["step"].to_numpy(), borders["at_ns"].to_numpy())
        of_part = np.full(steps.height, -1, np.int64)
        of_part[row] = borders["span"].to_numpy()
        found = pl.Series(of_part)
        return steps, found.set(found < 0, None)


@leaf
def _find(  # noqa: PLR0917 - steps, spans and room for the answer
    step: Ints, lane: Indices, start: Ints, end: Ints, first: Ints, begin: Ints, until: Ints, low: Ints, high: Ints
) -> None:
    """Write down which spans each step overlaps: from and to."""
    for k in range(len(step)):
        s = step[k]
        if lane[s] < 0:
            continue
        one, two = first[lane[s]], first[lane[s] + 1]
        while one < two:  # the first that ends after the step begins
            middle = (one + two) // 2
            if until[middle] > start[s]:
                two = middle
            else:
                one = middle + 1
        low[k], high[k] = one, one
        while high[k] < first[lane[s] + 1] and begin[high[k]] < end[s]:
            high[k] += 1

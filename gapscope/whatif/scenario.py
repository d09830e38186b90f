"""What is gone in a replay: the time of one cause, edge, rank, phase or handoff, all of it or a part."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from gapscope.cause_names import CAUSES
from gapscope.errors import UsageError
from gapscope.phases import PHASES
from gapscope.whatif.model import COUNTED, EDGE, Model

P10 = "p10"


@dataclass(frozen=True)
class Scenario:
    """Which tiles of all gaps shrink, and to what.

    Attributes:
        cause: Only tiles of this cause; None: of all.
        src_rank: Only of handoffs from this rank.
        dst_rank: Only of handoffs to this rank.
        rank: Only tiles that lie on this rank.
        phase: Only tiles in this phase.
        handoff_id: Only of this handoff.
        to: What is left of each: ``0``, a share such as ``50%``, or ``p10``: what the best tenth of the handoffs of
            the same edge spends on the same cause on the same rank (a handoff without the cause spends nothing).
    """

    cause: str | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    rank: int | None = None
    phase: str | None = None
    handoff_id: str | None = None
    to: str = "0"

    def __post_init__(self) -> None:
        if self.cause is not None and self.cause not in CAUSES:
            raise UsageError(f"There is no cause {self.cause!r}: {', '.join(CAUSES)}.")
        if self.phase is not None and self.phase not in PHASES:
            raise UsageError(f"There is no phase {self.phase!r}: {', '.join(PHASES)}.")
        self.share()

    def share(self) -> float | None:
        """Return which share of each tile is left; None: it goes by the best tenth."""
        if self.to == P10:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", self.to)
        value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
        if found is None or not 0 <= value <= 1 or (value > 0 and not found[2]):
            raise UsageError(f"{self.to!r}: give 0, a share such as 50%, or {P10}.")
        return value

    def words(self) -> str:
        """Return it in words, such as ``late_submission @ rank 0 := p10``."""
        parts = [self.cause or "all causes"]
        if self.rank is not None:
            parts.append(f"@ rank {self.rank}")
        if self.src_rank is not None or self.dst_rank is not None:
            parts.append(f"of {'*' if self.src_rank is None else self.src_rank} → "
                         f"{'*' if self.dst_rank is None else self.dst_rank}")  # fmt: skip
        if self.phase is not None:
            parts.append(f"in the {self.phase.replace('_', ' ')}")
        if self.handoff_id is not None:
            parts.append(f"of handoff {self.handoff_id}")
        return f"{' '.join(parts)} := {self.to}"


def fitting(model: Model, scenario: Scenario) -> pl.Series:
    """Return for each row of `Model.parts` whether it shrinks.

    Raises:
        UsageError: None does; the message lists what there is.
    """
    parts, handoffs = model.parts, model.explained.handoffs
    fits = pl.repeat(value=True, n=parts.height, eager=True)
    for frame, names in ((parts, ("cause", "rank", "phase")), (handoffs, ("handoff_id", "src_rank", "dst_rank"))):
        for name in names:
            value = getattr(scenario, name)
            if value is not None:
                same = frame.select((pl.col(name) == value).fill_null(value=False)).to_series()
                fits &= same if frame is parts else same.gather(parts["handoff"])
    if not fits.any():
        there = ", ".join(sorted(parts["cause"].unique().cast(pl.String))) or "none at all"
        raise UsageError(f"No tile fits ({scenario.words()}). Causes that there are: {there}.")
    return fits


def shrunk(model: Model, scenario: Scenario) -> pl.Series:
    """Return how much of each tile would be gone, were it chosen: ``gone_ns`` per row of `Model.parts`."""
    share = scenario.share()
    if share is None:
        return _to_best_tenth(model)
    return model.parts.select(gone_ns=(pl.col("length_ns") * (1 - share)).round().cast(pl.Int64)).to_series()


def _to_best_tenth(model: Model) -> pl.Series:
    """Return ``gone_ns`` so that each handoff keeps what the best tenth spends on that cause."""
    handoffs = model.explained.handoffs
    edges = handoffs.select(EDGE).unique(maintain_order=True).with_row_index("edge")
    edge = handoffs.select(EDGE).join(edges, on=EDGE, how="left", nulls_equal=True, maintain_order="left")["edge"]
    counted = COUNTED & (pl.col("gap_ns") >= 0)  # one without a gap has no tiles, but counts
    numbers = handoffs.select(edge=edge, counted=counted).filter("counted").group_by("edge").agg(handoffs=pl.len())
    parts, classes = model.parts, model.classes
    # One number for each class of each edge.
    n_classes = classes.table.height
    tiles = parts.select(
        "counted", "length_ns", of=edge.gather(parts["handoff"]).cast(pl.Int64) * n_classes + pl.Series(classes.number),
        total_ns=pl.Series(classes.total_ns), is_first=pl.Series(classes.is_first),
    )  # fmt: skip
    with_it = tiles.filter("counted", "is_first").group_by("of").agg("total_ns")
    with_it = with_it.with_columns(edge=(pl.col("of") // n_classes).cast(pl.UInt32)).join(numbers, on="edge")
    # Handoffs without the cause spend nothing on it: they are the best.
    without = pl.col("handoffs").cast(pl.Int64) - pl.col("total_ns").list.len()
    nth = (pl.col("handoffs").cast(pl.Int64) + 9) // 10 - 1 - without
    best = with_it.with_columns(
        best_ns=pl.when(nth < 0).then(0).otherwise(
            pl.col("total_ns").list.sort().list.get(pl.max_horizontal(nth, 0), null_on_oob=True)
        )
    ).select("of", "best_ns")  # fmt: skip
    joined = tiles.join(best, on="of", how="left", maintain_order="left")
    over = pl.max_horizontal(pl.col("total_ns") - pl.col("best_ns").fill_null(pl.col("total_ns")), 0)
    gone = (pl.col("length_ns") * over / pl.col("total_ns")).round().cast(pl.Int64)
    return joined.select(gone_ns=gone).to_series()

"""The other half of the answer: what it would bring if the dominant cause alone had vanished, and what would hold then.

The handoff's own part of the graph is replayed with that cause's tiles at zero; waits are elastic and residuals stay as
measured. A transfer by kernels is one thing on all its ranks: where it vanishes, it does so on each of them. A cause
with a large tile and little headroom is not where to work.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.cause_names import CAUSE
from gapscope.causes.naming import Known, named
from gapscope.graph import replay_without
from gapscope.graph.kernels import BODY, LEAD, NONE, RESIDUAL
from gapscope.graph.walks import Walks


def about_causes(known: Known, walks: Walks, steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per walked handoff.

    Args:
        known: What causes are named by.
        walks: Where the walks begin and end.
        steps: Result of `gapscope.causes.naming.named`.

    Returns:
        ``handoff_id, dominant_cause, dominant_ns, removable_ns, next_cause, consumer_bound, slack_ns``.
    """
    facts = known.facts
    length = pl.col("end_ns") - pl.col("start_ns")
    dominant = _longest(steps, steps.select(length).to_series(), facts.height)
    of_steps = dominant["cause"].gather(steps["walk"])
    removed = steps.filter((pl.col("cause") == of_steps) & pl.col("item").is_not_null()).select(
        "walk",
        node=pl.when(pl.col("what") != LEAD).then(
            pl.col("item") * 2 + pl.when(pl.col("what") == BODY).then(1).otherwise(0)
        ),
        duration_ns=length,
    )
    starts, chains = replay_without(known.graph, walks, known.together.with_peers(removed))
    return (
        facts.select("walk", "handoff_id", "consumer_start_ns", "available_ns")
        .hstack(dominant.select(dominant_cause="cause", dominant_ns="total"))
        .with_columns(
            next_cause=_next_causes(known, chains, dominant["cause"]),
            removable_ns=pl.col("consumer_start_ns") - pl.Series(starts),
        )
        .join(_bounds(steps), on="walk", how="left", maintain_order="left")
        .with_columns(
            slack_ns=pl.when(pl.col("consumer_bound") & (pl.col("ready_ns") >= pl.col("available_ns"))).then(
                pl.col("ready_ns") - pl.col("available_ns")
            )
        )
        .select(
            "handoff_id", "dominant_cause", "dominant_ns", "removable_ns", "next_cause", "consumer_bound", "slack_ns"
        )
    )


def _longest(steps: pl.DataFrame, length: pl.Series, n_walks: int) -> pl.DataFrame:
    """Return ``cause, total``, one row per walk: the cause with the most time, of equal ones the first by name.

    Args:
        steps: ``walk, cause``; both are null for walks without any.
        length: What counts of each.
        n_walks: Number of walks.
    """
    names = sorted(CAUSE.categories)
    place = np.array([names.index(name) for name in CAUSE.categories], np.int64)
    cell = steps["walk"].to_numpy() * len(names) + place[steps["cause"].to_physical().to_numpy()]
    total = np.full(n_walks * len(names), -1, np.int64)
    total[cell] = 0
    np.add.at(total, cell, length.to_numpy())
    by_walk = total.reshape(n_walks, len(names))
    most = by_walk.argmax(axis=1)
    longest = by_walk[np.arange(n_walks), most]
    cause = pl.Series(names, dtype=CAUSE).gather(most)
    nothing = pl.Series(longest < 0)
    return pl.DataFrame({"cause": cause.set(nothing, None), "total": pl.Series(longest).set(nothing, None)})


def _bounds(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``walk, consumer_bound, ready_ns``: whether the destination alone held it, and when it had what it needed.

    What nothing explains may have been the source: where the rest is the destination's, nobody knows (null).
    Only a residual is the price of what came before it; its tiles are cut, and it began where the first of them does.
    """
    walk, item, what = (steps[c].fill_null(NONE).to_numpy() for c in ("walk", "item", "what"))
    last = np.flatnonzero(np.append(walk[1:] != walk[:-1], True))[: len(walk)]
    last_of = np.zeros(walk.max(initial=-1) + 1, np.int64)
    last_of[walk[last]] = last
    is_last = (item == item[last_of[walk]]) & (what == what[last_of[walk]])
    held = np.flatnonzero(is_last)[::-1]
    first_of = np.zeros_like(last_of)
    first_of[walk[held]] = held  # of each walk the first
    ends = steps.select("walk", "what", "end_ns")[last]
    elsewhere = np.zeros(len(last_of), np.bool_)
    elsewhere[walk[((steps["side"] == "src") | steps["item_rank"].is_null()).to_numpy()]] = True
    is_open = np.zeros(len(last_of), np.bool_)
    is_open[walk[(steps["cause"] == "unexplained").to_numpy()]] = True
    bound = pl.Series(~elsewhere[walk[last]]).set(pl.Series((is_open & ~elsewhere)[walk[last]]), None)
    return ends.with_columns(held_ns=steps["start_ns"].gather(first_of[walk[last]])).select(
        "walk",
        consumer_bound=bound,
        ready_ns=pl.when(pl.col("what") == RESIDUAL).then("held_ns").otherwise("end_ns"),
    )


def _next_causes(known: Known, chains: pl.DataFrame, dominant: pl.Series) -> pl.Series:
    """Return for each walk the cause with the most time on the chain that would hold the gap then."""
    steps = named(known, chains)
    left = steps.filter(pl.col("cause") != dominant.gather(steps["walk"]))
    part = left.select(pl.min_horizontal("length_ns", pl.col("end_ns") - pl.col("start_ns"))).to_series()
    return _longest(left, part, len(dominant))["cause"]

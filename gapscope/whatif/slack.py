"""How much later each handoff's consumer could have started with no step or request ending later, and why."""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.facts import item_facts
from gapscope.causes.units import NO_NODE
from gapscope.graph.allowance import NEVER
from gapscope.schema import SLACK, dtypes
from gapscope.whatif.model import Model


def unit_slack(model: Model) -> pl.DataFrame:
    """Return the slack of each explained handoff against the ends of all steps and requests.

    Returns:
        Table ``slack`` of `gapscope.schema`.

    Raises:
        ReplayError: See `Model.forward`.
    """
    walked = model.walked
    if not walked.height:
        return pl.DataFrame(schema=dtypes(SLACK))
    later, absorber = model.allowed()
    begin = model.explained.begin
    known = begin != NO_NODE
    begin = model.forward.places(begin[known])
    slack, held = np.full(len(known), NEVER, np.int64), np.full(len(known), NO_NODE, np.int64)
    slack[known], held[known] = later[begin], absorber[begin]
    held[(slack <= 0) | (slack == NEVER)] = NO_NODE
    item = pl.Series(held).replace(NO_NODE, None) // 2
    facts = item_facts(model.graph, item).select("item", absorbed_rank="item_rank", absorbed_by="label")
    table = walked.select(
        "handoff_id", unit_slack_ns=pl.Series(np.where(slack < NEVER, slack, -1)).replace(-1, None), item=item
    )
    joined = table.join(facts, on="item", how="left", maintain_order="left")
    return joined.select(pl.col(n).cast(t) for n, t in dtypes(SLACK).items())

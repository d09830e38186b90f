"""Operations that move the same bytes on several ranks: a send and its receive, or one collective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph import Graph
from gapscope.graph.edges import TYPE

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transfers:
    """Operations that move the same bytes on several ranks.

    Attributes:
        graph: The graph.
        node: End of each such operation, once per edge that leads to it.
        ready: When that edge was satisfied.
        pairs: ``item, peer``: each operation with each of the others, both ways.
    """

    graph: Graph
    node: Ints
    ready: Ints
    pairs: pl.DataFrame

    @classmethod
    def of(cls, graph: Graph) -> Transfers:
        """Return those of a graph."""
        edges = graph.edges
        between = np.flatnonzero((edges.kind == TYPE["send_recv"]) | (edges.kind == TYPE["collective"]))
        # Of another type than `first` itself they would have all of it copied to theirs.
        node = np.searchsorted(edges.first, between.astype(edges.first.dtype), side="right") - 1
        one, other = node // 2, edges.source[between] // 2
        pairs = pl.DataFrame({"item": np.concatenate([one, other]), "peer": np.concatenate([other, one])}).unique()
        return cls(graph, node, edges.ready[between], pairs)

    def peers_of(self, nodes: Ints) -> Ints:
        """Return the ends of what moves the same bytes as operations of which some nodes are the ends."""
        if not len(self.node):
            return np.zeros(0, np.int64)
        items = pl.Series(nodes[nodes % 2 == 1] // 2, dtype=pl.Int64)
        found = self.pairs.filter(pl.col("item").cast(pl.Int64).is_in(items.implode()))["peer"]
        return found.unique().to_numpy().astype(np.int64) * 2 + 1

    def with_peers(self, removed: pl.DataFrame) -> pl.DataFrame:
        """Add to the parts that vanish what moved the same bytes on other ranks.

        Else the next operation on that stream of theirs would still wait for a transfer that is gone.

        Args:
            removed: ``walk, node, duration_ns``.
        """
        if not len(self.node):
            return removed
        items = self.graph.items
        vanished = removed.filter((pl.col("node") % 2 == 1).fill_null(value=False))
        peers = (
            vanished.with_columns(item=pl.col("node").cast(pl.Int64) // 2)
            .join(self.pairs, on="item")
            .group_by("walk", node=pl.col("peer").cast(removed.schema["node"]) * 2 + 1)
            .agg(pl.col("duration_ns").max())
            .join(vanished, on=["walk", "node"], how="anti")
        )
        # What a peer's kernel waited for it still waits for: only the rest of it is transfer.
        waits = pl.DataFrame({"node": self.node, "ready_ns": self.ready}).cast({"node": removed.schema["node"]})
        numbers = peers["node"].to_numpy() // 2
        peers = peers.with_columns(start=pl.Series(items.start[numbers]), end=pl.Series(items.end[numbers]))
        held = peers.join(waits, on="node").filter(pl.col("ready_ns") <= pl.col("end"))
        held = held.group_by("walk", "node").agg(pl.col("ready_ns").max())
        peers = peers.join(held, on=["walk", "node"], how="left").select(
            "walk",
            "node",
            duration_ns=pl.min_horizontal("duration_ns", pl.col("end") - pl.max_horizontal("start", "ready_ns")),
        )
        return pl.concat([removed, peers.select(removed.columns).cast(removed.schema)])

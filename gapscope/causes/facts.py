"""What the naming of causes needs to know about handoffs and items."""

from __future__ import annotations

import polars as pl

from gapscope.graph import Graph


def graph_lanes(graph: Graph) -> pl.DataFrame:
    """Return the streams and threads of a run, one row each; position is number.

    Returns:
        ``rank, source, process, thread`` (null for streams), ``device`` (null for threads), ``is_host``, ``label``
        (``gpu0:stream7``, ``host:1234``).
    """
    stream, thread = pl.format("gpu{}:stream{}", "device", "stream"), pl.format("host:{}", "thread")
    return graph.items.lanes.select(
        "source", "process", "rank", "thread", "device", "is_host",
        label=pl.when("is_host").then(thread).otherwise(stream),
    )  # fmt: skip


def item_names(graph: Graph, item: pl.Series) -> pl.Series:
    """Return the names of items (Categorical); null: no item.

    Args:
        graph: The graph.
        item: Their numbers.
    """
    items, n = graph.items, graph.items.n_ops
    is_op = (item < n).fill_null(value=False)
    of_ops = items.ops["name"].gather(item.set(~is_op, None))
    of_hosts = items.hosts["name"].gather((item - n).set(is_op, None))
    return of_ops.zip_with(is_op, of_hosts)


def item_facts(graph: Graph, item: pl.Series) -> pl.DataFrame:
    """Return ``item, item_rank, label``, one row per item; ``label`` names it for people, with its rank and lane.

    Args:
        graph: The graph.
        item: Their numbers; may repeat and hold nulls.
    """
    number = item.drop_nulls().unique().sort().cast(pl.Int64)
    lanes = graph_lanes(graph).select(pl.col("rank", "label").gather(pl.Series(graph.items.lane[number.to_numpy()])))
    name = item_names(graph, number).cast(pl.String)
    return lanes.select(item=number, item_rank="rank", label=pl.format("rank {} {} ({})", "rank", name, "label"))


def handoff_names(graph: Graph, numbers: pl.Series) -> pl.Series:
    """Return the keys of some handoffs as text; null: of none.

    Args:
        graph: The graph.
        numbers: See `gapscope.graph.context.Context.handoffs`; `NONE` or null: none.
    """
    different = numbers.filter(numbers >= 0).unique()
    names = graph.context.handoffs[different].select(_handoff_name()).to_series()
    return numbers.replace_strict(different, names, default=None, return_dtype=pl.String)


def _handoff_name() -> pl.Expr:
    """Return the key of a handoff as text, from the columns of a key."""
    pair = pl.format("{}>{}/{}/{}", "src", "dst", "channel", "seq")
    group = pl.format("{}/{}/{}", "group", "channel", "seq")
    name = pl.when(pl.col("group").is_null()).then(pair).otherwise(group)
    return pl.when(pl.col("job").is_null()).then(name).otherwise(pl.format("{}:{}", "job", name))


def handoff_facts(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per walked handoff, by ``walk``.

    Returns:
        ``handoff`` (see `gapscope.graph.context.Context.numbers_of`), ``handoff_id``, ranks, channel and seq, the
        events, ``receive_launched_ns`` (end of the call that launched the receiving operation; on the host the begin of
        the receive), ``bracket_ns`` and ``bracket_end_ns`` (of the receive, common timebase), ``transport``, ``step``,
        ``microbatch``, ``size_bytes``, ``messages``.
    """
    rows = handoffs.with_row_index("walk").with_columns(
        pl.col("walk").cast(pl.Int64), handoff=graph.context.numbers_of(handoffs)
    )
    rows = rows.join(_receives(graph), on=["handoff", "dst_rank"], how="left", nulls_equal=True, maintain_order="left")
    return rows.select(
        "walk", "handoff_id", "handoff", "src_rank", "dst_rank", "channel", "seq", "producer_finish_ns", "submit_ns",
        "movement_start_ns", "available_ns", "consumer_start_ns", "receive_launched_ns", "bracket_ns", "bracket_end_ns",
        "uncertainty_ns", "step", "microbatch", "size_bytes", "messages", transport=pl.col("transport").cast(pl.String),
    )  # fmt: skip


def _receives(graph: Graph) -> pl.DataFrame:
    """Return, by ``handoff`` and destination, when the receiving operation had been launched; and the bracket."""
    ops, items = graph.context.deciding_ops, graph.items
    # A collective may be one operation that the submit launched: that is what receives, too.
    is_received = pl.col("mark") == "receive"
    received = ops.filter(is_received | ((pl.col("mark") == "submit") & pl.col("group").is_not_null()))
    received = received.sort(is_received, "end").unique(["handoff", "side_rank"], keep="last", maintain_order=True)
    call = items.call_of(received["item"])
    launched = pl.Series(items.end).gather(call)
    received = received.select("handoff", dst_rank=pl.coalesce("side_rank", "dst"), receive_launched_ns=launched)
    brackets = graph.context.brackets.filter(pl.col("mark") == "receive")
    brackets = graph.context.alignment.domains.with_domain(brackets, None, "", "clock")
    shift = graph.context.alignment.offsets(brackets["clock"], brackets["start_ns"])
    spans = (
        brackets.with_columns(
            dst_rank=pl.coalesce("side_rank", "dst"),
            start_ns=pl.col("start_ns") + shift,
            end_ns=pl.col("end_ns") + shift,
        )
        .group_by("handoff", "dst_rank")
        .agg(bracket_ns=pl.col("start_ns").min(), bracket_end_ns=pl.col("end_ns").max())
    )
    facts = spans.join(received, on=["handoff", "dst_rank"], how="full", nulls_equal=True, coalesce=True)
    # A receive on the host is asked for by its bracket alone.
    return facts.with_columns(receive_launched_ns=pl.coalesce("receive_launched_ns", "bracket_ns"))

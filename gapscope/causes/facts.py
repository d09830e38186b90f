"""What the naming of causes needs to know about handoffs and items."""

from __future__ import annotations

import polars as pl

from gapscope.events.pairing import KEY
from gapscope.graph import Graph


def item_facts(graph: Graph, wanted: pl.Series) -> pl.DataFrame:
    """Return one row per item.

    Args:
        graph: The graph.
        wanted: Numbers of items; may repeat and hold nulls.

    Returns:
        ``item, item_rank, item_source, item_process, is_host, name, lane`` (``gpu0:stream7``, ``host:1234``),
        ``device``, ``label``, ``item_bytes`` (copies), ``item_start_ns``, ``item_thread`` (null for operations).
    """
    items = graph.items
    numbers = wanted.drop_nulls().unique().sort().cast(pl.Int64)
    of_ops = numbers.filter(numbers < items.n_ops)
    of_hosts = numbers.filter(numbers >= items.n_ops)
    columns = [pl.col("source", "process", "rank"), pl.col("name").cast(pl.String)]
    ops = items.ops[of_ops].select(
        *columns,
        lane=pl.format("gpu{}:stream{}", "device", "stream"),
        is_host=pl.lit(value=False),
        device=pl.col("device"),
        size_bytes=pl.col("size_bytes"),
        thread=pl.lit(None, dtype=items.hosts.schema["thread"]),
    )
    hosts = items.hosts[of_hosts - items.n_ops].select(
        *columns,
        lane=pl.format("host:{}", "thread"),
        is_host=pl.lit(value=True),
        device=pl.lit(None, dtype=pl.Int32),
        size_bytes=pl.lit(None, dtype=pl.Int64),
        thread=pl.col("thread"),
    )
    both = pl.concat([ops.with_columns(item=of_ops), hosts.with_columns(item=of_hosts)])
    return both.select(
        "item",
        "is_host",
        "name",
        "lane",
        "device",
        item_thread="thread",
        item_bytes="size_bytes",
        item_rank="rank",
        item_source="source",
        item_process="process",
        label=pl.format("rank {} {} ({})", "rank", "name", "lane"),
        item_start_ns=pl.Series(items.start).gather(both["item"]),
    )


def handoff_name() -> pl.Expr:
    """Return the key of a handoff as text, from the columns of a key."""
    pair = pl.format("{}>{}/{}/{}", "src", "dst", "channel", "seq")
    group = pl.format("{}/{}/{}", "group", "channel", "seq")
    name = pl.when(pl.col("group").is_null()).then(pair).otherwise(group)
    return pl.when(pl.col("job").is_null()).then(name).otherwise(pl.format("{}:{}", "job", name))


def handoff_facts(graph: Graph, handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per walked handoff, by ``walk``.

    Returns:
        The key as ``key_text``, ``handoff_id``, ranks, channel and seq, the events, ``receive_launched_ns`` (end of
        the call that launched the receiving operation; on the host the begin of the receive), ``bracket_ns`` and
        ``bracket_end_ns`` (of the receive, common timebase), ``transport``, ``step``, ``microbatch``,
        ``size_bytes``, ``messages``.
    """
    rows = handoffs.with_row_index("walk").with_columns(
        pl.col("walk").cast(pl.Int64),
        src=pl.when(pl.col("group").is_null()).then("src_rank"),
        dst=pl.when(pl.col("group").is_null()).then("dst_rank"),
    )
    rows = rows.with_columns(key_text=handoff_name())
    rows = rows.join(_receives(graph), on=[*KEY, "dst_rank"], how="left", nulls_equal=True, maintain_order="left")
    return rows.select(
        "walk", "handoff_id", "key_text", "src_rank", "dst_rank", "channel", "seq", "producer_finish_ns", "submit_ns",
        "movement_start_ns", "available_ns", "consumer_start_ns", "receive_launched_ns", "bracket_ns", "bracket_end_ns",
        "uncertainty_ns", "step", "microbatch", "size_bytes", "messages", transport=pl.col("transport").cast(pl.String),
    )  # fmt: skip


def _receives(graph: Graph) -> pl.DataFrame:
    """Return, by key and destination, when the receiving operation had been launched, and the receive bracket."""
    ops, items = graph.context.deciding_ops, graph.items
    ends = graph.context.ends
    assert ends is not None
    # A collective may be one operation that the submit launched: that is what receives, too.
    is_received = pl.col("mark") == "receive"
    received = ops.filter(is_received | ((pl.col("mark") == "submit") & pl.col("group").is_not_null()))
    received = received.sort(is_received, "end").unique([*KEY, "side_rank"], keep="last", maintain_order=True)
    call = items.ops["call"].gather(received["item"])
    launched = pl.Series(items.end).gather(call)
    received = received.select(*KEY, dst_rank=pl.coalesce("side_rank", "dst"), receive_launched_ns=launched)
    brackets = ends.brackets.filter(pl.col("mark") == "receive")
    brackets = graph.context.alignment.domains.with_domain(brackets, None, "", "clock")
    shift = graph.context.alignment.offsets(brackets["clock"], brackets["start_ns"])
    spans = (
        brackets.with_columns(
            dst_rank=pl.coalesce("side_rank", "dst"),
            start_ns=pl.col("start_ns") + shift,
            end_ns=pl.col("end_ns") + shift,
        )
        .group_by([*KEY, "dst_rank"])
        .agg(bracket_ns=pl.col("start_ns").min(), bracket_end_ns=pl.col("end_ns").max())
    )
    facts = spans.join(received, on=[*KEY, "dst_rank"], how="full", nulls_equal=True, coalesce=True)
    # A receive on the host is asked for by its bracket alone.
    return facts.with_columns(receive_launched_ns=pl.coalesce("receive_launched_ns", "bracket_ns"))

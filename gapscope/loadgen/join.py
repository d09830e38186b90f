"""Requests that the client measured and requests that gapscope saw, joined by id."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from gapscope.findings import Finding, plural
from gapscope.loadgen.table import Latencies

_PREFIX = "^(cmpl|chatcmpl|generate-tokens)-"
_RANDOM = "-[0-9a-f]{8}$"
_PROMPT = "-[0-9]+$"
_BATCH = "_[0-9]+$"

FORMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("as it is", ()),
    ("vLLM chat: chatcmpl-ID, and cmpl-ID as the answer has it", (_PREFIX,)),
    ("vLLM engine, chat: chatcmpl-ID-8 hex digits", (_PREFIX, _RANDOM)),
    ("vLLM completion: cmpl-ID-prompt", (_PREFIX, _PROMPT)),
    ("vLLM engine, completion: cmpl-ID-prompt-8 hex digits", (_PREFIX, _RANDOM, _PROMPT)),
    ("SGLang batch: ID_position", (_BATCH,)),
)
"""How servers make their ids of the client's, least changed first: what is cut off, in this order.

vLLM takes the client's id from the header ``x-request-id``, puts ``cmpl-``, ``chatcmpl-`` or ``generate-tokens-``
before it, for completions the number of the prompt after it, and newer engines eight random digits after all
(``InputProcessor.assign_request_id``, commit 009daaee; a variable of the environment switches them off). SGLang
(0.5.23) takes ``rid`` from the body as it is, and in a batch appends ``_`` and the position.
"""


@dataclass(frozen=True)
class JoinedRequests:
    """Requests of the client with those of the server.

    Attributes:
        requests: One row per request of the client, in order: columns ``index``, ``request_id``, ``ttft_ns``,
            ``e2e_ns``, ``error`` of table `LATENCIES`; ``server_ids`` (list of the ids of its units, null: none),
            ``form`` (how they were matched, see `FORMS`), ``server_start_ns`` and ``server_end_ns`` (Unix ns on
            gapscope's timebase; earliest and latest of its units, null where one of them has none), ``server_ns``
            (between them), ``outside_ns`` (``e2e_ns - server_ns``: client, network, and what the server does before
            and after its mark; null: not both known). The two clocks need not agree, for only lengths are compared.
        matched: Requests of the client with a unit.
        only_client: Requests of the client without one.
        only_server: Ids of requests that gapscope saw and no request of the client has.
        findings: What does not fit.
    """

    requests: pl.DataFrame = field(repr=False)
    matched: int
    only_client: int
    only_server: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def join_requests(latencies: Latencies, units: pl.DataFrame, *, id_prefix: str | None = None) -> JoinedRequests:
    """Return the requests of a load generator with the time that gapscope saw each of them in the server.

    Ids are equal, or equal after what servers add is cut off (`FORMS`). Nothing is matched by order or time.

    Args:
        latencies: One run of a load generator.
        units: Table ``units`` of `gapscope.schema`; rows with unit ``request`` are used.
        id_prefix: What ``vllm bench serve`` had as ``--request-id-prefix``: it numbers its requests from 0, and its
            file does not hold the ids. Not for datasets that leave entries out while they number, nor for files that
            hold ids. None: the ids of the file.
    """
    client = latencies.requests.select("index", "request_id", "ttft_ns", "e2e_ns", "error")
    if id_prefix is not None:
        made = pl.concat_str(pl.lit(id_prefix), pl.col("index").cast(pl.String))
        client = client.with_columns(request_id=pl.coalesce("request_id", made))
    server = units.filter(pl.col("unit") == "request").select("id", "start_ns", "end_ns")
    once = client.filter(pl.col("request_id").is_not_null() & pl.col("request_id").is_unique())
    matches = _matches(once["request_id"], server["id"].unique(maintain_order=True))
    whole = pl.col("start_ns").null_count() + pl.col("end_ns").null_count() == 0
    sides = (
        server.join(matches, on="id")
        .group_by("request_id")
        .agg(
            server_ids=pl.col("id").unique().sort(),
            form=pl.col("form").first(),
            server_start_ns=pl.when(whole).then(pl.col("start_ns").min()),
            server_end_ns=pl.when(whole).then(pl.col("end_ns").max()),
        )
        .with_columns(server_ns=pl.col("server_end_ns") - pl.col("server_start_ns"))
    )
    joined = client.join(sides, on="request_id", how="left", maintain_order="left")
    joined = joined.with_columns(outside_ns=pl.col("e2e_ns") - pl.col("server_ns"))
    matched = joined.height - joined["server_ids"].null_count()
    unmatched = server["id"].unique(maintain_order=True)
    unmatched = unmatched.filter(~unmatched.is_in(matches["id"].implode()))
    result = JoinedRequests(joined, matched, joined.height - matched, tuple(unmatched.to_list()))
    return _with_findings(result, latencies, client)


def _matches(client: pl.Series, server: pl.Series) -> pl.DataFrame:
    """Return for each id of the server the id of the client that the least change makes of it, and which change."""
    found = []
    rest = pl.DataFrame({"id": server}, schema={"id": pl.String})
    known = pl.DataFrame({"request_id": client}, schema={"request_id": pl.String})
    for form, cuts in FORMS:
        made = pl.col("id")
        for cut in cuts:
            made = made.str.replace(cut, "")
        hit = rest.with_columns(request_id=made, form=pl.lit(form)).join(known, on="request_id", how="semi")
        found.append(hit)
        rest = rest.join(hit, on="id", how="anti", maintain_order="left")
    return pl.concat(found)


def _with_findings(joined: JoinedRequests, latencies: Latencies, client: pl.DataFrame) -> JoinedRequests:
    found = []

    def say(code: str, message: str, hint: str, count: int) -> None:
        found.append(Finding(code, "warning", message, hint, path=latencies.path, count=count))

    without_id = client["request_id"].null_count()
    if without_id:
        message = f"{plural(without_id, 'request')} of the load generator's file without an id; they are not joined."
        say("load_ids_missing", message, "For vllm bench serve give its --request-id-prefix as the prefix.", without_id)
    doubled = client.filter(pl.col("request_id").is_not_null() & pl.col("request_id").is_duplicated()).height
    if doubled:
        message = (
            f"{plural(doubled, 'request')} of the load generator share their id with another; they are not joined."
        )
        say("load_ids_doubled", message, "Give every request its own id.", doubled)
    lone = joined.only_client - without_id - doubled
    if lone or (joined.only_server and not without_id):
        message = (
            f"Joined by id: {joined.matched:,}; only the load generator has {lone:,}, only gapscope "
            f"{len(joined.only_server):,}."
        )
        hint = "Requests outside the recording are on one side only; else compare how the ids are written."
        say("load_requests_unjoined", message, hint, lone + len(joined.only_server))
    shorter = joined.requests.filter(pl.col("outside_ns") < 0).height
    if shorter:
        message = f"{plural(shorter, 'request')} took longer in the server than for the client."
        hint = (
            "The client's time may end with the last token and the mark later; else the ids are not the same requests'."
        )
        say("load_server_longer", message, hint, shorter)
    return JoinedRequests(joined.requests, joined.matched, joined.only_client, joined.only_server, tuple(found))

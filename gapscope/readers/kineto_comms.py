"""Communication metadata of torch: names of operations and element types, and the table `comms`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import polars as pl

from gapscope.schema import COMM_OP

_ITEM_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1, "quint8": 1, "qint8": 1,
    "short": 2, "int16": 2, "uint16": 2, "half": 2, "float16": 2, "bfloat16": 2,
    "int": 4, "int32": 4, "uint32": 4, "float": 4, "float32": 4, "qint32": 4, "complexhalf": 4,
    "long": 8, "int64": 8, "uint64": 8, "double": 8, "float64": 8, "complexfloat": 8, "complex64": 8,
    "complexdouble": 16, "complex128": 16,
}  # fmt: skip
_OPS = (
    ("barrier", r"barrier"),
    ("coalesced", r"coalesced|batchisendirecv|batchp2p|startcoalescing|endcoalescing"),
    ("send", r"i?send"),
    ("recv", r"i?recv(anysource)?"),
    ("allreduce", r"allreduce\w*"),
    ("allgather", r"allgather\w*"),
    ("reducescatter", r"reducescatter\w*"),
    ("alltoall", r"alltoall\w*"),
    ("broadcast", r"broadcast\w*"),
    ("reduce", r"reduce\w*"),
    ("gather", r"gather\w*"),
    ("scatter", r"scatter\w*"),
)
_MOST_ELEMENTS = 2**58  # more do not fit into an Int64 as bytes
ROOTED = ("broadcast", "scatter", "reduce", "gather")
WAIT = "wait"
"""Name of a record that is no operation: it only waits for one."""

_Value = TypeVar("_Value")


def op_of(name: str) -> str:
    """Return the operation that a "Collective name" means, a member of `gapscope.schema.COMM_OP`, or WAIT.

    >>> [op_of(n) for n in ("_allgather_base", "reduce_scatter_tensor_coalesced", "all_to_allv", "recv", "wait", "x")]
    ['allgather', 'reducescatter', 'alltoall', 'recv', 'wait', 'other']
    """
    bare = re.sub(r"[^a-z0-9]", "", name.rsplit(":", 1)[-1].lower())
    if bare == WAIT:
        return WAIT
    return next((op for op, pattern in _OPS if re.fullmatch(pattern, bare)), "other")


def item_bytes(dtype: str) -> int | None:
    """Return the bytes of one element; None if the type is not known.

    >>> [item_bytes(t) for t in ("BFloat16", "c10::Half", "Long", "Float8_e4m3fn", "Undefined")]
    [2, 2, 8, 1, None]
    """
    bare = dtype.rsplit("::", 1)[-1].rsplit(".", 1)[-1].strip().lower()
    return 1 if bare.startswith("float8") else _ITEM_BYTES.get(bare)


def comms_of(frame: pl.DataFrame, texts: pl.Series, on_host: bool) -> pl.DataFrame:
    """Return rows of the table `comms`, without process, thread and times.

    Args:
        frame: Rows of ``record_param_comms``, or of kernels with its metadata.
        texts: The strings that the columns point to.
        on_host: True for ``record_param_comms``, whose ``Rank`` is the peer of a send or receive and the root, as a
            position in the group, of an operation that has one (torch, ProcessGroupNCCL.cpp).
    """
    of_name = _of_each(frame["collective"], texts, op_of)
    of_type = _of_each(frame["dtype"], texts, item_bytes)
    op = pl.col("collective").replace_strict(of_name, default=None, return_dtype=pl.String)
    received, sent = pl.coalesce("out_elements", "in_elements"), pl.coalesce("in_elements", "out_elements")
    moved = pl.when(op == "recv").then(received).otherwise(sent)
    item = pl.col("dtype").replace_strict(of_type, default=None, return_dtype=pl.Int64)
    named = pl.when(op == "send").then("dst_rank").when(op == "recv").then("src_rank")
    peer = pl.coalesce(named, pl.when(op.is_in(["send", "recv"])).then("peer_rank")) if on_host else pl.coalesce(named)
    root = pl.when(op.is_in(ROOTED)).then("peer_rank") if on_host else pl.lit(None, dtype=pl.Int64)
    return (
        frame.with_columns(
            op=op,
            root=pl.when(root >= 0).then(root),
            size_bytes=pl.when(moved.is_between(0, _MOST_ELEMENTS)).then(moved) * item,
            peer=pl.when(peer >= 0).then(peer),
            correlation=pl.lit(None, dtype=pl.Int64) if on_host else pl.col("correlation"),
            external_id=pl.col("external"),
            **{name: _text(frame[name], texts) for name in ("group", "group_ranks", "dtype")},
        )
        .filter(pl.col("op") != WAIT)
        .with_columns(pl.col("op").cast(COMM_OP))
    )


def _of_each(column: pl.Series, texts: pl.Series, function: Callable[[str], _Value]) -> Mapping[int, _Value]:
    return {k: function(texts[k]) for k in column.drop_nulls().unique().sort()}


def _text(column: pl.Series, texts: pl.Series) -> pl.Series:
    text = texts.gather(column.cast(pl.UInt32))
    return pl.select(pl.when(text != "").then(text)).to_series()

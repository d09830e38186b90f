"""What a CUDA or HIP API call does, by its name."""

from __future__ import annotations

import re

import polars as pl

from gapscope.schema import CALL_FAMILY

_SUFFIX = re.compile(r"(_ptsz|_ptds|_v\d+)+$")

# Asked in this order on the bare name: no `cuda`, `cu` or `hip` in front, no version suffix, lower case.
_FAMILIES = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("graph_launch", r"graphlaunch(_\w+)?"),
        (
            "launch",
            r"(ext)?(module)?launch(cooperative)?kernel\w*|launchcooperative\w*|launch(grid\w*)?|extlaunch\w*|modulelaunch\w*",
        ),
        ("memset", r"memset\w*"),
        (
            "memory",
            r"memcpy(to|from)symbolgetaddress|mem(pool|create|map|unmap|release|address|host|alloc|free|get|advise|range)\w*",
        ),
        (
            "memory",
            r"(malloc|free|hostalloc|hostregister|hostunregister|hostget|hostfree|ipcopenmem|ipcclosemem|ipcgetmem)\w*",
        ),
        ("memcpy", r"memcpy\w*|memprefetch\w*"),
        ("event_record", r"eventrecord\w*"),
        ("event_sync", r"eventsynchronize"),
        ("event_query", r"eventquery|streamquery"),
        ("stream_wait", r"streamwaitevent\w*"),
        ("stream_memop", r"stream(wait|write)value\w*|streambatchmemop\w*"),
        ("stream_sync", r"streamsynchronize"),
        ("device_sync", r"(device|ctx|thread)synchronize\w*"),
    )
)


def family_of(name: str) -> str:
    """Return the family of one API call, a member of `gapscope.schema.CALL_FAMILY`.

    >>> [family_of(n) for n in ("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "hipExtModuleLaunchKernel")]
    ['launch', 'launch', 'launch']
    >>> [family_of(n) for n in ("cudaGraphLaunch_v10000", "cuMemcpyDtoDAsync_v2", "cuStreamWaitValue32_v2")]
    ['graph_launch', 'memcpy', 'stream_memop']
    >>> [family_of(n) for n in ("cudaMemcpyAsync_ptsz_v7000", "cudaMallocAsync", "cudaFuncGetAttributes")]
    ['memcpy', 'memory', 'other']
    """
    bare = _SUFFIX.sub("", name)
    bare = re.sub(r"^(cuda|cu|hip)(?=[A-Z])", "", bare).lower()
    for family, pattern in _FAMILIES:
        if pattern.fullmatch(bare):
            return family
    return "other"


def families(names: pl.Series) -> pl.Series:
    """Return the families of a column of API names, one look at each distinct name."""
    distinct = names.unique().drop_nulls().cast(pl.String)
    family = pl.Series([family_of(n) for n in distinct], dtype=CALL_FAMILY)
    return (
        names.cast(pl.String)
        .replace_strict(distinct, family, default="other", return_dtype=CALL_FAMILY)
        .alias("family")
    )

"""Options about the recordings, as all commands that read some take them."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from gapscope.errors import UsageError
from gapscope.load import LoadOptions


class EngineName(StrEnum):
    """Where recordings are read."""

    local = "local"
    ray = "ray"


RankOf = Annotated[
    list[str] | None,
    typer.Option(
        "--rank-of", metavar="PID=RANK", help="Rank of a process whose recording does not tell it.", show_default=False
    ),
]
Job = Annotated[
    list[str] | None,
    typer.Option(
        "--job",
        metavar="NAME=PATH[,PATH]",
        help="Recordings of a named job, such as prefill and decode.",
        show_default=False,
    ),
]
Nsys = Annotated[
    str | None,
    typer.Option(
        "--nsys",
        metavar="PROGRAM",
        help="The nsys to export .nsys-rep files with; else GAPSCOPE_NSYS, PATH and the usual folders.",
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Where recordings are read: local, in this process; ray, on the nodes of a Ray cluster that have them.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="Ray cluster of --engine ray; else RAY_ADDRESS, one that runs on this machine, or one started for it.",
        show_default=False,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 if any file cannot be read.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep nothing on disk and use nothing kept.")]


def load_options(nsys: str | None, no_cache: bool, rank_of: list[str] | None, job: list[str] | None) -> LoadOptions:
    """Return what the options state.

    Raises:
        UsageError: One of them cannot be understood; the message says which.
    """
    return LoadOptions(nsys=nsys, use_cache=not no_cache, rank_of=_rank_of(rank_of or []), jobs=_jobs(job or []))


def with_engine(options: LoadOptions, engine: EngineName, ray_address: str | None) -> LoadOptions:
    """Return options with the engine.

    Raises:
        UsageError: An address is given to an engine that has none.
    """
    if ray_address is not None and engine is not EngineName.ray:
        raise UsageError(f"--ray-address {ray_address}: this is for --engine ray.")
    return replace(options, engine=engine.value, ray_address=ray_address)


def _rank_of(pairs: list[str]) -> dict[int, int]:
    out = {}
    for pair in pairs:
        pid, _, rank = pair.partition("=")
        if not (re.fullmatch("[0-9]{1,18}", pid) and re.fullmatch("[0-9]{1,9}", rank)):
            raise UsageError(f"--rank-of {pair}: give PID=RANK, two numbers.")
        out[int(pid)] = int(rank)
    return out


def _jobs(pairs: list[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, files = pair.partition("=")
        if not (name and equals and files):
            raise UsageError(f"--job {pair}: give NAME=PATH, or NAME=PATH,PATH.")
        out.setdefault(name, []).extend(files.split(","))
    return out

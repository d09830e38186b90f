"""Options about communication without marks, as all commands that find handoffs take them."""

from __future__ import annotations

from typing import Annotated

import typer

Unmarked = Annotated[
    bool,
    typer.Option(
        "--unmarked",
        help="Make handoffs of communication without marks, too; always done where there are no handoff marks.",
    ),
]
CommKernel = Annotated[
    list[str] | None,
    typer.Option(
        "--comm-kernel",
        metavar="REGEX",
        help="Name of a kernel that communicates and is no NCCL, such as a one-shot all-reduce: the k-th of each rank "
        "are one collective. Can be given several times.",
        show_default=False,
    ),
]

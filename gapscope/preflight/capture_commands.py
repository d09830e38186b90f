"""The exact capture commands: options for nsys by what it knows, and a snippet for torch.profiler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gapscope.preflight.answers import SETTING
from gapscope.preflight.nsys_ability import NsysAbility

TRACED = "cuda,nvtx"
_OPTIONS = (
    ("backtrace_none", ("-b", "none")),
    ("cpuctxsw_none", ("--cpuctxsw=none",)),
    ("graph_nodes", ("--cuda-graph-trace=node",)),
    ("event_trace", ("--cuda-event-trace=true",)),
)
_RESOLVE = "resolve-symbols"
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def nsys_options(options: frozenset[str]) -> list[str]:
    """Return the options of ``nsys profile`` that record all answers at the least cost.

    Args:
        options: Long names that the nsys knows; empty: only what every version knows.

    >>> nsys_options(frozenset({"cpuctxsw", "cuda-graph-trace"}))
    ['-t', 'cuda,nvtx', '-s', 'none', '--cpuctxsw=none', '--cuda-graph-trace=node']
    """
    out = ["-t", TRACED, "-s", "none"]
    for key, words in _OPTIONS:
        if SETTING[key].known_as in options:
            out += words
    return [*out, f"--{_RESOLVE}=false"] if _RESOLVE in options else out


def nsys_command(ability: NsysAbility, output: str, job: Sequence[str]) -> list[str]:
    """Return the command that records a job.

    Args:
        ability: The nsys.
        output: Path of the report without its ending.
        job: Command of the job.
    """
    return [ability.nsys.path, "profile", *nsys_options(ability.options), "-o", output, *job]


def shown(command: Sequence[str], **environment: str) -> str:
    """Return a command as a line for a shell.

    >>> shown(["python", "my job.py"], GAPSCOPE="1")
    "GAPSCOPE=1 python 'my job.py'"
    """
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(command)])


def folded(line: str, width: int) -> str:
    r"""Return a line for a shell in lines of about a width, each but the last with a backslash at its end.

    >>> print(folded("GAPSCOPE=1 nsys profile -o 'my trace' python train.py", 30))
    GAPSCOPE=1 nsys profile -o \
      'my trace' python train.py
    """
    lines = [""]
    for word in _WORD.findall(line):
        if lines[-1].strip() and len(lines[-1]) + len(word) > width:
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def torch_snippet(*, cuda: bool, sync_events: bool) -> str:
    """Return Python code that records a part of a job with torch.profiler.

    Args:
        cuda: The job uses a GPU.
        sync_events: This torch knows ``enable_cuda_sync_events``.
    """
    events = cuda and sync_events
    head = ["# run the job with GAPSCOPE=1 in its environment", "import os"]
    if events:
        head.append("from torch._C._profiler import _ExperimentalConfig")
    head.append("from torch.profiler import ProfilerActivity, profile")
    activities = "ProfilerActivity.CPU, ProfilerActivity.CUDA" if cuda else "ProfilerActivity.CPU"
    call = [f"    activities=[{activities}],"]
    if events:
        call.append("    experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),")
    return "\n".join(
        [
            *head,
            "",
            "with profile(",
            *call,
            ") as recording:",
            "    ...  # the steps to look at, on every rank",
            "recording.export_chrome_trace(f\"rank{os.environ.get('RANK', 0)}.json\")",
        ]
    )

"""Which tool records a job, and the command for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gapscope.errors import UsageError
from gapscope.preflight.capture_commands import nsys_command
from gapscope.preflight.job_python import JobPython, nvtx_is_heard
from gapscope.preflight.nsys_ability import NsysAbility
from gapscope.recording.environment import job_environment
from gapscope.recording.folder import RecordingFolder


class Tool(StrEnum):
    """What records the job."""

    auto = "auto"
    nsys = "nsys"
    torch = "torch"
    marks = "marks"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job is recorded.

    Attributes:
        tool: What records it; never ``auto``.
        command: What is run.
        environment: All variables of it.
        notes: What the user should know before it starts.
    """

    tool: Tool
    command: list[str]
    environment: dict[str, str]
    notes: list[str]


def plan(  # noqa: PLR0917 - the user's wishes, then what there is
    job: Sequence[str],
    folder: RecordingFolder,
    wanted: Tool,
    ability: NsysAbility | None,
    why_no_nsys: str,
    python: JobPython | None,
    environment: Mapping[str, str],
    *,
    attach: Sequence[str] = (),
    steps: str | None = None,
) -> Plan:
    """Return how to record a job.

    Args:
        job: Its command.
        folder: Where recordings go.
        wanted: The tool that the user asks for.
        ability: The nsys that was found; None: there is none.
        why_no_nsys: Why there is none.
        python: What the job's interpreter has; None: not known.
        environment: Variables to start from.
        attach: Adapters to attach.
        steps: Steps to record, where the tool can (``a:b``).

    Raises:
        UsageError: The tool that was asked for is not there.
    """
    tool, notes = _choose(wanted, ability, why_no_nsys, python)
    variables = job_environment(
        environment,
        folder.marks,
        torch=folder.torch if tool is Tool.torch else None,
        attach=attach,
        steps=steps,
    )
    if tool is not Tool.nsys or ability is None:
        return Plan(tool, list(job), variables, notes)
    if steps is not None:
        notes.append(f"nsys records the whole job; the analysis takes steps {steps} of it.")
    return Plan(tool, nsys_command(ability, _literal(folder.report), job), variables, notes)


def _literal(output: Path) -> str:
    """Return a path as nsys takes it for ``-o``, where a percent sign begins a pattern."""
    return str(output.absolute()).replace("%", "%%")


def _choose(
    wanted: Tool, ability: NsysAbility | None, why_no_nsys: str, python: JobPython | None
) -> tuple[Tool, list[str]]:
    heard = None if ability is None or python is None else nvtx_is_heard(python.nvtx, ability.nsys.version)
    has_torch = python is None or python.torch_records
    if wanted is Tool.nsys:
        if ability is None:
            raise UsageError(
                f"--tool nsys: there is no nsys ({why_no_nsys}). Name one with --nsys, or use --tool torch."
            )
        return Tool.nsys, [_unheard(ability, python)] if heard is False else []
    if wanted is Tool.torch:
        return Tool.torch, [] if has_torch else [
            "the job's Python has no torch as far as is seen; the mark log is written anyway."
        ]
    if wanted is Tool.marks:
        return Tool.marks, ["only the marks are recorded: times are the host's."]
    if ability is not None and (heard is not False or not has_torch):
        return Tool.nsys, [_unheard(ability, python)] if heard is False else []
    if has_torch:
        why = f"no nsys ({why_no_nsys})" if ability is None else f"{_unheard(ability, python)} --tool nsys insists"
        return Tool.torch, [f"torch.profiler records, per rank: {why.rstrip('.')}."]
    return Tool.marks, [f"only the marks are recorded: no nsys ({why_no_nsys}), and no torch in the job's Python."]


def _unheard(ability: NsysAbility, python: JobPython | None) -> str:
    version = None if python is None else python.nvtx
    if version is None:
        return "the job's Python has no nvtx package, so a report of nsys holds no marks (pip install nvtx)."
    return (
        f"judged by the versions, nsys {ability.nsys.text} records no marks of nvtx {version} "
        "(pip install nvtx==0.2.11, or a newer Nsight Systems)."
    )

"""Checks a command that the user wants to record with, whichever tool is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gapscope.errors import UsageError
from gapscope.preflight.capture_commands import nsys_options, shown
from gapscope.preflight.nsys_ability import find_ability
from gapscope.preflight.nsys_command_check import Missing, NsysCommand, disabling, missing_in, parse_nsys
from gapscope.preflight.torch_script_check import profiler_calls

_REPLACED = frozenset(
    ("trace", "sample", "backtrace", "cpuctxsw", "cuda-graph-trace", "cuda-event-trace", "resolve-symbols", "output")
)


@dataclass(frozen=True, slots=True)
class CheckedCommand:
    """What a command costs.

    Attributes:
        words: The command.
        tool: ``nsys``, ``torch``, or empty: neither is seen in it.
        missing: Settings that it lacks, and what they cost.
        records_nothing: With it, no handoff can be recorded: neither marks nor GPU work.
        verdict: What it comes to, in one sentence.
        better: The command with all answers; empty: it has them, or there is none to write.
    """

    words: list[str]
    tool: str
    missing: list[Missing]
    records_nothing: bool
    verdict: str
    better: str


def check_command(words: Sequence[str], nsys: str | None = None) -> CheckedCommand:
    """Check a command with ``nsys profile``, or a Python script that calls torch.profiler.

    Args:
        words: The command.
        nsys: The nsys to ask for its options; None: the one in the command, else it is looked for.

    Raises:
        UsageError: It is another command of nsys than a capture.
    """
    parsed = parse_nsys(words)
    if parsed is not None:
        return _nsys(list(words), parsed, nsys)
    return _torch(list(words))


def _nsys(words: list[str], command: NsysCommand, wanted: str | None) -> CheckedCommand:
    named = wanted or (command.nsys if "/" in command.nsys else None)
    ability, _ = find_ability(named)
    known = frozenset[str]() if ability is None else ability.options
    missing = disabling(command.before) + missing_in(command, known)
    nothing = not command.traced & {"cuda", "nvtx"}
    sure = [m for m in missing if m.surely]
    if nothing:
        verdict = "It records no handoff at all: neither marks (nvtx) nor GPU work (cuda)."
    elif sure:
        verdict = f"It records handoffs without some answers: {len(sure)} settings are missing or cost something."
    else:
        verdict = "It records all answers that nsys can give" + (", if the conditions below hold." if missing else ".")
    by_default = [m for m in missing if m.setting.key not in {"fork", "capture_range_end"}]
    return CheckedCommand(words, "nsys", missing, nothing, verdict, _better(command, known) if by_default else "")


def _better(command: NsysCommand, known: frozenset[str]) -> str:
    """Return the command with the settings that answers need; options of the user that do no harm stay."""
    per_rank = any(m.setting.key == "output_per_rank" for m in missing_in(command, known))
    output = "trace-%q{RANK}" if per_rank else command.options.get("output", "trace")
    ours = nsys_options(known)
    extra = sorted(command.traced - {"cuda", "nvtx", "osrt", "opengl", "none"}) if "trace" in command.options else []
    ours[1] = ",".join(["cuda,nvtx", *extra])
    kept = [
        _written(n, v) for n, v in command.options.items() if n not in _REPLACED and not n.startswith("nvtx-domain")
    ]
    if "capture-range" in command.options:
        kept = [w for w in kept if not w.startswith("--capture-range-end")]
        end = command.options.get("capture-range-end", "")
        kept.append("--capture-range-end=" + (end if end and "shutdown" not in end else "stop"))
    before = [
        w
        for w in command.before
        if w.partition("=")[0] not in {"NVTX_DISABLE", "NCCL_NVTX_DISABLE", "CUDA_LAUNCH_BLOCKING"}
    ]
    variables = [w for w in before if "=" in w and not w.startswith("-")]
    if not any(w.startswith("GAPSCOPE=") for w in variables):
        before = ["GAPSCOPE=1", *before]
    return shown([*before, command.nsys, "profile", *ours, *kept, "-o", output, *command.job])


def _written(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


def _torch(words: list[str]) -> CheckedCommand:
    script = next((Path(w) for w in words if w.endswith(".py") and Path(w).is_file()), None)
    calls = [] if script is None else profiler_calls(script)
    if not calls:
        where = f"in {script}" if script is not None else "in the command"
        if script is None and not any(w.endswith(".py") for w in words):
            raise UsageError(
                f"{shown(words)}: neither nsys nor a Python script is in it. Give the whole command, such as: "
                "nsys profile -t cuda,nvtx python train.py"
            )
        verdict = f"It captures nothing by itself: no nsys, and no call of torch.profiler seen {where}."
        better = shown(["gapscope", "record", "--", *words])
        return CheckedCommand(words, "", [], False, verdict, better)
    missing = list({m.setting.key: m for call in calls for m in call.missing}.values())
    lines = ", ".join(str(c.line) for c in calls)
    verdict = f"It records with torch.profiler ({script}, line {lines})"
    verdict += ": these settings cost answers." if missing else ", with all settings that answers need."
    blind = all(any(m.setting.key == "activity_cpu" for m in c.missing) for c in calls)
    return CheckedCommand(words, "torch", missing, blind, verdict, "")

"""Finds calls of torch.profiler in a script of the user and tells what their settings cost."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from gapscope.preflight.answers import SETTING
from gapscope.preflight.nsys_command_check import Missing


@dataclass(frozen=True, slots=True)
class ProfilerCall:
    """A call of ``torch.profiler.profile`` in a script.

    Attributes:
        line: Where it stands.
        missing: Settings that it lacks; where a setting is computed in the script, nothing is said about it.
    """

    line: int
    missing: list[Missing]


def profiler_calls(script: Path) -> list[ProfilerCall]:
    """Return the calls of ``profile`` in a script, in order; none if it cannot be read as Python."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_profile(node.func, tree)]
    return [ProfilerCall(c.lineno, _missing(c)) for c in sorted(calls, key=lambda c: c.lineno)]


def _is_profile(function: ast.expr, tree: ast.Module) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "profile" and "profiler" in ast.unparse(function.value)
    if not isinstance(function, ast.Name):
        return False
    imports = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "torch.profiler")
    return any(
        (name.asname or name.name) == function.id and name.name == "profile" for n in imports for name in n.names
    )


def _missing(call: ast.Call) -> list[Missing]:
    given = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg}
    if any(k.arg is None for k in call.keywords):
        return []  # **settings: nobody knows from here
    if call.args:
        given.setdefault("activities", ast.unparse(call.args[0]))
    out = []
    activities = given.get("activities")
    if activities is not None and "ProfilerActivity" in activities:  # without the argument torch takes all there are
        found = f"activities={activities}"
        if "ProfilerActivity.CPU" not in activities:
            out.append(Missing(SETTING["activity_cpu"], found, True))
        if "ProfilerActivity.CUDA" not in activities:
            out.append(Missing(SETTING["activity_cuda"], found, False))
    config = given.get("experimental_config")
    if config is None or ("_ExperimentalConfig(" in config and "enable_cuda_sync_events=True" not in config):
        out.append(Missing(SETTING["sync_events"], f"experimental_config={config}" if config else "not said", False))
    for key, name in (("no_stack", "with_stack"), ("no_shapes", "record_shapes")):
        if given.get(name) == "True":
            out.append(Missing(SETTING[key], f"{name}=True", True))
    return out

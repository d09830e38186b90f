"""The environment of a job that is recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gapscope_instrumentation import contract

SITE = Path(contract.__file__).with_name("on_start")
"""Folder of the instrumentation with the ``sitecustomize.py`` that switches marks on in each Python of the job."""

_OURS = ("GAPSCOPE_TORCH_PROFILE", "GAPSCOPE_TORCH_PROFILE_STEPS", "GAPSCOPE_ATTACH")


def instrumented(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which each Python imports the instrumentation at its start.

    Args:
        environment: The one to start from.
    """
    before = [e for e in environment.get("PYTHONPATH", "").split(os.pathsep) if e and e != str(SITE)]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(SITE), *before])}


def job_environment(
    environment: Mapping[str, str],
    marks: Path,
    *,
    torch: Path | None = None,
    attach: Sequence[str] = (),
    steps: str | None = None,
) -> dict[str, str]:
    """Return the environment of a job whose marks are on.

    Args:
        environment: The one to start from.
        marks: Folder of the mark logs.
        torch: Folder of torch.profiler recordings, one per rank; None: torch's profiler is left alone.
        attach: Adapters to attach (`gapscope_instrumentation.adapters`).
        steps: Steps that torch.profiler records, ``a:b``; None: all.
    """
    out = {name: value for name, value in instrumented(environment).items() if name not in _OURS}
    out |= {"GAPSCOPE": "1", "GAPSCOPE_DIR": str(marks.absolute())}
    if attach:
        out["GAPSCOPE_ATTACH"] = ",".join(attach)
    if torch is not None:
        out["GAPSCOPE_TORCH_PROFILE"] = str(torch.absolute())
        if steps is not None:
            out["GAPSCOPE_TORCH_PROFILE_STEPS"] = steps
    return out

"""Tries it: a tiny job with two marks under nsys, and what the analyzer reads from the report."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.load import LoadOptions, load
from gapscope.preflight.nsys_ability import NsysAbility

MARKS_SET = 2
_SECONDS = 120
_JOB = Path(__file__).with_name("probe_job.py")


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it.

    Attributes:
        marks: Marks that the analyzer read from the report, of `MARKS_SET`; None: there was no report to read.
        said: What the instrumentation said about NVTX.
        failed: What went wrong, in one sentence; empty: nothing.
    """

    marks: int | None
    said: str
    failed: str = ""

    @property
    def works(self) -> bool:
        """All marks arrived."""
        return self.marks == MARKS_SET


def probe(ability: NsysAbility, python: str, environment: Mapping[str, str]) -> Probe:
    """Record two marks with nsys and read them back; takes some seconds.

    Args:
        ability: The nsys.
        python: The interpreter of the job.
        environment: What makes that interpreter import the instrumentation (`gapscope.recording.environment`).
    """
    with tempfile.TemporaryDirectory(prefix="gapscope-probe-") as name:
        folder = Path(name)
        own = {"GAPSCOPE": "1", "GAPSCOPE_LOG": "off", "GAPSCOPE_NVTX": "compact", "PYTHONWARNINGS": "ignore"}
        others = {k: v for k, v in environment.items() if not k.startswith("GAPSCOPE_")}
        options = ["-t", "nvtx", "-s", "none", *(["--cpuctxsw=none"] if "cpuctxsw" in ability.options else [])]
        said, report = folder / "status.json", folder / "probe.nsys-rep"
        command = [ability.nsys.path, "profile", *options, "-o", str(folder / "probe"), python, str(_JOB), str(said)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=others | own,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probe(None, "", f"nsys profile cannot be run ({error})")
        heard = _said(said)
        if not report.exists():
            return Probe(None, heard, _why_no_report(done, folder, heard))
        try:
            trace = load([report], LoadOptions(nsys=ability.nsys.path, use_cache=False))
        except GapscopeError as error:
            return Probe(None, heard, str(error))
        return Probe(trace.marks.height, heard)


def _said(path: Path) -> str:
    try:
        status: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return status.get("nvtx", "")


def _why_no_report(done: subprocess.CompletedProcess[str], folder: Path, heard: str) -> str:
    if any(folder.glob("*.qdstrm")):
        return "nsys wrote a .qdstrm, but has no importer (QdstrmImporter) to make a report of it"
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    words = " ".join(lines[-2:]) or "without a word"
    job = "" if heard else "; the job itself did not finish"
    return f"nsys wrote no report (exit status {done.returncode}: {words}){job}"

"""Runs the cases of an input, round by round, and keeps each run at once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.performance import measure, records
from benchmarks.performance.cases import PROGRAMS, WAYS, Places, Way, shown
from benchmarks.performance.inputs import INPUTS, Input


class OutOfTimeError(Exception):
    """The budget does not allow another run."""


@dataclass
class Runner:
    """What all runs share.

    Attributes:
        places: Where files and programs are.
        work: Folder for caches and outputs, on the disk of the files.
        path: The file that every run is appended to.
        peers: Versions of what the peers' Python has.
        budget_s: Seconds for everything; a run that is known to take longer than what is left is not begun.
        limit_s: Seconds after which a process is ended.
    """

    places: Places
    work: Path
    path: Path = records.FILE
    peers: Mapping[str, str] = field(default_factory=dict)
    budget_s: float = float("inf")
    limit_s: float = 1200.0
    began: float = field(default_factory=time.monotonic)

    def run(self, wanted: Input, ways: Sequence[Way], rounds: int) -> None:
        """Measure ways to work on an input, in turns, ``rounds`` times each; what the series has counts.

        Raises:
            OutOfTimeError: The budget is used up.
        """
        failed: set[str] = set()
        for number in range(rounds):
            ready: set[str] = set()
            for folder in self.work.glob("cache-*"):
                shutil.rmtree(folder)
            for way in ways:
                case = f"{wanted.name}/{way.name}"
                done = len(records.arrange(records.read(self.path)).series[-1].runs.get(case, []))
                if way.name in failed or done > number or (way.once and done):
                    continue
                reason = self._missing(way)
                if reason is None and way.fills and way.fills not in ready:
                    filled = way.fills not in failed and self._fill(wanted, way)
                    ready |= {way.fills} if filled else set()
                    reason = None if filled else "it stands on a run that failed"
                if reason is not None:
                    self._absent(case, reason)
                    failed.add(way.name)
                    continue
                if self._measure(wanted, way, number):
                    ready.add(way.name)
                else:
                    failed.add(way.name)

    def _missing(self, way: Way) -> str | None:
        if way.needs and way.needs not in self.peers:
            return f"{way.needs} is not installed"
        if "{engine}" in way.command and not (Path(self.places.engine) / "trace_processor.wasm").exists():
            return "no trace processor"
        if way.command.startswith("node ") and not shutil.which("node"):
            return "no node"
        return None

    def warm_up(self, wanted: Input) -> None:
        """Run gapscope once, unmeasured, so that all is compiled; on a smaller input where there is one."""
        small = INPUTS[{"torch": "torch_50MB", "nsys": "nsys_0.5M"}[wanted.kind]]
        there = all(path.exists() for path in small.paths(self.places.files))
        self._process(small if there else wanted, WAYS[small.name][0])

    def _fill(self, wanted: Input, way: Way) -> bool:
        """Run the way that fills the cache of another, without counting it; tell if it could be run."""
        (before,) = [one for one in WAYS[wanted.name] if one.name == way.fills]
        self._check_budget(f"{wanted.name}/{before.name}")
        print(f"{wanted.name}/{before.name}: not measured, fills the cache", file=sys.stderr, flush=True)
        return any(self._process(wanted, before).code == 0 for _ in range(before.attempts))

    def _measure(self, wanted: Input, way: Way, number: int) -> bool:
        """Run a way and keep what it took; False if it cannot be run."""
        case = f"{wanted.name}/{way.name}"
        reason = ""
        for attempt in range(1, way.attempts + 1):
            self._check_budget(case)
            load = os.getloadavg()[0]
            got = self._process(wanted, way)
            found = _found(got.out) if got.code == 0 else None
            if found is not None:
                run = {
                    "kind": "run",
                    "case": case,
                    "date": records.now(),
                    "round": number,
                    "attempt": attempt,
                    "seconds": round(got.seconds, 3),
                    "cpu_seconds": round(got.cpu_seconds, 2),
                    "peak_bytes": got.peak_bytes,
                    "processes": got.processes,
                    "load_before": round(load, 2),
                    "found": found or self._summary(),
                    "command": shown(way, wanted.files),
                }
                records.append(self.path, run)
                print(
                    f"{case}: {got.seconds:.2f} s, {got.peak_bytes / 1e6:,.0f} MB, {run['found']}",
                    file=sys.stderr,
                    flush=True,
                )
                return True
            if got.code is None and self._left() <= 1:
                raise OutOfTimeError(f"{case} was not over when the budget was used up")
            lines = got.err.strip().splitlines()
            said = _without_places(lines[-1])[:160] if lines else f"exit {got.code}"
            reason = f"ended after {self.limit_s:,.0f} s" if got.code is None else said
            print(f"{case}: attempt {attempt} failed: {reason}", file=sys.stderr, flush=True)
        self._absent(case, reason if way.attempts == 1 else f"{way.attempts} attempts, the last one: {reason}")
        return False

    def _process(self, wanted: Input, way: Way) -> measure.Measured:
        cache = self.work / f"cache-{way.fills or way.name}"
        out = self.work / "out"
        if not way.fills:
            shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        paths = wanted.paths(self.places.files)
        measure.warm(paths)
        env = {**os.environ, "GAPSCOPE_CACHE": str(cache), "COLUMNS": "200"}
        with _daemons(way, env) as mark:
            return measure.measure(self.places.words(way, paths, out, cache), env, self._left(), mark)

    def _summary(self) -> dict[str, object]:
        """Return what gapscope says that it found, from the file that it wrote."""
        path = self.work / "out" / "summary.json"
        if not path.exists():
            return {}
        summary = json.loads(path.read_text())
        return {"handoffs": summary["handoffs"]["total"], "edges": len(summary["edges"])}

    def _absent(self, case: str, reason: str) -> None:
        print(f"{case}: not run: {reason}", file=sys.stderr, flush=True)
        records.append(self.path, {"kind": "absent", "case": case, "date": records.now(), "reason": reason})

    def _left(self) -> float:
        return max(min(self.limit_s, self.budget_s - (time.monotonic() - self.began)), 1.0)

    def _check_budget(self, case: str) -> None:
        left = self.budget_s - (time.monotonic() - self.began)
        known = [
            run["seconds"] for one in records.arrange(records.read(self.path)).series for run in one.runs.get(case, [])
        ]
        if left <= (known[-1] if known else 0.0):
            raise OutOfTimeError(f"{left:,.0f} s are left, and {case} took {known[-1] if known else 0:,.0f} s")


def _without_places(text: str) -> str:
    """Return a message without the folders of this machine: of paths and addresses the last part stays."""
    return re.sub(r"(?:\w+:/)?(?:/[\w.+@-]+)*/(?=[\w.+@-])", "", text)


def _found(out: str) -> dict[str, object] | None:
    """Return the JSON that a program printed last; empty for gapscope's own report, None if there is no output."""
    lines = out.strip().splitlines()
    if not lines:
        return None
    with contextlib.suppress(ValueError):
        found = json.loads(lines[-1])
        if isinstance(found, dict):
            return found
    return {}


@contextlib.contextmanager
def _daemons(way: Way, env: dict[str, str]) -> Iterator[str | None]:
    """Have the cluster of a way up; yield the mark of its processes."""
    if way.daemons is None:
        yield None
        return
    mark = os.urandom(8).hex()
    command = [sys.executable, str(PROGRAMS / way.daemons)]
    process = subprocess.Popen(
        command,
        env={**env, measure.MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        env["RAY_ADDRESS"] = process.stdout.readline().strip()
        yield mark
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()

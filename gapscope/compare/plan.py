"""A study as a file (TOML): which runs belong to which arm, and what was decided before looking.

    base = "copy engine"             # what the other arms are compared with; else the first
    primary = "step"                 # as reports write it; else request, latency, step or gap
    margin = "2%"
    noise = [["aa/1", "aa/2"]]       # pairs of runs of the base arm, for the noise floor
    order = ["copy engine", "mailbox", "mailbox", "copy engine"]

    [[arm]]
    name = "copy engine"
    label = "peer copies, one stream"
    runs = ["copy/*"]                # each match is one start of the job

    [[arm]]
    name = "mailbox"
    runs = ["mailbox/1", { path = ["mailbox/2/r0.json.gz", "mailbox/2/r1.json.gz"], latencies = "mailbox/2.json" }]

    [sweep]
    parameter = "size_bytes"         # a number of each run, or else of each handoff
    metric = "movement"

Paths are relative to the file.
"""

from __future__ import annotations

import glob
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from gapscope.compare.comparing import Settings
from gapscope.compare.margin import parse_margin
from gapscope.errors import UsageError

_KEYS = ("title", "base", "primary", "margin", "confidence", "noise", "order", "arm", "sweep")
_ARM_KEYS = ("name", "label", "runs")
_SWEEP_KEYS = ("parameter", "metric")
_RUN_TEXTS = ("path", "name", "latencies")
_FEWEST_ARMS = 2


@dataclass(frozen=True)
class RunPlan:
    """One start of the job.

    Attributes:
        paths: A folder of results, or the recordings of the run.
        name: How it is called in reports.
        latencies: File with records of a load generator; None: there is none.
        parameters: Numbers that a sweep can go by.
        place: Its place among all starts of the study, from 0; None: the file does not say.
    """

    paths: tuple[str, ...]
    name: str
    latencies: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    place: int | None = None


@dataclass(frozen=True)
class ArmPlan:
    """Runs of one variant.

    Attributes:
        name: How it is called in reports.
        label: What it is, in words; may be empty.
        runs: Its runs, in order.
    """

    name: str
    label: str
    runs: tuple[RunPlan, ...]


@dataclass(frozen=True)
class SweepPlan:
    """What a study goes over.

    Attributes:
        parameter: Name of a number of each run, or ``size_bytes`` of each handoff.
        metric: ``gap``, a phase, ``step``, ``request``, a latency, or a metric as reports write it.
    """

    parameter: str
    metric: str


@dataclass(frozen=True)
class StudyPlan:
    """A study as its file says.

    Attributes:
        path: The file.
        title: What it is about; may be empty.
        arms: The arms, the base first.
        settings: What was decided before looking.
        noise: Pairs of runs of the base arm.
        order: Names of arms in the order in which the runs were started; empty: the file does not say.
        sweep: What it goes over; None: nothing.
    """

    path: str
    title: str
    arms: tuple[ArmPlan, ...]
    settings: Settings
    noise: tuple[tuple[RunPlan, RunPlan], ...]
    order: tuple[str, ...]
    sweep: SweepPlan | None


def read_plan(path: str | PathLike[str]) -> StudyPlan:
    """Return what a study's file says.

    Args:
        path: The file.

    Raises:
        UsageError: It cannot be read, or says something that is none; the message names file and key.
    """
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: is no TOML: {error}. See the page on compare for how such a file looks.") from error
    return _Reader(file).plan(content)


class _Reader:
    """Reads one file; its errors name it and the key."""

    def __init__(self, file: Path) -> None:
        self.file, self.folder = file, file.parent

    def plan(self, content: Mapping[str, Any]) -> StudyPlan:
        self._only(content, _KEYS, "")
        tables = content.get("arm", [])
        if not isinstance(tables, list) or len(tables) < _FEWEST_ARMS or not all(isinstance(t, dict) for t in tables):
            raise self._error("arm", "two or more tables [[arm]] are needed, each with name and runs")
        arms = [self._arm(table, place) for place, table in enumerate(tables, 1)]
        names = [arm.name for arm in arms]
        if again := sorted({name for name in names if names.count(name) > 1}):
            raise self._error("arm.name", f"{again[0]!r} stands twice; give each arm a name of its own")
        base = self._text(content, "base", names[0])
        if base not in names:
            raise self._error("base", f"there is no arm {base!r}: {', '.join(names)}")
        order = self._order(content, arms)
        arms = [_placed(arm, order) for arm in arms]
        arms.sort(key=lambda arm: arm.name != base)
        noise = tuple(self._noise(pair, i) for i, pair in enumerate(self._list(content, "noise")))
        return StudyPlan(
            str(self.file), self._text(content, "title", ""), tuple(arms), self._settings(content), noise, order,
            self._sweep(content.get("sweep")),
        )  # fmt: skip

    def _settings(self, content: Mapping[str, Any]) -> Settings:
        margin: tuple[float | None, float | None] = None, None
        if "margin" in content:
            try:
                margin = parse_margin(self._text(content, "margin", ""))
            except UsageError as error:
                raise self._error("margin", str(error).rstrip(".")) from error
        confidence = content.get("confidence", Settings().confidence)
        if not isinstance(confidence, float) or not 0.5 <= confidence < 1:
            raise self._error("confidence", f"{confidence!r} is none; give a share such as 0.95")
        primary = self._text(content, "primary", "")
        return Settings(primary or None, *margin, confidence=confidence)

    def _arm(self, table: Mapping[str, Any], place: int) -> ArmPlan:
        where = f"arm {place}"
        self._only(table, _ARM_KEYS, where)
        name = self._text(table, "name", "", where)
        if not name:
            raise self._error(f"{where}.name", "is missing; say how reports call it")
        where = f"arm {name!r}"
        runs = [run for entry in self._list(table, "runs", where) for run in self._runs(entry, f"{where}.runs")]
        if not runs:
            raise self._error(f"{where}.runs", "is missing or empty; list one start of the job at least")
        return ArmPlan(name, self._text(table, "label", "", where), tuple(runs))

    def _runs(self, entry: object, where: str) -> list[RunPlan]:
        """Return the runs of one entry: of a text with a pattern one per match, of a table one."""
        if isinstance(entry, str) and entry:
            if "," not in entry and self._is_pattern(entry):
                return [RunPlan((match,), self._name(match)) for match in self._matches(entry, where)]
            return [RunPlan(tuple(self._path(part, where) for part in entry.split(",") if part), entry)]
        if not isinstance(entry, dict):
            raise self._error(where, f"{entry!r} is no run; give a path, or a table with path")
        paths = entry.get("path")
        given = [paths] if isinstance(paths, str) else paths
        if not isinstance(given, list) or not given or not all(isinstance(p, str) and p for p in given):
            raise self._error(f"{where}.path", "is missing; give the path of the run, or a list of its recordings")
        found = [match for p in given for match in self._files(p, where)]
        latencies = entry.get("latencies")
        if latencies is not None:
            if not isinstance(latencies, str):
                raise self._error(f"{where}.latencies", f"{latencies!r} is no path of a file")
            latencies = self._path(latencies, f"{where}.latencies")
        numbers = {key: self._number(value, f"{where}.{key}") for key, value in entry.items() if key not in _RUN_TEXTS}
        name = entry.get("name", ",".join(given))
        if not isinstance(name, str):
            raise self._error(f"{where}.name", f"{name!r} is no text")
        return [RunPlan(tuple(found), name, latencies, numbers)]

    def _is_pattern(self, text: str) -> bool:
        """Tell whether a text is a pattern; one that names a file or folder as it stands is none."""
        return glob.has_magic(text) and not (self.folder / text).exists()

    def _files(self, pattern: str, where: str) -> list[str]:
        return self._matches(pattern, where) if self._is_pattern(pattern) else [self._path(pattern, where)]

    def _matches(self, pattern: str, where: str) -> list[str]:
        found = sorted(glob.glob(str(self.folder / pattern), recursive=True), key=_natural)  # noqa: PTH207 - absolute too
        if not found:
            raise self._error(where, f"{pattern!r} matches nothing in {self.folder.resolve()}")
        return found

    def _path(self, text: str, where: str) -> str:
        path = self.folder / text
        if not path.exists():
            raise self._error(where, f"{text!r} does not exist in {self.folder.resolve()}")
        return str(path)

    def _name(self, match: str) -> str:
        path = Path(match)
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else match

    def _noise(self, pair: object, place: int) -> tuple[RunPlan, RunPlan]:
        where = f"noise[{place}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise self._error(where, f"{pair!r} is no pair; give two runs of the base arm, as [['aa/1', 'aa/2']]")
        one, two = (self._runs(entry, where) for entry in pair)
        if len(one) != 1 or len(two) != 1:
            raise self._error(where, "a pattern stands for several runs; name the two of each pair")
        return one[0], two[0]

    def _order(self, content: Mapping[str, Any], arms: Sequence[ArmPlan]) -> tuple[str, ...]:
        order = self._list(content, "order")
        for arm in arms if order else []:
            if order.count(arm.name) != len(arm.runs):
                raise self._error(
                    "order", f"{arm.name!r} has {len(arm.runs)} runs and stands {order.count(arm.name)} times; name "
                    "the arm of every start of the job, in the order in which they ran"
                )  # fmt: skip
        if others := [name for name in order if name not in {arm.name for arm in arms}]:
            raise self._error("order", f"there is no arm {others[0]!r}")
        return tuple(order)

    def _sweep(self, table: object) -> SweepPlan | None:
        if table is None:
            return None
        if not isinstance(table, dict):
            raise self._error("sweep", "is no table; write [sweep] with parameter")
        self._only(table, _SWEEP_KEYS, "sweep")
        parameter = self._text(table, "parameter", "", "sweep")
        if not parameter:
            raise self._error("sweep.parameter", "is missing; name a number of each run, or size_bytes")
        return SweepPlan(parameter, self._text(table, "metric", "gap", "sweep"))

    def _text(self, table: Mapping[str, Any], key: str, default: str, where: str = "") -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self._error(f"{where}.{key}".lstrip("."), f"{value!r} is no text; put it in quotes")
        return value

    def _list(self, table: Mapping[str, Any], key: str, where: str = "") -> list[Any]:
        value = table.get(key, [])
        if not isinstance(value, list):
            raise self._error(f"{where}.{key}".lstrip("."), f"{value!r} is no list; put it in [ ]")
        return value

    def _number(self, value: object, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._error(where, f"{value!r} is no number; beside {', '.join(_RUN_TEXTS)} a run has numbers only")
        return float(value)

    def _only(self, table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
        if others := [key for key in table if key not in known]:
            raise self._error(f"{where}.{others[0]}".lstrip("."), f"is not known; there are {', '.join(known)}")

    def _error(self, key: str, found: str) -> UsageError:
        return UsageError(f"{self.file}: {key}: {found}.")


def _placed(arm: ArmPlan, order: Sequence[str]) -> ArmPlan:
    """Return an arm whose runs know their place among all."""
    places: list[int | None] = [place for place, name in enumerate(order) if name == arm.name]
    places = places or [None] * len(arm.runs)
    runs = (
        RunPlan(run.paths, run.name, run.latencies, run.parameters, place)
        for run, place in zip(arm.runs, places, strict=True)
    )
    return ArmPlan(arm.name, arm.label, tuple(runs))


def _natural(path: str) -> list[tuple[int, str]]:
    """Return what sorts run10 behind run9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]

"""All checks of an environment, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gapscope.preflight.answers import SETTING
from gapscope.preflight.capture_commands import nsys_command, shown, torch_snippet
from gapscope.preflight.job_python import JobPython, ask_python, nvtx_is_heard
from gapscope.preflight.machine import clock_is_kept, find_gpus, room_in
from gapscope.preflight.nsys_ability import NsysAbility, find_ability
from gapscope.preflight.nsys_command_check import Missing, switched_off
from gapscope.preflight.probe import MARKS_SET, Probe, probe

OK, LIMITED, NO, UNKNOWN = "ok", "limited", "no", "unknown"
_LITTLE_ROOM_BYTES = 2 << 30
_SAMPLE_JOB = ("python", "train.py")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: Its name.
        state: ``ok``, ``limited`` (an answer is lost), ``no`` or ``unknown``.
        found: What was found, in one phrase.
        next_step: What to do about it; empty: nothing.
    """

    what: str
    state: str
    found: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What an environment can record.

    Attributes:
        checks: Everything that was looked at.
        routes: Of each way to record handoffs (``nsys``, ``torch``, ``marks``), whether it works: True, False, or None
            where it was not tried and nobody knows.
        missing: Settings that the tools here do not have, or that the environment switches off, and what that costs.
        commands: Of each way that works, the command or code for it.
        verdict: What it comes to, in one or two sentences.
    """

    checks: list[Check]
    routes: dict[str, bool | None]
    missing: list[Missing]
    commands: dict[str, str]
    verdict: str

    @property
    def can_record(self) -> bool:
        """At least one way may record handoffs."""
        return any(works is not False for works in self.routes.values())


@dataclass
class _Seen:
    """What the checks found, as they go."""

    python: JobPython
    ability: NsysAbility | None
    probed: Probe | None = None
    gpus: int | None = None
    writable: bool = True
    off: set[str] = field(default_factory=set)

    @property
    def heard(self) -> bool | None:
        """Marks get into reports of nsys."""
        if self.probed is not None:
            return self.probed.works
        return nvtx_is_heard(self.python.nvtx, self.ability.nsys.version) if self.ability else False


def preflight(
    *,
    nsys: str | None = None,
    python: str | None = None,
    out: Path = Path(),
    try_nsys: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Preflight:
    """Look at what this environment can record.

    Args:
        nsys: The nsys to use; None: it is looked for.
        python: The interpreter of the job; None: the one that runs this.
        out: Folder that recordings are to go to.
        try_nsys: Record two marks with nsys, which takes some seconds; False: judge by versions.
        environment: Variables of the job, with what makes its interpreter import the instrumentation; None: as here.

    Raises:
        UsageError: The interpreter cannot be run.
    """
    variables = dict(os.environ if environment is None else environment)
    ability, why_not = find_ability(nsys)
    seen = _Seen(ask_python(python, deep=True), ability)
    off = switched_off(variables)
    seen.off = {m.setting.key for m in off}
    checks = [_python(seen.python)]
    checks += _nsys(seen, why_not)
    if try_nsys and ability is not None and seen.python.nvtx is not None and seen.python.runs_marks:
        seen.probed = probe(ability, seen.python.executable, variables)
    checks.append(_nvtx(seen))
    checks += _torch(seen)
    checks.append(_gpu(seen))
    checks += [
        Check(m.setting.option.partition("=")[0], LIMITED, f"{m.found} in the environment", m.setting.because)
        for m in off
    ]
    checks += _machine(seen, out)
    routes = _routes(seen)
    commands = _commands(seen, routes, out)
    return Preflight(checks, routes, _missing(seen, off), commands, _verdict(seen, routes))


def _python(python: JobPython) -> Check:
    found = f"{python.version} ({python.executable})"
    if not python.runs_marks:
        return Check("python of the job", NO, found, "Marks need Python 3.10 or newer; name another with --python.")
    return Check("python of the job", OK, found)


def _nsys(seen: _Seen, why_not: str) -> list[Check]:
    if seen.ability is None:
        return [Check("nsys", NO, why_not, "Install Nsight Systems and name it with --nsys or GAPSCOPE_NSYS.")]
    ability = seen.ability
    checks = [Check("nsys", OK, f"{ability.nsys.text} ({ability.nsys.path})")]
    if not ability.options:
        checks.append(
            Check("nsys options", UNKNOWN, "`nsys profile --help` gave no list", "Only basic options are recommended.")
        )
    elif lacking := ability.missing():
        names = ", ".join(s.option for s in lacking)
        checks.append(Check("nsys options", LIMITED, f"not known to it: {names}", "A newer nsys has them."))
    else:
        checks.append(Check("nsys options", OK, "all that answers need"))
    importer = ability.importer
    checks.append(
        Check("report importer", OK, importer)
        if importer
        else Check(
            "report importer",
            UNKNOWN,
            "none seen beside nsys",
            "If nsys leaves a .qdstrm, import that on another machine.",
        )
    )
    return checks


def _nvtx(seen: _Seen) -> Check:
    what, version = "nvtx", seen.python.nvtx
    if version is None:
        advice = "pip install nvtx, or marks do not get into reports of nsys."
        return Check(what, NO, "not installed in the job's Python", advice)
    if seen.ability is None:
        return Check(what, UNKNOWN, version, "Without nsys it is not needed.")
    with_nsys = f"{version} with nsys {seen.ability.nsys.text}"
    if seen.probed is not None:
        return _tried(seen, seen.probed, with_nsys)
    judged = "judged by the versions, not tried"
    if seen.heard is None:
        return Check(what, UNKNOWN, f"{with_nsys}: not known ({judged})", "Leave out --no-probe to try it.")
    if seen.heard:
        return Check(what, OK, f"{with_nsys}: works ({judged})")
    return Check(what, NO, f"{with_nsys}: nothing would be recorded ({judged})", _remedy(seen))


def _tried(seen: _Seen, probed: Probe, with_nsys: str) -> Check:
    if probed.failed:
        return Check("nvtx", NO, f"{with_nsys}: the trial failed: {probed.failed}", "Run nsys by hand to see more.")
    arrived = f"{with_nsys}: tried, {probed.marks} of {MARKS_SET} marks arrived"
    if probed.works:
        return Check("nvtx", OK, arrived)
    return Check("nvtx", NO, f"{arrived}: nothing would be recorded", _remedy(seen))


def _remedy(seen: _Seen) -> str:
    if "NVTX_DISABLE" in seen.off:
        return "Take NVTX_DISABLE out of the environment."
    if seen.ability is not None and nvtx_is_heard(seen.python.nvtx, seen.ability.nsys.version) is False:
        return f"{seen.python.executable} -m pip install nvtx==0.2.11, or use Nsight Systems 2025.1 or later."
    if seen.probed is not None and seen.probed.said:
        return f"The instrumentation says: {seen.probed.said}"
    return "Check that the job's Python imports gapscope_instrumentation and nvtx."


def _torch(seen: _Seen) -> list[Check]:
    python, details = seen.python, seen.python.torch_details or {}
    if python.torch is None:
        return [Check("torch", NO, "not installed in the job's Python", "Name the job's Python with --python.")]
    if "error" in details:
        return [
            Check(
                "torch",
                NO,
                f"{python.torch}: cannot be imported ({details['error']})",
                "Repair it in the job's Python.",
            )
        ]
    cuda, hip = details.get("cuda_build"), details.get("hip_build")
    build = f"CUDA {cuda}" if cuda else f"HIP {hip}" if hip else "CPU build"
    nccl = f", NCCL {details['nccl']}" if details.get("nccl") else ""
    checks = [Check("torch", OK, f"{python.torch}, {build}{nccl}")]
    if not details.get("kineto"):
        return [
            *checks,
            Check(
                "torch.profiler", NO, "this torch was built without Kineto", "Use a release of torch from pytorch.org."
            ),
        ]
    activities = details.get("activities") or []
    checks.append(Check("torch.profiler", OK, "Kineto: " + ", ".join(activities)))
    if not details.get("sync_events"):
        checks.append(Check("sync events", LIMITED, "not known to this torch", "A newer torch records event waits."))
    else:
        checks.append(Check("sync events", OK, "enable_cuda_sync_events"))
    if seen.ability is not None and (cuda or hip):
        found = "nsys and torch.profiler cannot both record CUDA in one process"
        checks.append(
            Check(
                "both at once",
                LIMITED,
                found,
                "Use one: CUPTI takes one subscriber, and torch's recording has no GPU rows.",
            )
        )
    return checks


def _gpu(seen: _Seen) -> Check:
    gpus = find_gpus()
    seen.gpus = gpus.count
    details = seen.python.torch_details or {}
    if gpus.count is None:
        return Check("GPU", UNKNOWN, gpus.text, "Without a GPU, times of a handoff are the host's.")
    if details and details.get("cuda_build") and not details.get("cuda_available"):
        return Check(
            "GPU", LIMITED, gpus.text, "torch of the job's Python cannot use it: check driver and CUDA_VISIBLE_DEVICES."
        )
    return Check("GPU", OK, gpus.text)


def _machine(seen: _Seen, out: Path) -> list[Check]:
    free, why_not = room_in(out)
    seen.writable = not why_not
    kept, clock = clock_is_kept()
    if free is None:
        room = Check("output folder", NO, why_not, "Name another with --out.")
    elif free < _LITTLE_ROOM_BYTES:
        room = Check(
            "output folder",
            LIMITED,
            f"{out}: {free / 2**30:.1f} GiB free",
            "A report may take gigabytes; name another.",
        )
    else:
        room = Check("output folder", OK, f"{out}: {free / 2**30:.0f} GiB free")
    advice = (
        "" if kept else "Ranks of several hosts are aligned by what happened between them, with a larger uncertainty."
    )
    return [room, Check("clock", OK if kept else UNKNOWN if kept is None else LIMITED, clock, advice)]


def _routes(seen: _Seen) -> dict[str, bool | None]:
    """Tell which ways record handoffs; nsys without marks in its reports is none by itself."""
    marks_on = seen.python.runs_marks and seen.writable
    nsys: bool | None = False
    if seen.ability is not None and marks_on and "NVTX_DISABLE" not in seen.off:
        nsys = seen.heard
    torch = marks_on and seen.python.torch_records and "error" not in (seen.python.torch_details or {})
    return {"nsys": nsys, "torch": torch, "marks": marks_on and "GAPSCOPE_LOG" not in seen.off}


def _missing(seen: _Seen, off: list[Missing]) -> list[Missing]:
    out = list(off)
    if seen.ability is not None and seen.ability.options:
        out += [Missing(s, f"nsys {seen.ability.nsys.text} does not know it", True) for s in seen.ability.missing()]
    details = seen.python.torch_details or {}
    if details.get("kineto"):
        if not details.get("sync_events"):
            out.append(Missing(SETTING["sync_events"], f"torch {seen.python.torch} does not know it", True))
        if "CUDA" not in (details.get("activities") or []):
            out.append(
                Missing(
                    SETTING["activity_cuda"], f"torch {seen.python.torch} does not record CUDA", seen.gpus is not None
                )
            )
    return out


def _commands(seen: _Seen, routes: Mapping[str, bool | None], out: Path) -> dict[str, str]:
    commands = {"record": shown(["gapscope", "record", "--out", str(out / "recording"), "--", *_SAMPLE_JOB])}
    if routes["nsys"] is not False and seen.ability is not None:
        commands["nsys"] = shown(nsys_command(seen.ability, str(out / "trace"), _SAMPLE_JOB), GAPSCOPE="1")
    if routes["torch"]:
        details = seen.python.torch_details or {}
        cuda = "CUDA" in (details.get("activities") or [])
        commands["torch"] = torch_snippet(cuda=cuda, sync_events=bool(details.get("sync_events")))
    return commands


def _verdict(seen: _Seen, routes: Mapping[str, bool | None]) -> str:
    if not any(works is not False for works in routes.values()):
        return "No handoff can be recorded here: neither nsys nor torch.profiler nor the mark log works (rows with no)."
    ways = {"nsys": "nsys", "torch": "torch.profiler"}
    good = [text for key, text in ways.items() if routes[key]]
    unsure = [text for key, text in ways.items() if routes[key] is None]
    if good:
        text = f"Handoffs can be recorded here with {' or '.join(good)}."
    elif unsure:
        text = f"Handoffs may be recorded here with {' or '.join(unsure)}: it was not tried."
    else:
        text = "Only the mark log works here: it has the host's times of the marks, and none of a GPU."
    if seen.ability is not None and routes["nsys"] is False and routes["marks"]:
        text += " nsys would record GPU work without marks; the mark log has them beside it."
    return text

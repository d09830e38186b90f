"""Checks a capture command of the user: what is missing in it, and what that costs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from gapscope.errors import UsageError
from gapscope.preflight.answers import SETTING, Setting

_LONG = {
    "t": "trace",
    "s": "sample",
    "b": "backtrace",
    "c": "capture-range",
    "o": "output",
    "f": "force-overwrite",
    "e": "env-var",
    "d": "duration",
    "y": "delay",
    "p": "nvtx-capture",
    "w": "show-output",
    "x": "stop-on-exit",
    "n": "inherit-environment",
    "Y": "start-later",
    "h": "help",
}
_DEFAULT_TRACE = "cuda,nvtx,osrt,opengl"
_SWITCHES = ("NVTX_DISABLE", "NCCL_NVTX_DISABLE", "GAPSCOPE", "GAPSCOPE_NVTX", "GAPSCOPE_LOG", "CUDA_LAUNCH_BLOCKING")
_OF_ITS_OWN = ("%p", "%q{", "%n", "%h")  # parts of an output's name that differ from process to process
_OFF_WORDS = ("0", "off", "false", "no", "none")


@dataclass(frozen=True, slots=True)
class Missing:
    """A setting that a command lacks.

    Attributes:
        setting: Which, and what it costs.
        found: What the command has instead.
        surely: It is missing; False: it matters only under the condition of the setting.
    """

    setting: Setting
    found: str
    surely: bool


@dataclass(frozen=True, slots=True)
class NsysCommand:
    """A command with ``nsys profile`` in it.

    Attributes:
        before: What stands before nsys: a launcher, variables of the environment.
        nsys: The program.
        options: Options of ``nsys profile`` by their long names.
        job: What is recorded.
    """

    before: list[str]
    nsys: str
    options: dict[str, str]
    job: list[str]

    @property
    def traced(self) -> frozenset[str]:
        """What ``-t`` names, or nsys takes without it."""
        return frozenset(part.strip() for part in self.options.get("trace", _DEFAULT_TRACE).split(",") if part.strip())


def split_command(text: str) -> list[str]:
    """Return the words of a command line.

    Raises:
        UsageError: A quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--command: the command cannot be read ({error}). Check its quotes.") from None


def parse_nsys(words: Sequence[str]) -> NsysCommand | None:
    """Return the parts of a command with ``nsys profile``; None: there is no nsys in it.

    Raises:
        UsageError: It is another command of nsys than ``profile`` (or ``launch``).
    """
    at = next((i for i, word in enumerate(words) if PurePath(word).name == "nsys"), None)
    if at is None:
        return None
    rest = list(words[at + 1 :])
    if not rest or rest[0] not in {"profile", "launch"}:
        said = f"nsys {rest[0]}" if rest else "nsys alone"
        raise UsageError(
            f"{said}: is no capture. Give the whole command, such as: nsys profile -t cuda,nvtx python train.py"
        )
    options: dict[str, str] = {}
    i = 1
    while i < len(rest) and rest[i].startswith("-") and rest[i] != "--":
        name, equals, value = rest[i].partition("=")
        i += 1
        if not name.startswith("--"):
            if not equals and len(name) > 2:  # -tcuda,nvtx
                equals, value = "=", name[2:]
            name = _LONG.get(name[1:2], name[1:2])
        name = name.lstrip("-")
        if not equals and name != "help" and i < len(rest):
            value = rest[i]
            i += 1
        options[name] = value
    job = rest[i + 1 :] if i < len(rest) and rest[i] == "--" else rest[i:]
    return NsysCommand(list(words[:at]), words[at], options, job)


def missing_in(command: NsysCommand, known: frozenset[str]) -> list[Missing]:
    """Return what a command lacks, the dearest first.

    Args:
        command: The command.
        known: Options that the nsys knows, by long name; empty: not known, and all are recommended.
    """
    found = [*_traced(command), *_reach(command), *_burden(command)]
    return [m for m in found if not known or not m.setting.known_as or m.setting.known_as in known]


def _traced(command: NsysCommand) -> Iterator[Missing]:
    """Say what is not recorded."""
    options, traced = command.options, command.traced
    if "nvtx" not in traced:
        yield _lacks("trace_nvtx", _said_trace(options))
    elif _filters_marks(options):
        yield _lacks("nvtx_domains", _domains(options))
    if "cuda" not in traced:
        yield _lacks("trace_cuda", _said_trace(options))
        return
    graph, events = options.get("cuda-graph-trace"), options.get("cuda-event-trace")
    if graph is None:
        yield _lacks("graph_nodes", "not said: graph, with drivers since 11.7", surely=False)
    elif not graph.startswith("node"):
        yield _lacks("graph_nodes", f"--cuda-graph-trace={graph}")
    if events is None:
        yield _lacks("event_trace", "not said: nsys decides", surely=False)
    elif events == "false":
        yield _lacks("event_trace", "--cuda-event-trace=false")


def _reach(command: NsysCommand) -> Iterator[Missing]:
    """Say which processes and which part of the job are left out."""
    options = command.options
    kind, end = options.get("capture-range", "none"), options.get("capture-range-end", "stop-shutdown")
    if kind != "none" and "shutdown" in end:
        yield _lacks("capture_range_end", f"-c {kind}, --capture-range-end={end}")
    output = options.get("output", "report%n")
    if _launched_per_rank(command.before) and not any(part in output for part in _OF_ITS_OWN):
        yield _lacks("output_per_rank", f"-o {output}")
    if options.get("trace-fork-before-exec") != "true":
        yield _lacks("fork", "not said: false", surely=False)


def _burden(command: NsysCommand) -> Iterator[Missing]:
    """Say what is recorded for nothing."""
    options = command.options
    if options.get("sample") != "none":
        yield _lacks("sample_none", f"-s {options['sample']}" if "sample" in options else "not said: process-tree")
        if options.get("backtrace") != "none":
            yield _lacks("backtrace_none", f"-b {options['backtrace']}" if "backtrace" in options else "not said: lbr")
    if options.get("cpuctxsw") != "none":
        switches = options.get("cpuctxsw")
        yield _lacks("cpuctxsw_none", f"--cpuctxsw={switches}" if switches else "not said: process-tree")
    if "osrt" in command.traced:
        yield _lacks("no_osrt", _said_trace(options))


def _lacks(key: str, found: str, *, surely: bool = True) -> Missing:
    return Missing(SETTING[key], found, surely)


def _said_trace(options: Mapping[str, str]) -> str:
    return f"-t {options['trace']}" if "trace" in options else f"no -t: nsys takes {_DEFAULT_TRACE}"


def disabling(words: Sequence[str]) -> list[Missing]:
    """Return settings of the environment within a command (``NAME=VALUE nsys ...``) that switch something off."""
    pairs = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    unsaid = [] if "GAPSCOPE" in pairs else [_lacks("GAPSCOPE_on", "not said in the command", surely=False)]
    return switched_off(pairs) + unsaid


def switched_off(environment: Mapping[str, str]) -> list[Missing]:
    """Return variables of an environment that switch something off.

    Args:
        environment: Variables and their values.
    """
    out = []
    for name in _SWITCHES:
        value = environment.get(name, "")
        # nvtx goes by the presence of a text, the others by what it says
        if name.startswith("GAPSCOPE"):
            off = value.lower() in _OFF_WORDS
        else:
            off = bool(value) if name == "NVTX_DISABLE" else value not in ("", "0")
        if off:
            out.append(Missing(SETTING[name], f"{name}={value}", True))
    return out


def _launched_per_rank(before: Sequence[str]) -> bool:
    """Tell if a launcher stands before nsys, so that each rank starts its own."""
    return any(not w.startswith("-") and "=" not in w and PurePath(w).name != "env" for w in before)


def _filters_marks(options: Mapping[str, str]) -> bool:
    include, exclude = options.get("nvtx-domain-include"), options.get("nvtx-domain-exclude", "")
    names = {n.strip() for n in (include or "").split(",")}
    return (include is not None and "gapscope" not in names) or "gapscope" in {n.strip() for n in exclude.split(",")}


def _domains(options: Mapping[str, str]) -> str:
    return ", ".join(f"--{n}={options[n]}" for n in ("nvtx-domain-include", "nvtx-domain-exclude") if n in options)

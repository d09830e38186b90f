"""What a mark costs: off, with NVTX, under torch.profiler, with the log; and what marks do to the steps of a pipeline.

    python benchmarks/marks.py [--nsys PROGRAM] [--pythonpath DIR] [--steps 4000]

Prints Markdown. "Own call" is what the recording's own call takes, made by hand with everything prepared; "bracket" is
ours around nothing. Each number is the least of several repetitions (interruptions only add). NVTX is measured in a
process of its own under ``nsys profile``; ``--pythonpath`` names a folder whose nvtx that nsys takes (0.2.11 for Nsight
Systems 2023.4). The pipeline is `examples/two_stages.py`: blocks of steps with marks and without take turns in one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import gapscope_instrumentation as gs
from gapscope_instrumentation import marking
from gapscope_instrumentation.contract import NVTX_DOMAIN

REPEATS = 40
BLOCK = 20
HERE = Path(__file__).parent


def cost_ns(functions: dict[str, Callable[[], object]], number: int = 10_000) -> dict[str, float]:
    """Return nanoseconds of one call of each, the call itself left out; they take turns, to meet the same state."""
    everything = {"": _nothing, **functions}
    least = dict.fromkeys(everything, math.inf)
    for _ in range(REPEATS):
        for name, function in everything.items():
            least[name] = min(least[name], timeit.timeit(function, number=number))
    return {name: (least[name] - least[""]) / number * 1e9 for name in functions}


def _nothing() -> None:
    pass


def costs(prefix: str, own: Callable[[], object] | None = None) -> dict[str, float]:
    """Return the cost of a bracket and a point, on a handoff and on an edge, and of the recording's own call."""
    edge = gs.Edge(src=0, dst=1)
    handoff = edge.handoff(mb=3, bytes=4096)

    def of_handoff() -> None:
        with gs.submit(handoff):
            pass

    def of_edge() -> None:
        with gs.submit(edge):
            pass

    def new_handle() -> None:
        edge.handoff(mb=3, bytes=4096)

    found = cost_ns(
        {
            "bracket": of_handoff,
            "bracket on an edge": of_edge,
            "point": lambda: gs.available(handoff),
            "new handle": new_handle,
            "own call": own or _nothing,
        }
    )
    if own is None:
        del found["own call"]
    return {f"{prefix} {what}": ns for what, ns in found.items()}


def off() -> dict[str, float]:
    """Return costs with nothing switched on."""
    return costs("off")


def nvtx() -> dict[str, float]:
    """Return costs under a tool that listens to NVTX; run in a process of its own."""
    import nvtx as package

    domain = package.get_domain(NVTX_DOMAIN)
    if hasattr(domain, "start_range"):
        attributes = domain.get_event_attributes(message="gapscope::submit")

        def own() -> None:
            domain.end_range(domain.start_range(attributes, payload=57))
    else:

        def own() -> None:
            package.end_range(package.start_range("gapscope::submit", domain=NVTX_DOMAIN, payload=57))

    with gs.capture(log=False):
        if "nvtx" not in {e.name for e in marking.emitters()}:
            raise SystemExit(f"NVTX is not recorded here: {gs.status()['nvtx']}")
        return costs("NVTX", own)


def torch_profiler() -> dict[str, float]:
    """Return costs under torch.profiler."""
    import torch

    text = gs.format_mark("submit", src=0, dst=1, seq=57, mb=3, bytes=4096)

    def by_hand() -> None:
        with torch.profiler.record_function(text):
            pass

    with gs.capture(log=False):
        found = {"torch loaded, no profiler on, bracket": costs("x")["x bracket"]}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            found |= costs("torch.profiler", by_hand)
    return found


def log() -> dict[str, float]:
    """Return costs with the log alone."""
    with tempfile.TemporaryDirectory() as folder, gs.capture(folder):
        (emitter,) = (e for e in marking.emitters() if e.name == "log")
        others = tuple(e for e in marking.emitters() if e is not emitter)
        marking.set_emitters((emitter,))
        handoff = gs.Edge(src=0, dst=1).handoff(mb=3, bytes=4096)
        found = costs("log", lambda: emitter.end(emitter.begin(1, handoff)))
        marking.set_emitters((*others, emitter))
    return found


def under_nsys(nsys: str, pythonpath: str | None) -> dict[str, float]:
    """Return what `nvtx` measures under ``nsys profile``."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        environment = dict(os.environ)
        if pythonpath:
            environment["PYTHONPATH"] = os.pathsep.join([pythonpath, environment.get("PYTHONPATH", "")])
        command = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", f"{folder}/report"]
        inner = [sys.executable, __file__, "--inside", str(found)]
        done = subprocess.run([*command, *inner], env=environment, capture_output=True, text=True, check=False)
        if not found.exists():
            print(done.stdout + done.stderr, file=sys.stderr)
            return {}
        return json.loads(found.read_text())


def steps_of_a_pipeline(steps: int, device_times: bool) -> str:
    """Return what marks do to the steps of a real pipeline of two processes, with a confidence interval."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(HERE / "marks_pipeline.py"), str(result), str(steps)]
        subprocess.run([*command, *["--device-times"] * device_times], check=True)
        blocks = json.loads(result.read_text())
    on, without = blocks["on"], blocks["off"]
    differences = [a - b for a, b in zip(on, without, strict=True)]
    n = len(differences)
    middle, spread = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(n)
    z, v = 1.96, n - 1  # Student's t, from the normal quantile (Abramowitz and Stegun 26.7.5)
    t = z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
    low, high = middle - t * spread, middle + t * spread
    base = statistics.fmean(without)
    return (
        f"{blocks['what']}: a step takes {base / 1e3:.1f} µs without marks, and {middle / 1e3:+.2f} µs with them "
        f"(95 % confidence {low / 1e3:+.2f} to {high / 1e3:+.2f} µs, {n} pairs of {BLOCK} steps; "
        f"{blocks['brackets']} brackets a step and rank)."
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nsys", default=os.environ.get("GAPSCOPE_NSYS") or shutil.which("nsys"))
    parser.add_argument("--pythonpath", default=os.environ.get("GAPSCOPE_TEST_NVTX"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    random.seed(0)
    if options.inside:
        options.inside.write_text(json.dumps(nvtx()))
        return
    found = off() | log()
    if options.nsys:
        found |= under_nsys(options.nsys, options.pythonpath)
    with contextlib.suppress(ImportError):
        found |= torch_profiler()
    print("| what | own call, ns | bracket, ns | above it, ns | on an edge, ns | point, ns | new handle, ns |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("off", "NVTX", "torch.profiler", "log"):
        if f"{kind} bracket" not in found:
            continue
        own, bracket = found.get(f"{kind} own call"), found[f"{kind} bracket"]
        cells = ["", f"{bracket:.0f}", ""] if own is None else [f"{own:.0f}", f"{bracket:.0f}", f"{bracket - own:+.0f}"]
        more = [found[f"{kind} {what}"] for what in ("bracket on an edge", "point", "new handle")]
        print("| " + " | ".join([kind, *cells, *(f"{x:.0f}" for x in more)]) + " |")
    print()
    for name in ("torch loaded, no profiler on, bracket",):
        if name in found:
            print(f"{name}: {found[name]:.0f} ns")
    print(steps_of_a_pipeline(options.steps, device_times=False))
    import torch

    if torch.cuda.is_available():
        print("With device times: " + steps_of_a_pipeline(options.steps, device_times=True))


if __name__ == "__main__":
    main()

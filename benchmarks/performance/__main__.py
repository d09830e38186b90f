"""Measure gapscope beside others, and make the page.

    python -m benchmarks.performance list
    python -m benchmarks.performance files --files FOLDER --only torch_500MB
    python -m benchmarks.performance run --files FOLDER --peers PYTHON --only torch_50MB --rounds 3 --budget 300
    python -m benchmarks.performance run --files FOLDER --peers PYTHON --only 'nsys_5M/nsys_ai*' --resume
    python -m benchmarks.performance render

``run`` begins a series (runs that took turns on one machine, with one version of everything) and appends every run at
once; ``--resume`` goes on with the last one, if the code is the same. The page shows of each case its newest series.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from pathlib import Path

from benchmarks.performance import inputs, machine, page, records
from benchmarks.performance.cases import WAYS, Places, Way
from benchmarks.performance.runner import OutOfTimeError, Runner

SHARED = Path(__file__).parents[3] / "shared"


def chosen(patterns: list[str]) -> dict[str, list[Way]]:
    """Return the ways of each input that a pattern names, as ``INPUT`` or ``INPUT/WAY``; all without patterns.

    Raises:
        SystemExit: A pattern names nothing.
    """
    found: dict[str, list[Way]] = {}
    for name, ways in WAYS.items():
        picked = [
            way for way in ways
            if not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns for n in (name, f"{name}/{way.name}"))
        ]  # fmt: skip
        if picked:
            found[name] = picked
    names = [n for name, ways in WAYS.items() for n in (name, *(f"{name}/{way.name}" for way in ways))]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            sys.exit(f"--only {pattern}: no such case; `list` shows them")
    return found


def run(options: argparse.Namespace) -> None:
    """Measure what was chosen."""
    places = Places(options.files.resolve(), options.peers, str(options.engine.resolve()) if options.engine else "")
    peers, own = machine.peer_versions(options.peers), machine.own_versions()
    about = {"machine": machine.describe_machine(), "versions": own, "peers": peers}
    before = records.arrange(records.read(options.records)).series
    if options.resume:
        if not before or any(before[-1].about[key] != value for key, value in about.items()):
            sys.exit("--resume: machine, versions or code of gapscope are not those of the last series")
    else:
        records.append(options.records, {"kind": "series", "date": records.now(), **about})
    warm: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="work-", dir=places.files) as work:
        runner = Runner(places, Path(work), options.records, peers, options.budget, options.limit)
        try:
            for name, ways in chosen(options.only).items():
                wanted = inputs.INPUTS[name]
                inputs.make(wanted, places.files, options.recordings, options.tiler)
                if name not in records.arrange(records.read(options.records)).inputs:
                    held = inputs.counted(wanted, places.files)
                    records.append(options.records, {"kind": "input", "name": name, **held})
                if wanted.kind not in warm:
                    runner.warm_up(wanted)
                    warm.add(wanted.kind)
                runner.run(wanted, ways, options.rounds)
        except OutOfTimeError as error:
            print(f"stopped: {error}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "files", "run", "render"])
    parser.add_argument(
        "--only", action="append", default=[], metavar="CASE", help="INPUT or INPUT/WAY, with * and ?; again for more."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=float("inf"), help="Seconds for all of it.")
    parser.add_argument("--limit", type=float, default=1200.0, help="Seconds for one process.")
    parser.add_argument("--resume", action="store_true", help="Go on with the last series.")
    parser.add_argument(
        "--files", type=Path, default=Path(__file__).parents[1] / "data", help="Folder of the inputs; made on demand."
    )
    parser.add_argument("--peers", default=sys.executable, help="Python in which the peers are installed.")
    parser.add_argument("--engine", type=Path, help="Folder of the trace processor's WebAssembly build.")
    parser.add_argument("--recordings", type=Path, default=SHARED / "traces" / "lab")
    parser.add_argument("--tiler", type=Path, default=SHARED / "tools" / "tile.py")
    parser.add_argument("--records", type=Path, default=records.FILE)
    parser.add_argument("--page", type=Path, default=page.PAGE)
    options = parser.parse_args()
    if options.what == "list":
        for name, ways in chosen(options.only).items():
            for way in ways:
                print(f"{name}/{way.name}: {way.title}")
    elif options.what == "files":
        options.files.mkdir(parents=True, exist_ok=True)
        for name in chosen(options.only):
            made = inputs.make(inputs.INPUTS[name], options.files, options.recordings, options.tiler)
            print(f"{name}: {sum(path.stat().st_size for path in made) / 1e6:,.1f} MB")
    elif options.what == "run":
        options.files.mkdir(parents=True, exist_ok=True)
        run(options)
    else:
        options.page.write_text(page.render(records.arrange(records.read(options.records))))


if __name__ == "__main__":
    main()

"""Run a job with marks on, without an edit of it.

    python -m gapscope_instrumentation --attach torch_pipelining train.py --epochs 1
    python -m gapscope_instrumentation --attach c10d -m torch.distributed.run --nproc-per-node 2 train.py

Sets ``GAPSCOPE=1`` (unless it is set) and ``GAPSCOPE_ATTACH`` for this process and all Python processes that it starts,
and puts a folder in front of ``PYTHONPATH`` through which they load the marks when they start.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from gapscope_instrumentation import adapters
from gapscope_instrumentation.recorder import start_if_asked


def main(arguments: list[str] | None = None) -> None:
    """Set the environment, then be the job.

    Args:
        arguments: Command line; None: that of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m gapscope_instrumentation", description="Run a Python job with gapscope's marks on."
    )
    parser.add_argument(
        "--attach", default=None, metavar="NAMES", help=f"adapters: {', '.join(adapters())}; commas between"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="JOB is a module, as in python -m JOB")
    parser.add_argument("job", metavar="JOB", help="script or module to run")
    parser.add_argument("rest", metavar="...", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)

    os.environ.setdefault("GAPSCOPE", "1")
    if options.attach is not None:
        os.environ["GAPSCOPE_ATTACH"] = options.attach
    folder = str(Path(__file__).with_name("on_start"))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])
    start_if_asked()

    sys.argv = [options.job, *options.rest]
    if options.module:
        runpy.run_module(options.job, run_name="__main__", alter_sys=True)
    else:
        if sys.path and sys.path[0] in ("", str(Path.cwd())):
            sys.path.pop(0)  # what ``python -m`` puts there; ``python JOB`` has the folder of JOB
        sys.path.insert(0, str(Path(options.job).resolve().parent))
        runpy.run_path(options.job, run_name="__main__")


if __name__ == "__main__":
    main()

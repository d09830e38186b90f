"""Load traces with Perfetto's own package, which downloads the trace processor: ``perfetto_native.py TRACE...``."""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    from perfetto.trace_processor import TraceProcessor  # type: ignore[import-untyped]

    slices = 0
    for path in sys.argv[1:]:
        try:
            with TraceProcessor(trace=path) as processor:
                slices += next(iter(processor.query("select count(*) as n from slice"))).n
        except (OSError, subprocess.CalledProcessError) as error:
            print(error, file=sys.stderr)
            sys.exit("the program is not in its package, and could not be downloaded")
    print(json.dumps({"slices": slices}))


if __name__ == "__main__":
    main()

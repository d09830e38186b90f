"""gapscope's tables of a run and nothing more: ``gapscope_load.py FILE...``."""

from __future__ import annotations

import json
import sys

import gapscope


def main() -> None:
    trace = gapscope.load(sys.argv[1:])
    print(json.dumps({"events": int(trace.sources["events"].sum())}))


if __name__ == "__main__":
    main()

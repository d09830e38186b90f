"""The job of the probe: two marks, and where they went. Run by path under nsys; standard library only."""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Set the marks and write what the instrumentation says of itself to the file named."""
    gs = importlib.import_module("gapscope_instrumentation")
    handoff = gs.Handoff(src=0, dst=1, seq=57, device="cpu")
    with gs.produce(handoff):
        pass
    with gs.submit(handoff):
        pass
    Path(sys.argv[1]).write_text(json.dumps(gs.status()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Parse torch.profiler JSON and do nothing with it: ``parsers.py WAY FILE...``, one file after the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def with_json() -> Callable[[str], int]:
    return lambda path: len(json.loads(Path(path).read_bytes())["traceEvents"])


def with_orjson() -> Callable[[str], int]:
    import orjson

    return lambda path: len(orjson.loads(Path(path).read_bytes())["traceEvents"])


def with_msgspec() -> Callable[[str], int]:
    import msgspec

    # By hand, because annotations of this file are not evaluated.
    args = [(name, int | str | None, None) for name in ("correlation", "stream", "device", "bytes")]
    fields = [("name", str, ""), ("cat", str, ""), ("ts", float, 0.0), ("dur", float, 0.0)]
    ids = [("pid", int | str, 0), ("tid", int | str, 0)]
    args_type = msgspec.defstruct("Args", args, gc=False)
    event = msgspec.defstruct("Event", [("ph", str), *fields, *ids, ("args", args_type | None, None)], gc=False)
    trace = msgspec.defstruct("Trace", [("traceEvents", list[event])])  # type: ignore[valid-type]
    decoder: Any = msgspec.json.Decoder(trace)
    return lambda path: len(decoder.decode(Path(path).read_bytes()).traceEvents)


def with_simdjson() -> Callable[[str], int]:
    import simdjson  # type: ignore[import-not-found]

    parser = simdjson.Parser()
    return lambda path: len(parser.load(path)["traceEvents"])


def main() -> None:
    way, *paths = sys.argv[1:]
    ways = {"json": with_json, "orjson": with_orjson, "msgspec": with_msgspec, "simdjson": with_simdjson}
    parse = ways[way]()
    print(json.dumps({"events": sum(map(parse, paths))}))


if __name__ == "__main__":
    main()

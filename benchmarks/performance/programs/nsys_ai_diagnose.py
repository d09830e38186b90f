"""nsys-ai's diagnosis of an nsys SQLite export: ``nsys_ai_diagnose.py FOLDER FILE``; FOLDER keeps what it keeps.

The file is linked into the folder, because nsys-ai puts its cache beside it. DuckDB's extension for SQLite is taken
from package duckdb-ext-sqlite: without it nsys-ai waits for a download and then adds indexes to the file. In that
pairing DuckDB sometimes lists only a part of the tables, and nsys-ai then does less without an error; such a run fails
here, as soon as its cache is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

NEEDED = {"kernels", "memcpy", "nvtx", "runtime", "string_ids", "sync"}


def missing_of(cache: Path) -> list[str]:
    return sorted(NEEDED - {table.stem for table in cache.glob("*.parquet")})


def main() -> None:
    folder, path = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    home = folder / "home"
    found = importlib.util.find_spec("duckdb_ext")
    if found is None or not found.submodule_search_locations:
        sys.exit("no duckdb-ext-sqlite")
    (own, *_) = found.submodule_search_locations
    home.mkdir(parents=True, exist_ok=True)
    extensions = home / ".duckdb" / "extensions"
    if not extensions.exists():
        extensions.parent.mkdir()
        extensions.symlink_to(Path(own) / "extensions")
    link = folder / path.name
    if not link.exists():
        link.hardlink_to(path)  # it takes no symbolic link
    out = folder / "findings.json"
    program = Path(sys.executable).parent / "nsys-ai"
    command = [str(program), "diagnose", str(link), "--format", "json", "-o", str(out)]
    cache, errors = link.with_suffix(".nsys-cache"), folder / "errors.txt"
    with errors.open("w") as err:
        run = subprocess.Popen(
            command, env=dict(os.environ, HOME=str(home)), cwd=folder, stdout=subprocess.DEVNULL, stderr=err
        )
        while run.poll() is None:
            if cache.exists() and missing_of(cache):  # it is renamed into place when all of it is written
                run.kill()
            time.sleep(0.2)
    if missing := missing_of(cache):
        sys.exit(f"incomplete: tables {', '.join(missing)} are missing. {errors.read_text()[-400:]}")
    if run.returncode:
        sys.exit(errors.read_text()[-500:])
    report = json.loads(out.read_text())
    if report["skipped"]:
        sys.exit(f"incomplete: {len(report['skipped'])} analyses skipped")
    print(json.dumps({"findings": len(report["findings"])}))


if __name__ == "__main__":
    main()

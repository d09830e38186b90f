"""What the numbers depend on: the machine, the versions, and the code of gapscope itself."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "gapscope"
OWN = ("polars", "numba", "numpy", "zstandard", "ray")
PEERS = (
    "HolisticTraceAnalysis",
    "pandas",
    "orjson",
    "msgspec",
    "pysimdjson",
    "perfetto",
    "nsys-ai",
    "duckdb",
    "adbc-driver-sqlite",
    "connectorx",
)
_ASK = """
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def describe_machine() -> dict[str, object]:
    """Return processor, cores, memory and kernel."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo)
    return {
        "processor": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
        "kernel": platform.release(),
        "virtual": " hypervisor" in cpuinfo,
    }


def own_versions() -> dict[str, str]:
    """Return the versions of gapscope and of what it stands on."""
    text = (PACKAGE / "version.py").read_text()  # to import gapscope would make this process large
    version = re.search(r'VERSION = "(.+)"', text)
    found = {"gapscope": version[1] if version else "?", "code": code_digest(), "python": platform.python_version()}
    for name in OWN:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def peer_versions(python: str) -> dict[str, str]:
    """Return the versions of the peers that a Python has, and of node."""
    run = subprocess.run([python, "-c", _ASK, *PEERS], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(run.stdout)
    if node := shutil.which("node"):
        found["node"] = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip(
            "v\n"
        )
    return found


def code_digest() -> str:
    """Return eight digits that stand for the code of gapscope as it is."""
    total = hashlib.blake2b(digest_size=4)
    for path in sorted(PACKAGE.rglob("*.py")):
        total.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return total.hexdigest()

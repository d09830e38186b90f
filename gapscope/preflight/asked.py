"""Asks a Python what it has, and prints that as JSON. Run by path by the job's interpreter; standard library only.

With ``--deep`` it imports torch, which takes seconds; without, only versions are looked up.
"""

import importlib
import importlib.util
import json
import sys
from importlib import metadata


def version_of(package: str) -> "str | None":
    """Return the version of an installed package; None: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def about_torch() -> "dict[str, object]":
    """Return what torch tells when it is imported."""
    try:
        torch = importlib.import_module("torch")
        profiler = importlib.import_module("torch.profiler")
        config = importlib.import_module("torch._C._profiler")._ExperimentalConfig
    except Exception as error:  # whatever it is, it is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    known = {
        "cuda_build": torch.version.cuda,
        "hip_build": getattr(torch.version, "hip", None),
        "kineto": bool(profiler.kineto_available()),
        "activities": sorted(a.name for a in profiler.supported_activities()),
        "cuda_available": bool(torch.cuda.is_available()),
    }
    try:
        config(enable_cuda_sync_events=True)
        known["sync_events"] = True
    except TypeError:
        known["sync_events"] = False
    try:
        known["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # a build without NCCL says so in several ways
        known["nccl"] = None
    return known


def main() -> None:
    """Print the answer on stdout."""
    spec = importlib.util.find_spec("gapscope_instrumentation")
    torch_version = version_of("torch")
    answer = {
        "executable": sys.executable,
        "python": ".".join(map(str, sys.version_info[:3])),
        "nvtx": version_of("nvtx"),
        "torch": torch_version,
        "instrumentation": spec is not None,
        "torch_details": about_torch() if torch_version and "--deep" in sys.argv else None,
    }
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()

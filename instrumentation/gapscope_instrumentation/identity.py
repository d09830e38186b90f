"""Who this process is: rank, host, GPU. Asked of the job, never guessed."""

from __future__ import annotations

import functools
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_stated: dict[str, int] = {}
_gpu: dict[str, Any] = {}


def state_rank(rank: int | None) -> int | None:
    """Let the user say which rank this is; None: as the job says. Return what was stated before."""
    before = _stated.pop("rank", None)
    if rank is not None:
        _stated["rank"] = rank
    return before


def rank() -> int | None:
    """Return the global rank: as stated, else of torch.distributed, else of the launcher's environment, else None."""
    if "rank" in _stated:
        return _stated["rank"]
    group = _distributed()
    if group is not None:
        return int(group.get_rank())
    return _number(RANK_VARIABLES)


def about_process() -> dict[str, Any]:
    """Return what is known now; the GPU and the rank may come later."""
    group = _distributed()
    known = {
        "rank": rank(),
        "world_size": int(group.get_world_size()) if group is not None else _number(_SIZE_VARIABLES),
        "gpu": dict(_gpu) or None,
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
    }
    return _unchanging(os.getpid()) | known


@functools.lru_cache(maxsize=1)
def host_name() -> str:
    """Return the name of the machine."""
    return socket.gethostname() or "unknown"


@functools.lru_cache(maxsize=1)
def _unchanging(pid: int) -> dict[str, Any]:
    return {
        "host": host_name(),
        "boot_id": _read("/proc/sys/kernel/random/boot_id"),
        "pid": pid,
        "python": platform.python_version(),
        "run": os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID"),
    }


def _distributed() -> Any:
    """Return torch.distributed if this job has loaded and initialized it."""
    group = sys.modules.get("torch.distributed")
    try:
        return group if group is not None and group.is_available() and group.is_initialized() else None
    except AttributeError:  # it is being imported by another thread
        return None


def notice_gpu() -> bool:
    """Remember the GPU of the calling thread, if CUDA is in use already (asking for more would create a context).

    Returns:
        Whether a GPU is known.
    """
    cuda = sys.modules.get("torch.cuda")
    try:
        if cuda is not None and not _gpu and cuda.is_initialized():
            number = int(cuda.current_device())
            properties = cuda.get_device_properties(number)
            uuid = str(getattr(properties, "uuid", "")) or None
            _gpu.update(device=number, name=properties.name, uuid=uuid)
    except (AttributeError, RuntimeError):
        return False
    return bool(_gpu)


def _number(variables: tuple[str, ...]) -> int | None:
    for name in variables:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None

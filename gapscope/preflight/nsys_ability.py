"""What the found nsys can: its version, the options it knows, whether it can write a report."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gapscope.preflight.answers import SETTINGS, Setting
from gapscope.readers.nsys_export import ExportFailedError, Nsys, find_nsys

_SECONDS = 60
_IMPORTERS = (
    "host-linux-*/QdstrmImporter",
    "host/*/QdstrmImporter",
    "host-linux-*/bin/QdstrmImporter",
    "QdstrmImporter",
)
_LEVELS = 4  # from the program up to the folder of the installation


@dataclass(frozen=True, slots=True)
class NsysAbility:
    """One nsys and what it knows.

    Attributes:
        nsys: The program and its version.
        options: Long names that ``nsys profile --help`` lists; empty: it gave no help.
        importer: The program that turns a capture into a report; None: not seen beside nsys, which does not mean that
            there is none.
    """

    nsys: Nsys
    options: frozenset[str]
    importer: str | None

    def knows(self, setting: Setting) -> bool:
        """Tell if this nsys takes the option of a setting."""
        return not setting.known_as or setting.known_as in self.options

    def missing(self) -> list[Setting]:
        """Return the settings that this nsys does not know."""
        return [s for s in SETTINGS if s.tool == "nsys" and not self.knows(s)]


def find_ability(wanted: str | None) -> tuple[NsysAbility | None, str]:
    """Look for nsys and ask it what it knows.

    Args:
        wanted: The program, as the user gave it; None: `gapscope.readers.nsys_export.find_nsys` says where it looks.

    Returns:
        What was found, and why not: the second is empty where the first is there.
    """
    try:
        nsys = find_nsys(wanted)
    except ExportFailedError as error:
        return None, str(error)
    if nsys is None:
        return None, "not found by --nsys, in GAPSCOPE_NSYS, on PATH or in the usual folders"
    return NsysAbility(nsys, _options(nsys.path), _importer(Path(nsys.path))), ""


@lru_cache(maxsize=16)
def _options(program: str) -> frozenset[str]:
    try:
        done = subprocess.run(
            [program, "profile", "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return options_in(done.stdout + done.stderr)


def options_in(text: str) -> frozenset[str]:
    r"""Return the long names of the options that a help text lists, each at the start of a line.

    >>> sorted(options_in("\t-b, --backtrace=\n\t  see --sample\n\t--wait=\n\t(Experimental) --a-b=<x>\n"))
    ['a-b', 'backtrace', 'wait']
    """
    return frozenset(re.findall(r"^\s*(?:\(\w+\)\s+)?(?:-\w,\s*)?--([a-z][a-z0-9-]*)", text, flags=re.MULTILINE))


def _importer(program: Path) -> str | None:
    for start in dict.fromkeys((program, program.resolve())):
        for folder in list(start.parents)[:_LEVELS]:
            if folder == Path("/usr"):  # shared by all programs: no folder of an installation
                break
            for pattern in _IMPORTERS:
                found = sorted(folder.glob(pattern))
                if found:
                    return str(found[-1])
    return None

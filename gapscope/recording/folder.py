"""The folder that a recording goes to, and what of an earlier one is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gapscope.analysis import OUTPUTS
from gapscope.errors import UsageError

_NSYS_ENDINGS = (".nsys-rep", ".qdstrm")
_OF_TORCH = re.compile(r"\.?(rank|pid)\d+(-\d+)?\.json")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """Where ``gapscope record`` writes.

    Attributes:
        path: The folder; it need not exist.
    """

    path: Path

    @property
    def report(self) -> Path:
        """Report of nsys, without its ending."""
        return self.path / "trace"

    @property
    def torch(self) -> Path:
        """Recordings of torch.profiler, one per rank."""
        return self.path / "torch"

    @property
    def marks(self) -> Path:
        """Mark logs, one per process."""
        return self.path / "marks"

    @property
    def results(self) -> Path:
        """What the analysis writes."""
        return self.path / "results"

    def recordings(self) -> list[Path]:
        """Return the recordings that are there, as the analysis takes them."""
        report = self.report.with_suffix(".nsys-rep")
        parts = (report, *self._of_torch(), *sorted(self.marks.glob("*.gslog")))
        return [part for part in parts if part.is_file() and not part.name.startswith(".")]

    def clear(self, overwrite: bool) -> None:
        """Make the folder, free of recordings.

        Args:
            overwrite: Remove recordings of an earlier run. Nothing else is touched.

        Raises:
            UsageError: There are some, and they are not to be removed; or the folder cannot be made.
        """
        try:
            earlier = self._earlier()
            if earlier and not overwrite:
                names = ", ".join(str(p.relative_to(self.path)) for p in earlier[:_SHOWN])
                more = f" and {len(earlier) - _SHOWN} more" if len(earlier) > _SHOWN else ""
                raise UsageError(
                    f"{self.path}: holds recordings of an earlier run ({names}{more}). Name another folder with --out, "
                    "or remove them with --overwrite."
                )
            if overwrite:
                for file in (*earlier, *(self.results / name for name in OUTPUTS)):
                    file.unlink(missing_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be used ({error.strerror or error}). Name another folder with --out."
            ) from error

    def _earlier(self) -> list[Path]:
        """Return the files that an earlier run recorded, unfinished ones included."""
        found = [self.report.with_suffix(ending) for ending in _NSYS_ENDINGS]
        return [p for p in (*found, *self._of_torch(), *sorted(self.marks.glob("*.gslog"))) if p.is_file()]

    def _of_torch(self) -> list[Path]:
        """Return what torch.profiler left, by the names that the instrumentation gives; unfinished files are hidden."""
        return [p for p in sorted(self.torch.glob("*.json")) if _OF_TORCH.fullmatch(p.name)]

"""Reader of Nsight Systems reports (``.nsys-rep``, formerly ``.qdrep``), by way of ``nsys export``.

A report starts with the words ``NVIDIA Tegra Profiler Report`` and the version that wrote it, with ``@`` for dots
(seen in reports of the versions 2023.4 to 2026.4). Its content is not documented, so ``nsys`` exports it; an export
made by any version of ``nsys`` is read without.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gapscope.entries import discard, read_index, staged, write_index
from gapscope.errors import ExporterError, InputError, MalformedTraceError
from gapscope.readers.base import Progress, ReadOptions, SourceTables
from gapscope.readers.compression import ByteStream, copy_decompressed
from gapscope.readers.nsys_export import (
    ENV,
    CutExportError,
    ExportFailedError,
    Nsys,
    export,
    find_nsys,
    version_numbers,
)
from gapscope.readers.nsys_parquet import read_parquet
from gapscope.readers.nsys_sqlite import read_sqlite
from gapscope.readers.nsys_tables import VERSION

MAGIC = b"NVIDIA Tegra Profiler Report"
_WRITER = re.compile(rb"Report (\d+(?:@\d+)+)(-\w+)?")
_INDEX = "index"
_EXPORT_SHARE = 0.5  # of the progress


class NsysReportReader:
    """Exports a report with ``nsys`` and reads the export."""

    name = "nsys report"
    version = VERSION

    def sniff(self, path: Path, head: bytes) -> bool:
        """Tell if the content starts like a report."""
        return head.startswith(MAGIC)

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Export a report, unless an export of the same content by the same ``nsys`` is kept, and read the export.

        Raises:
            ExporterError: There is no ``nsys``, it is older than the report, or it cannot read the report.
            MalformedTraceError: The compressed stream is broken, or the export cannot be used.
            InputError: The report cannot be read, or there is no room for its export.
        """
        try:
            with _plain_report(path) as report:
                return self._read(_job(path, report, options), options, progress)
        except OSError as error:
            raise InputError(path, f"cannot be read ({error.strerror or error}).") from error

    def _read(self, job: _Job, options: ReadOptions, progress: Progress) -> SourceTables:
        inner = replace(options, cache_dir=None)
        if options.cache_dir is None:
            return self._without_cache(job, inner, progress)
        kept = options.cache_dir / "exports" / f"{_digest(job.report)}-{job.nsys.text.replace('/', '_')}"
        if kept.is_dir():
            source = self._from_kept(job, kept, inner, progress)
            if source is not None:
                return source
            discard(kept)
        try:
            made = _kept_export(job, kept, progress)
        except (CutExportError, OSError):  # the disk of the cache is full
            return self._without_cache(job, inner, progress)
        return self._through(job, made, inner, progress)

    def _without_cache(self, job: _Job, options: ReadOptions, progress: Progress) -> SourceTables:
        """Export where temporary files go."""
        with tempfile.TemporaryDirectory(prefix="gapscope-") as folder:
            try:
                made = _exported(job, Path(folder), progress)
            except CutExportError as error:
                found = f"nsys {job.nsys.text} left a part of its export in {error}."
                next_step = f"Make room, or name another folder as TMPDIR; otherwise {_elsewhere(job.shown)}"
                raise ExporterError(job.shown, found, next_step) from error
            return self._through(job, made, options, progress)

    def _from_kept(self, job: _Job, kept: Path, options: ReadOptions, progress: Progress) -> SourceTables | None:
        """Return what a kept export holds; None if it is broken and has to be made again."""
        try:
            read_index(kept, _INDEX)
            source = self._through(job, _only_entry(kept), options, progress)
        except (MalformedTraceError, ExportFailedError, OSError, ValueError):
            return None
        return None if any(f.code == "damaged_table" for f in source.findings) else source

    def _through(self, job: _Job, made: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Read the export under the name of the report; the version is that of the nsys that recorded."""

        def second_half(what: str, fraction: float) -> None:
            progress(what, _EXPORT_SHARE + fraction * (1 - _EXPORT_SHARE))

        if made.is_dir():
            source = read_parquet(made, str(job.shown), self.name, options, second_half)
        else:
            source = read_sqlite(made, str(job.shown), self.name, options, second_half)
        version = job.writer.partition("-")[0] if job.writer else source.info.tool_version
        return replace(source, info=replace(source.info, tool_version=version))


NSYS_REPORT = NsysReportReader()


def written_by(report: Path) -> str | None:
    """Return the version of ``nsys`` that wrote the report, as text; None if it does not say."""
    with report.open("rb") as file:
        found = _WRITER.search(file.read(128))
    return found and (found[1].replace(b"@", b".") + (found[2] or b"")).decode()


@dataclass(frozen=True, slots=True)
class _Job:
    """One report to export: the file, its name for messages, and who made it."""

    nsys: Nsys
    report: Path
    shown: Path
    writer: str | None

    @property
    def made(self) -> str:
        return _made(self.writer)


def _job(shown: Path, report: Path, options: ReadOptions) -> _Job:
    writer = written_by(report)
    try:
        nsys = find_nsys(options.nsys, version_numbers(writer or ""))
    except ExportFailedError as error:
        raise ExporterError(shown, f"{error}.", f"Name a working one, or {_elsewhere(shown)}") from error
    if nsys is None:
        raise ExporterError(
            shown,
            f"no nsys was found to export this report ({_made(writer)}).",
            f"Name one with --nsys or {ENV}, or {_elsewhere(shown)}",
        )
    return _Job(nsys, report, shown, writer)


def _made(writer: str | None) -> str:
    return f"made by nsys {writer}" if writer else "made by an unknown version of nsys"


def _elsewhere(shown: Path) -> str:
    return f"run `{_command(shown)}` where the report was recorded and pass the .sqlite file instead."


def _kept_export(job: _Job, kept: Path, progress: Progress) -> Path:
    """Export into the cache and return the export."""
    with staged(kept) as staging:
        _exported(job, staging, progress)
        write_index(staging, _INDEX, {})
    return _only_entry(kept)


def _exported(job: _Job, folder: Path, progress: Progress) -> Path:
    """Export into an empty folder and return the export."""

    def first_half(what: str, fraction: float) -> None:
        progress(what, fraction * _EXPORT_SHARE)

    first_half("nsys export", 0.0)
    try:
        return export(job.nsys, job.report, folder, first_half)
    except ExportFailedError as error:
        too_old = () < job.nsys.version < version_numbers(job.writer or "")
        if too_old or "newer than your current version" in str(error):
            raise ExporterError(
                job.shown,
                f"the report ({job.made}) is newer than the nsys that was found ({job.nsys.text}, {job.nsys.path}).",
                f"Name a newer nsys with --nsys or {ENV}, or {_elsewhere(job.shown)}",
            ) from error
        raise ExporterError(
            job.shown,
            f"nsys {job.nsys.text} cannot export the report ({job.made}): {error}",
            f"If the report was copied, check that the copy is whole; otherwise {_elsewhere(job.shown)}",
        ) from error


def _command(report: Path) -> str:
    stem = report.name.removesuffix(".gz").removesuffix(".zst")
    base = stem.removesuffix(".nsys-rep").removesuffix(".qdrep")
    return f"nsys export --type sqlite --output {base}.sqlite {stem}"


def _only_entry(folder: Path) -> Path:
    entries = [p for p in folder.iterdir() if p.name.startswith("export")]
    if len(entries) != 1:
        raise ExportFailedError("the kept export is incomplete")
    return entries[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _plain_report(path: Path) -> Iterator[Path]:
    """Yield the report without compression: itself, or a temporary copy that is deleted afterwards."""
    if ByteStream(path).compression is None:
        yield path.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="gapscope-") as folder:
        copy = Path(folder) / "report.nsys-rep"
        damage = copy_decompressed(path, copy)
        if damage:
            raise MalformedTraceError(path, f"{damage}.", "Copy or compress the file again.")
        yield copy

"""Recordings behind URLs (object storage, web servers, archives): found and fetched with fsspec.

A file is fetched whole into the cache folder, read, and removed; its tables stay in the cache as those of any other
file, and are found again without fetching where the storage tells that the object has not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.entries import sealed, unsealed, write_at_once
from gapscope.errors import InputError, UsageError
from gapscope.inputs import EXPORT_SUFFIXES, REPORT_SUFFIXES, names_export_table
from gapscope.version import VERSION

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")
_HERE = ("file://", "local://")
_VERSION_KEYS = ("etag", "checksum", "md5", "md5hash", "crc32c", "generation", "version_id", "mtime", "lastmodified",
                 "last_modified", "updated", "created")  # fmt: skip
"""Names, in lower case, under which storages tell that an object is still the same."""
_LEFT_S = 3600.0  # containers can share the folder and the name of their host, but not their numbers of processes


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file (or parquet folder) behind a URL.

    Attributes:
        url: Where it is, as fsspec takes it.
        named: See `gapscope.inputs.InputFile`.
        stand_in: See there.
        is_folder: True for a parquet export.
        size_bytes: How large it is; None if the storage does not say.
    """

    url: str
    named: bool
    stand_in: RemoteFile | None = None
    is_folder: bool = False
    size_bytes: int | None = None


def is_url(given: str) -> bool:
    """Tell if a name is a URL of something that is not a plain path of this machine.

    >>> is_url("s3://bucket/run1/*.json.gz"), is_url("run1/rank0.json"), is_url("file:///data/rank0.json")
    (True, False, False)
    """
    return bool(_URL.match(given)) and not given.startswith(_HERE)


def without_scheme(given: str) -> str:
    """Return a ``file://`` URL as a path, anything else as it is."""
    return next((given.removeprefix(scheme) for scheme in _HERE if given.startswith(scheme)), given)


def expand_url(given: str) -> list[RemoteFile]:
    """Return the files behind a URL of a file, a folder or a pattern, ordered by URL.

    As in `gapscope.inputs.expand` an export beside its report stands in for it, and a parquet export is one file.

    Raises:
        UsageError: There is nothing, it cannot be looked into, or the driver of its storage is not installed.
    """
    try:
        storage, path = _storage(given)
        if any(c in path for c in "*["):  # a question mark begins the query of a web address
            found = storage.glob(path, detail=True)
        # Asked before whether it is a folder: to find out, a web server is made to send the whole file.
        elif (known := _info(storage, path)) is not None and known["type"] == "file":
            return [RemoteFile(given, named=True, size_bytes=_bytes(known))]
        elif storage.isdir(path):
            inside = storage.find(path, detail=True)
            below = len(path.rstrip("/"))
            found = {name: info for name, info in inside.items() if not _hidden(name[below:])}
        else:
            found = {}
        return _files(storage, given, found)
    except UsageError:
        raise
    except Exception as error:  # each storage has errors of its own
        raise UsageError(f"{given}: cannot be looked into ({_said(error)}).") from error


def _info(storage: Any, path: str) -> Mapping[str, Any] | None:
    """Return what the storage says of an object; None: nothing."""
    if path.endswith("/"):
        return None
    try:
        return dict(storage.info(path))
    except FileNotFoundError:
        return None


def _files(storage: Any, given: str, found: Mapping[str, Mapping[str, Any]]) -> list[RemoteFile]:
    """Return the files of a listing; parts of parquet exports as one, exports beside their report as its stand-in."""
    sizes: dict[str, int | None] = {}
    for name, info in found.items():
        if info["type"] == "file":
            sizes[name] = _bytes(info)
        elif any(names_export_table(str(part).rpartition("/")[2]) for part in storage.ls(name, detail=False)):
            sizes[name] = None
    parts = {name for name in sizes if names_export_table(name.rpartition("/")[2])}
    folders = {name.rpartition("/")[0] for name in parts} | {n for n in sizes if found[n]["type"] != "file"}
    names = {n for n in sizes if n.rpartition("/")[0] not in folders} | folders
    if not names:
        raise UsageError(f"{given}: there is no such file, and as a pattern it matches nothing.")

    def file(name: str, stand_in: RemoteFile | None = None) -> RemoteFile:
        url = str(storage.unstrip_protocol(name)) + "".join(given.partition("::")[1:])
        return RemoteFile(url, False, stand_in, name in folders, sizes.get(name))

    out = []
    for name in sorted(names):
        stem = next((name.removesuffix(s) for s in EXPORT_SUFFIXES if name.endswith(s)), None)
        if stem is not None and any(stem + s in names for s in REPORT_SUFFIXES):
            continue
        report = next((name.removesuffix(s) for s in REPORT_SUFFIXES if name.endswith(s)), None)
        twin = None if report is None else next((report + s for s in EXPORT_SUFFIXES if report + s in names), None)
        out.append(file(name, None if twin is None else file(twin)))
    return out


@contextlib.contextmanager
def fetched(file: RemoteFile, cache_dir: Path | None) -> Iterator[Path]:
    """Give a copy of a file on this machine, under its own name; it is removed afterwards.

    Args:
        file: The file.
        cache_dir: The cache folder: the copy lies in ``fetched/`` there, so that its disk is the one that has to have
            room; None: in the folder for temporary files.

    Raises:
        InputError: It cannot be fetched.
    """
    with _folder(cache_dir) as folder:
        try:
            storage, path = _storage(file.url)
            target = folder / (path.rstrip("/").rpartition("/")[2] or "recording")
            if file.is_folder:
                target.mkdir()
                for part in storage.ls(path, detail=False):
                    storage.get_file(part, str(target / str(part).rpartition("/")[2]))
            else:
                storage.get_file(path, str(target))
        except FileNotFoundError as error:
            raise InputError(file.url, "is not there any more.", "Run again on what is there now.") from error
        except UsageError as error:
            raise InputError(file.url, f"cannot be fetched: {error}") from error
        except Exception as error:  # each storage has errors of its own
            raise InputError(file.url, f"cannot be fetched ({_said(error)}).") from error
        if file.size_bytes is not None and target.stat().st_size != file.size_bytes:
            raise InputError(
                file.url,
                f"{target.stat().st_size:,} bytes came, {file.size_bytes:,} were announced.",
                "Run again, once it is no longer written.",
            )
        yield target


@dataclass(frozen=True)
class Memo:
    """Which tables in the cache are those of an object in a storage.

    Attributes:
        path: Where this is kept.
        stamp: What tells that the object is the same.
        entry: The tables; None if they are not known.
    """

    path: Path
    stamp: str
    entry: Path | None

    def remember(self, entry: Path) -> None:
        """Keep that ``entry`` has the tables of the object."""
        with contextlib.suppress(OSError):
            write_at_once(self.path, sealed(json.dumps({"stamp": self.stamp, "entry": entry.name})))


def memo_of(file: RemoteFile, cache_dir: Path | None, how: str) -> Memo | None:
    """Return what the cache knows of an object; None without a cache, or if the storage tells no version of it.

    Args:
        file: The object.
        cache_dir: The cache.
        how: All that decides, beside its content, what its tables are.
    """
    if cache_dir is None or file.is_folder:
        return None
    try:
        storage, path = _storage(file.url)
        info = {str(k).lower().replace("-", ""): v for k, v in storage.info(path).items()}
    except Exception:  # fetching says what is wrong
        return None
    if not any(info.get(key) for key in _VERSION_KEYS):
        return None
    stamp = repr([how, VERSION, info.get("size"), *(str(info.get(key)) for key in _VERSION_KEYS)])
    name = hashlib.blake2b(file.url.encode("utf-8", "backslashreplace"), digest_size=20).hexdigest()
    memo, entry = cache_dir / "digests" / f"{name}-url.json", None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(unsealed(memo.read_text()))
        if known["stamp"] == stamp:
            entry = cache_dir / "tables" / Path(known["entry"]).name
    return Memo(memo, stamp, entry)


@contextlib.contextmanager
def _folder(cache_dir: Path | None) -> Iterator[Path]:
    """Give a folder of its own; what killed runs left is removed on the way."""
    parent = None if cache_dir is None else cache_dir / "fetched"
    if parent is not None:
        with contextlib.suppress(OSError):
            parent.mkdir(exist_ok=True)
            for old in parent.iterdir():
                if time.time() - old.stat().st_mtime > _LEFT_S and not _is_alive(old.name):
                    shutil.rmtree(old, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{os.uname().nodename}.{os.getpid()}.", dir=parent))
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise InputError(str(where), f"cannot be written to ({error.strerror or error}).") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(name: str) -> bool:
    """Tell if the process that named a folder may still use it; of other hosts that cannot be known."""
    host, _, rest = name.rpartition(".")[0].rpartition(".")
    if host != os.uname().nodename or not rest.isdecimal():
        return True
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _storage(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there.

    Raises:
        UsageError: fsspec or its driver is not installed, or there is none.
    """
    try:
        import fsspec  # noqa: PLC0415 - only URLs need it
    except ImportError as error:
        raise UsageError(f"{url}: URLs are read with fsspec. Install it: pip install fsspec") from error
    try:
        storage, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: the package that reads it is not installed ({_said(error)}).") from error
    except ValueError as error:
        raise UsageError(f"{url}: {_said(error)}.") from error
    return storage, str(path)


def _said(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _bytes(info: Mapping[str, Any]) -> int | None:
    size = info.get("size")
    return size if isinstance(size, int) else None

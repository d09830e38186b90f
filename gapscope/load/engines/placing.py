"""Where each file of a cluster is read: decided from what each node sees, without asking any of them again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gapscope.errors import UsageError
from gapscope.findings import plural
from gapscope.load.engines.base import Asked
from gapscope.load.one_file import shown_path

_READING_BYTES, _PER_BYTE, _PER_COMPRESSED_BYTE = 256 << 20, 2, 16

HERE = ""
"""The driver: the process that asked. It may run on no node of the cluster."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One file as one place sees it.

    Attributes:
        path: Its absolute path there.
        key: The same with links resolved.
        shown: Its name as the user typed it.
        named: See `gapscope.inputs.InputFile`.
        stand_in: See there; None if there is none.
        size_bytes: Its size; of a folder that of all files in it.
        mtime_ns: When it was last written.
        digest: Digest of its first and last bytes.
        is_whole: The digest is that of all its bytes.
    """

    path: str
    key: str
    shown: str
    named: bool
    stand_in: str | None
    size_bytes: int
    mtime_ns: int
    digest: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster that is alive.

    Attributes:
        id: Its id.
        label: Its name for people: of all nodes no two have the same.
        cpus: Processors that it lends.
        memory_bytes: Memory that it lends.
    """

    id: str
    label: str
    cpus: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Placed:
    """One file, and where it can be read.

    Attributes:
        seen: The file as each place sees it, by node id or `HERE`.
        shown: Its name in reports: as typed; with the name of its node where only a node has it, or where other
            nodes have other files of this path.
        job: The job it is of; None where the marks tell it.
        named: The user named it.
    """

    seen: Mapping[str, Seen]
    shown: str
    job: str | None
    named: bool

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return next(iter(self.seen.values())).size_bytes


Listing = Sequence[Sequence[Seen] | str]
"""What one place sees behind each thing asked for: files, or why there are none."""


def same_file(one: Seen, other: Seen) -> bool:
    """Tell if two places see one file: on a shared file system, or a copy that keeps its time.

    Of a small file the content alone decides.
    """
    alike = one.size_bytes == other.size_bytes and one.digest == other.digest
    return alike and (one.mtime_ns == other.mtime_ns or (one.is_whole and other.is_whole))


def place(asked: Sequence[Asked], listings: Mapping[str, Listing], nodes: Sequence[Node]) -> list[Placed]:
    """Return the files behind what was asked for, each once, ordered by path, then by node.

    Args:
        asked: What the user named.
        listings: What the driver (`HERE`, first) and each node see of it.
        nodes: The nodes.

    Raises:
        UsageError: Something is nowhere.
    """
    order = [HERE, *(node.id for node in nodes)]
    for number, a in enumerate(asked):
        if all(isinstance(listings[p][number], str) for p in order if p in listings):
            raise UsageError(_nowhere(a.given, str(listings[HERE][number]), sum(n.id in listings for n in nodes)))
    files = _Files()
    for where in order:
        for a, entries in zip(asked, listings.get(where, ()), strict=False):
            for seen in [] if isinstance(entries, str) else entries:
                files.add(where, seen, a.job)
    labels = {node.id: node.label for node in nodes}
    placed = []
    for file in files.all:
        first, seen = next(iter(file.seen.items()))
        shown = seen.shown
        if files.differ(seen) or (first != HERE and len(file.seen) == 1):
            shown = f"{_label(file.seen, labels)}:{shown_path(Path(seen.path))}"
        placed.append((Path(seen.key), order.index(first), Placed(file.seen, shown, file.job, file.named)))
    return [p for _, _, p in sorted(placed, key=lambda row: row[:2])]


@dataclass(eq=False)
class _File:
    """A file while places are gone through."""

    seen: dict[str, Seen] = field(default_factory=dict)
    job: str | None = None
    named: bool = False

    def takes(self, where: str, seen: Seen) -> bool:
        """Tell if what one place sees is this file; two names of one place lead to it only by a link."""
        if where in self.seen:
            return self.seen[where].key == seen.key
        return any(same_file(seen, other) for other in self.seen.values())

    def add(self, where: str, seen: Seen, job: str | None) -> None:
        if where not in self.seen or (seen.named and not self.seen[where].named):
            self.seen[where] = seen
        self.job, self.named = job or self.job, self.named or seen.named


class _Files:
    """The files of all places, each once."""

    def __init__(self) -> None:
        self.all: list[_File] = []
        self._by_path: dict[str, list[_File]] = {}

    def add(self, where: str, seen: Seen, job: str | None) -> None:
        """Add what one place sees: to the file of that path which it is, else as a file of its own."""
        known = [self._by_path.setdefault(path, []) for path in dict.fromkeys((seen.path, seen.key))]
        file = next((f for files in known for f in files if f.takes(where, seen)), None)
        if file is None:
            file = _File()
            self.all.append(file)
        file.add(where, seen, job)
        for files in known:
            if file not in files:
                files.append(file)

    def differ(self, seen: Seen) -> bool:
        """Tell if places have different files of this path."""
        return any(len(self._by_path[path]) > 1 for path in (seen.path, seen.key))


def candidates(placed: Placed, nodes: Sequence[Node]) -> list[str]:
    """Return where a file can be read, best first: nodes that lend processors, the driver, other nodes."""
    of = [node for node in nodes if node.id in placed.seen]
    here = [HERE] if HERE in placed.seen else []
    return [*(n.id for n in of if n.cpus >= 1), *here, *(n.id for n in of if n.cpus < 1)]


def is_everywhere(placed: Placed, nodes: Sequence[Node]) -> bool:
    """Tell if every node that lends processors sees the file under one path, so that any of them can read it."""
    lending = [node for node in nodes if node.cpus >= 1]
    paths = {seen.path for where, seen in placed.seen.items() if where != HERE}
    return bool(lending) and len(paths) == 1 and all(node.id in placed.seen for node in lending)


def share_out(placed: Sequence[Placed], nodes: Sequence[Node]) -> list[str]:
    """Return for each file where it is read: the largest first, each where the least waits per processor."""
    cpus = {HERE: 1.0} | {node.id: max(node.cpus, 1.0) for node in nodes}
    lends = {node.id for node in nodes if node.cpus >= 1}
    waiting: Counter[str] = Counter()
    out = [HERE] * len(placed)
    for number in sorted(range(len(placed)), key=lambda n: -placed[n].size_bytes):
        size = placed[number].size_bytes
        possible = candidates(placed[number], nodes)
        best = [c for c in possible if c in lends] or possible[:1]
        out[number] = min(best, key=lambda c: (waiting[c] + size) / cpus[c])
        waiting[out[number]] += size
    return out


def memory_bytes(size_bytes: int, name: str, nodes: Sequence[Node]) -> int:
    """Return how much memory Ray sets aside for reading a file, so that a node does not read too many at once.

    Readers keep less than they read, so this is a rough bound by size; never more than half of what a node lends.
    """
    compressed = name.endswith((".gz", ".zst"))
    wanted = _READING_BYTES + size_bytes * (_PER_COMPRESSED_BYTE if compressed else _PER_BYTE)
    return min(wanted, *(node.memory_bytes // 2 for node in nodes), wanted)


def with_labels(hosts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a name for people for each node: its host, with the start of its id where hosts have several nodes.

    Args:
        hosts: Id and host of each node.
    """
    pairs = list(hosts)
    count = Counter(host for _, host in pairs)
    return {id_: host if count[host] == 1 else f"{host}/{id_[:8]}" for id_, host in pairs}


def _label(seen: Mapping[str, Seen], labels: Mapping[str, str]) -> str:
    """Return the name of the first node that sees a file; of a driver that is no node, the name of its machine."""
    return next((labels[where] for where in seen if where != HERE), os.uname().nodename)


def _nowhere(given: str, why: str, n_nodes: int) -> str:
    """Return that nothing is behind ``given``."""
    if not n_nodes:
        return why
    return f"{given}: there is no such file on this machine or on the {plural(n_nodes, 'node')} of the cluster ({why})"

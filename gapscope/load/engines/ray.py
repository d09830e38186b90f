"""The engine of many machines: one Ray task per file, on a node that has it.

Retries are made here and not by Ray: only here it is known on which nodes a file lies, and Ray alone would repeat a
task that needs too much memory without end.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gapscope import cache
from gapscope.errors import InputError, UsageError
from gapscope.inputs import InputFile, expand
from gapscope.load.engines import node
from gapscope.load.engines.base import Asked, Recording
from gapscope.load.engines.local import Parts, find_urls
from gapscope.load.engines.placing import (
    HERE,
    Listing,
    Node,
    Placed,
    Seen,
    candidates,
    is_everywhere,
    memory_bytes,
    place,
    share_out,
    with_labels,
)
from gapscope.load.engines.wire import from_wire
from gapscope.load.fetching import RemoteFile, is_url, without_scheme
from gapscope.load.one_file import Read, read_file
from gapscope.readers.base import Progress, ReadOptions

ANYWHERE = "anywhere"
"""Place of a file that every node can read: Ray chooses."""
_ATTEMPTS = 3
_ANSWER_S = 10.0
_SAME = "All nodes need the versions of the driver."


class RayEngine:
    """Reads files on the nodes of a Ray cluster.

    Args:
        address: Address of the cluster; None: ``RAY_ADDRESS``, else one that runs here, else one is started.
        workers: Files read at once; None: as many as the cluster has processors for.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        try:
            import ray  # noqa: PLC0415 - importing it takes a second
        except ImportError as error:
            raise UsageError("The engine ray needs Ray. Install it: pip install 'gapscope[ray]'") from error
        self._ray: Any = ray
        self._address, self._workers = address, workers
        self._nodes: list[Node] = []
        self._placed: list[Placed] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        """Connect to the cluster, unless the program is connected already; that connection is left as it was.

        Raises:
            UsageError: There is no cluster at the address.
        """
        own = not self._ray.is_initialized()
        if own:
            self._connect()
        try:
            self._nodes = self._alive()
            yield
        finally:
            if own:
                self._ray.shutdown()

    def find(self, asked: Sequence[Asked]) -> list[Recording]:
        """Return the recordings; see `gapscope.load.engines.base.Engine`. Paths are looked for on every node."""
        if not asked:
            expand([])
        paths = [replace(a, given=without_scheme(a.given)) for a in asked if not is_url(a.given)]
        self._placed = place(paths, self._listings([a.given for a in paths]), self._nodes) if paths else []
        found = [
            Recording(_file(next(iter(p.seen.values())), p), p.shown, p.job, number)
            for number, p in enumerate(self._placed)
        ]
        return [*found, *find_urls(asked)]

    def read(self, recordings: Sequence[Recording], options: ReadOptions, progress: Progress) -> list[Read]:
        """Return what became of each recording; see `gapscope.load.engines.base.Engine`."""
        places = dict(zip(map(id, self._placed), share_out(self._placed, self._nodes), strict=True))
        jobs = []
        for number, recording in enumerate(recordings):
            placed = None if isinstance(recording.file, RemoteFile) else self._placed[recording.number]
            if placed is None:
                where = HERE if _is_of_process(recording.file) or not self._nodes else ANYWHERE
            else:
                where = ANYWHERE if is_everywhere(placed, self._nodes) else places[id(placed)]
            jobs.append(_Job(number, recording, placed, where))
        return _Reading(self._ray, self._nodes, options, self._workers, Parts(progress, len(jobs))).all(jobs)

    def _connect(self) -> None:
        address = self._address or os.environ.get("RAY_ADDRESS") or None
        if address is not None:
            _knock(address)
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that is started here
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            at = f" at {address}" if address else ""
            said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UsageError(
                f"Cannot connect to a Ray cluster{at} ({said}). Start one with ray start, or name its address with "
                "--ray-address. A cluster that asks for a token (RAY_AUTH_MODE=token) needs the same token here: see "
                "ray get-auth-token."
            ) from error

    def _alive(self) -> list[Node]:
        rows = [row for row in self._ray.nodes() if row["Alive"]]
        labels = with_labels((row["NodeID"], row["NodeManagerHostname"]) for row in rows)
        return [
            Node(id_, labels[id_], row["Resources"].get("CPU", 0.0), int(row["Resources"].get("memory", 0.0)))
            for row in sorted(rows, key=lambda row: (labels[row["NodeID"]], row["NodeID"]))
            for id_ in [row["NodeID"]]
        ]

    def _listings(self, given: Sequence[str]) -> dict[str, Listing]:
        """Return what the driver and each node see behind paths and patterns."""
        listings: dict[str, Listing] = {HERE: _listing(node.look(given))}
        absolute = [os.path.abspath(g) if g else g for g in given]  # noqa: PTH100 - a pattern is no path
        look = self._ray.remote(node.look)
        refs = {
            n.id: look.options(num_cpus=0, max_retries=0, scheduling_strategy=_pinned(n.id)).remote(absolute)
            for n in self._nodes
        }
        for n in self._nodes:
            try:
                answer = self._ray.get(refs[n.id])
            except self._ray.exceptions.RayTaskError as error:
                raise _cannot_run(n.label, error) from error
            except self._ray.exceptions.RuntimeEnvSetupError as error:
                raise _cannot_run(n.label, error) from error
            except self._ray.exceptions.RayError:
                continue  # a node that went away has no files
            _check(answer["versions"], n.label)
            listings[n.id] = _listing(answer)
        self._nodes = [n for n in self._nodes if n.id in listings]
        return listings


@dataclass(eq=False)
class _Job:
    """One file that is to be read.

    Attributes:
        number: Its place in the results.
        recording: The file.
        placed: Where it lies; None if it is behind a URL.
        where: Node id, `HERE` or `ANYWHERE`: where it is read next.
        tried: How often it was tried where.
        without: Places that it is gone from.
        failures: What went wrong, in words.
        alone: Read it where no other file is being read: memory was short.
        resend: Its tables were thought to be in the cache of the driver, and are not.
    """

    number: int
    recording: Recording
    placed: Placed | None
    where: str
    tried: Counter[str] = field(default_factory=Counter)
    without: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    alone: bool = False
    resend: bool = False

    @property
    def size_bytes(self) -> int:
        if self.placed is not None:
            return self.placed.size_bytes
        return (self.recording.file.size_bytes if isinstance(self.recording.file, RemoteFile) else 0) or 0


class _Reading:
    """Reads files on the nodes of a cluster, a few more at once than it has processors for."""

    def __init__(
        self, ray: Any, nodes: Sequence[Node], options: ReadOptions, workers: int | None, parts: Parts
    ) -> None:
        self._ray, self._nodes, self._options, self._parts = ray, nodes, options, parts
        self._labels = {n.id: n.label for n in nodes}
        self._limit = workers or max(2, 2 * int(sum(n.cpus for n in nodes)))
        self._task = ray.remote(node.read)
        self._queue: deque[_Job] = deque()
        self._running: dict[Any, _Job] = {}
        self._here: dict[int, Future[Read]] = {}
        self._results: dict[int, Read] = {}

    def all(self, jobs: Sequence[_Job]) -> list[Read]:
        """Return what became of each file."""
        tables = None if self._options.cache_dir is None else self._options.cache_dir / "tables"
        kept = frozenset() if tables is None or not tables.is_dir() else frozenset(e.name for e in tables.iterdir())
        self._known, self._nothing = self._ray.put(kept), self._ray.put(frozenset())
        self._queue.extend(sorted(jobs, key=lambda job: -job.size_bytes))
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as self._pool:
            try:
                while self._queue or self._running:
                    self._start()
                    if self._running:
                        done, _ = self._ray.wait(list(self._running), num_returns=1)
                        self._finish(done[0], self._running.pop(done[0]))
            finally:
                for ref in self._running:
                    with suppress(self._ray.exceptions.RayError):
                        self._ray.cancel(ref, force=True)
                self._running.clear()
        self._results |= {number: read.result() for number, read in self._here.items()}
        return [self._results[job.number] for job in jobs]

    def _start(self) -> None:
        """Start what can be read now."""
        while self._queue and (len(self._running) < self._limit or self._queue[0].where == HERE):
            job = self._queue.popleft()
            file = job.recording.file if job.placed is None else _file(self._seen(job), job.placed)
            job.tried[job.where] += 1
            if job.where == HERE:
                self._here[job.number] = self._pool.submit(self._read_here, job, file)
                continue
            explicit = self._options.cache_dir
            options = replace(self._options, cache_dir=None if explicit == cache.default_cache_dir() else explicit)
            known = self._nothing if job.resend else self._known
            ref = self._task.options(**self._resources(job)).remote(
                file,
                job.recording.shown,
                options,
                use_cache=explicit is not None,
                expected=node.versions(),
                known=known,
            )
            self._running[ref] = job

    def _read_here(self, job: _Job, file: InputFile | RemoteFile) -> Read:
        try:
            return read_file(file, job.recording.shown, self._options, self._parts.of(job.number))
        finally:
            self._done(job)

    def _seen(self, job: _Job) -> Seen:
        """Return the file as the place sees it where it is read."""
        assert job.placed is not None
        if job.where != ANYWHERE:
            return job.placed.seen[job.where]
        return next(seen for where, seen in job.placed.seen.items() if where != HERE)

    def _resources(self, job: _Job) -> dict[str, Any]:
        """Return what Ray has to set aside for a task, and where it goes."""
        lending = [n for n in self._nodes if n.cpus >= 1]
        on = [n for n in self._nodes if n.id == job.where] or lending or list(self._nodes)
        memory = memory_bytes(job.size_bytes, job.recording.shown, on)
        if job.alone:
            memory = min(n.memory_bytes for n in on) * 9 // 10
        strategy: Any = "SPREAD" if job.where == ANYWHERE else _pinned(job.where)
        cpus = 1 if min(n.cpus for n in on) >= 1 else 0
        return {"num_cpus": cpus, "memory": memory, "max_retries": 0, "scheduling_strategy": strategy}

    def _finish(self, ref: Any, job: _Job) -> None:
        """Take what a task brought, or see that the file is read elsewhere."""
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.OutOfMemoryError:
            job.alone = True
            self._again(job, "the process that read it was killed because its node was short of memory")
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            raise _cannot_run(self._label(job.where), error) from error
        except (errors.NodeDiedError, errors.TaskUnschedulableError):
            self._again(job, "its node went away")
        except errors.ObjectLostError:
            self._again(job, "the node that had its tables went away")
        except errors.WorkerCrashedError:
            self._again(job, "the process that read it died")
        except errors.RayError as error:
            self._again(job, _first_line(error))
        else:
            self._take(answer, job)

    def _take(self, answer: Mapping[str, Any], job: _Job) -> None:
        """Keep what a task brought."""
        _check(answer["versions"], answer["host"])
        if answer.get("is_gone"):
            job.without.add(job.where)
            self._again(job, f"it was there when files were looked for, and is gone from {answer['host']}")
            return
        read = from_wire(answer, self._options.cache_dir)
        if read is None:
            job.resend = True
            self._queue.append(job)
            return
        self._results[job.number] = read
        self._done(job)

    def _again(self, job: _Job, why: str) -> None:
        """Have a file read once more, where it is read best after what went wrong; give it up if there is no place."""
        on = "" if job.where == ANYWHERE else f" on {self._label(job.where)}"
        job.failures.append(f"{why}{on}")
        alive = {row["NodeID"] for row in self._ray.nodes() if row["Alive"]}
        if job.placed is None:
            possible = [ANYWHERE] if alive else []
        else:
            places = candidates(job.placed, self._nodes)
            possible = [p for p in places if (p == HERE or p in alive) and p not in job.without]
            if ANYWHERE in job.without:
                possible = [p for p in possible if p == HERE]
        if possible and len(job.failures) < _ATTEMPTS:
            job.where = min(possible, key=lambda place: job.tried[place])
            self._queue.append(job)
            return
        self._results[job.number] = Read(self._lost(job, bool(possible)))
        self._done(job)

    def _lost(self, job: _Job, is_there: bool) -> InputError:
        """Return why a file is given up."""
        count = Counter(job.failures)
        told = "; ".join(text if n == 1 else f"{n} times {text}" for text, n in count.items())
        if job.alone:
            step = "Read it on a node with more memory, or keep less of it: record fewer steps."
        elif job.without:
            step = "Run again on what is there now."
        elif is_there:
            step = "Run again; the logs of Ray on that node say why."
        else:
            step = "Bring the node back, or copy the file to where another node or this machine sees it, and run again."
        return InputError(job.recording.shown, f"was not read: {told}.", step)

    def _done(self, job: _Job) -> None:
        on = f" on {self._labels[job.where]}" if job.where in self._labels else ""
        self._parts.done(job.number, f"reading {Path(job.recording.shown).name}{on}")

    def _label(self, where: str) -> str:
        return self._labels.get(where, "a node of the cluster")


def _knock(address: str) -> None:
    """Raise if nobody listens at an address ``host:port``: Ray itself tries for minutes before it says so."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdecimal():
        return  # auto, or another way to connect
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"Nothing answers at the address of the Ray cluster, {address} ({error}). Start one with ray start, or "
            "name its address with --ray-address."
        ) from error


def _file(seen: Seen, placed: Placed) -> InputFile:
    return InputFile(Path(seen.path), placed.named, None if seen.stand_in is None else Path(seen.stand_in))


def _is_of_process(file: RemoteFile | InputFile) -> bool:
    """Tell if only this process can read a URL: nobody else has its memory."""
    return isinstance(file, RemoteFile) and file.url.startswith("memory://")


def _listing(answer: Mapping[str, Any]) -> Listing:
    return [entries if isinstance(entries, str) else [Seen(**e) for e in entries] for entries in answer["listing"]]


def _pinned(node_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _check(versions: Mapping[str, str], label: str) -> None:
    """Raise if a node runs something else than the driver."""
    own = node.versions()
    other = {name: theirs for name, theirs in versions.items() if theirs != own.get(name)}
    if other:
        differ = ", ".join(f"{name} {theirs} there and {own.get(name)} here" for name, theirs in other.items())
        raise UsageError(f"{label} has other versions: {differ}. {_SAME}")


def _cannot_run(label: str, error: Exception) -> UsageError:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    said = next((line.strip() for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")
    return UsageError(f"gapscope does not run on {label} ({said}). Install gapscope[ray] there. {_SAME}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")

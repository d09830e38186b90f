"""Reader of torch.profiler files: Chrome trace JSON as Kineto writes it, plain, gzip or zstd, whole or cut."""

from __future__ import annotations

import re
from pathlib import Path

from gapscope.errors import InputError
from gapscope.readers.base import Progress, ReadOptions, SourceTables

_NAME = "torch.profiler JSON"
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_KINETO_KEYS = re.compile(rb'"(?:baseTimeNanoseconds"\s*:\s*"?\d|deviceProperties"\s*:\s*\[|distributedInfo"\s*:\s*\{)')
_BARE_LIST = re.compile(rb'\[\s*\{[^{}\[\]]*"ph"\s*:\s*"')


class KinetoReader:
    """Reads the Chrome trace JSON of torch.profiler."""

    name = _NAME
    version = 3

    def sniff(self, path: Path, head: bytes) -> bool:
        """Tell by content if the file is a Chrome trace that torch.profiler may have written.

        Metadata before the event list can be longer than ``head``: the keys that only Kineto writes count, too.
        """
        del path
        head = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if head.startswith(b"{"):
            return bool(_EVENTS.search(head) or _KINETO_KEYS.search(head))
        return head.startswith(b"[") and bool(_BARE_LIST.match(head))

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Read the file.

        Raises:
            MalformedTraceError: It holds no events that can be used.
            InputError: It cannot be opened or read.
        """
        del options
        # The compiler behind the scanner takes half a second to load: only who reads such a file waits for it.
        from gapscope.readers.kineto_source import read_source  # noqa: PLC0415

        try:
            return read_source(path, self.name, progress)
        except OSError as error:
            raise InputError(path, f"cannot be read ({error.strerror or error}).") from error


KINETO = KinetoReader()

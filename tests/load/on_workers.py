"""What the workers of the test cluster do besides: fail as the test says, and see files of their own node.

A worker calls `install` when it starts. From then on reading does what files below ``GAPSCOPE_TEST_CONTROL`` ask:

=====================  ====================================================================================
``die_once/NAME``      the process dies when it reads the file of that name, and the order with it
``die/NAME``           it dies each time
``out_of_memory/NAME`` reading ends as if Ray had killed the process for memory
``vanish/NAME``        the file is deleted just before it is read
``hold/NAME``          reading waits; ``held/NAME`` then tells on which node
``cache_all``          small files go through the cache, too
``other_version``      the worker runs another version
``nodes/NODE/...``     what this node alone sees, as ``/node-local/...``
=====================  ====================================================================================
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

LOCAL = "/node-local"


def install():
    from gapscope import cache
    from gapscope.inputs import InputFile
    from gapscope.load.engines import node

    control = Path(os.environ["GAPSCOPE_TEST_CONTROL"])
    own = str(control / "nodes" / os.environ["GAPSCOPE_TEST_NODE"])
    real_look, real_read, real_versions = node.look, node.read, node.versions

    def look(asked):
        answer = real_look([given.replace(LOCAL, own) for given in asked])
        for entries in answer["listing"]:
            for seen in [] if isinstance(entries, str) else entries:
                for key in ("path", "key", "shown"):
                    seen[key] = seen[key].replace(own, LOCAL)
        return answer

    def read(file, shown, options, **others):
        if isinstance(file, InputFile):
            file = replace(file, path=Path(str(file.path).replace(LOCAL, own)))
            _obey(control, file.path)
        cache.MIN_CACHED_BYTES = 0 if (control / "cache_all").exists() else 4 << 20
        return real_read(file, shown, options, **others)

    def versions():
        other = {"gapscope": "0.0.1"} if (control / "other_version").exists() else {}
        return real_versions() | other

    node.look, node.read, node.versions = look, read, versions


def _obey(control, path):
    name = path.name
    once = control / "die_once" / name
    if once.exists():
        once.unlink()
        os._exit(1)
    if (control / "die" / name).exists():
        os._exit(1)
    if (control / "out_of_memory" / name).exists():
        from ray.exceptions import OutOfMemoryError

        raise OutOfMemoryError("the node is full")
    if (control / "vanish" / name).exists():
        path.unlink(missing_ok=True)
    if (control / "hold" / name).exists():
        (control / "held" / name).write_text(os.environ["GAPSCOPE_TEST_NODE"])
        while (control / "hold" / name).exists():
            time.sleep(0.02)

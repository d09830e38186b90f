"""Loaded by Python when it starts, in jobs run by ``python -m gapscope_instrumentation``: loads the marks.

It stands in for a ``sitecustomize`` that the job may have itself, and loads that one as well.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be loaded into every process


def _load_next() -> None:
    """Load the ``sitecustomize`` that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [path for path in sys.path if os.path.abspath(path) != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _load_next()
    if os.environ.get("GAPSCOPE") or os.environ.get("GAPSCOPE_ATTACH"):
        try:
            import gapscope_instrumentation  # noqa: F401 - switches itself on
        except ImportError:  # another Python than the one that the job was started with: it has no marks
            _marks = False

"""Switches the marks on in a job that does not know of them.

``gapscope record`` and ``python -m gapscope_instrumentation`` put this file's folder first on the PYTHONPATH of the
job, so that each of its Pythons runs it at its start. A sitecustomize that the environment has runs first, as it would
have without. Nothing here may end the job: what fails is one line on stderr.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 - loads nothing that the job would not


def _run_the_other_one() -> None:
    """Run the sitecustomize that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _switch_marks_on() -> None:
    """Import the instrumentation: the one that this Python has, else the one that this file belongs to."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    name = "gapscope_instrumentation"
    if find_spec(name) is not None:
        __import__(name)
        return
    folder = os.path.dirname(_FOLDER)  # noqa: PTH120
    spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])  # noqa: PTH118
    if spec is None or spec.loader is None:
        raise ImportError("no " + name)
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


if __name__ == "sitecustomize":
    try:
        _run_the_other_one()
    finally:
        try:
            if os.environ.get("GAPSCOPE") or os.environ.get("GAPSCOPE_ATTACH"):
                _switch_marks_on()
        except Exception as error:
            sys.stderr.write("gapscope: no marks in %s (%s: %s)\n" % (sys.executable, type(error).__name__, error))  # noqa: UP031

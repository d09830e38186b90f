"""A GPU finished its kernel: what is the next stage waiting for?

`load` reads the recordings of a run, `analyze` finds its handoffs and their events::

    import gapscope

    analysis = gapscope.analyze("run/")   # .nsys-rep, exports of nsys, torch.profiler JSON
    analysis.handoffs                     # a polars frame, one row per handoff
"""

from typing import TYPE_CHECKING

from gapscope.analysis import Analysis, analyze
from gapscope.errors import (
    ExporterError,
    GapscopeError,
    IdentityError,
    InputError,
    MalformedTraceError,
    ReplayError,
    UnknownFormatError,
    UnsupportedVersionError,
    UsageError,
)
from gapscope.findings import Finding
from gapscope.handoff import Handoff
from gapscope.load import LoadOptions, load
from gapscope.phases import with_phases
from gapscope.trace import Trace
from gapscope.version import VERSION

if TYPE_CHECKING:
    from gapscope.whatif import Effects, Scenario

__version__ = VERSION

__all__ = [
    "Analysis",
    "Effects",
    "ExporterError",
    "Finding",
    "GapscopeError",
    "Handoff",
    "IdentityError",
    "InputError",
    "LoadOptions",
    "MalformedTraceError",
    "ReplayError",
    "Scenario",
    "Trace",
    "UnknownFormatError",
    "UnsupportedVersionError",
    "UsageError",
    "__version__",
    "analyze",
    "load",
    "with_phases",
]


def __getattr__(name: str) -> object:
    """Import what-if when it is asked for: all else can be imported without what computes."""
    if name not in {"Effects", "Scenario"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gapscope import whatif  # noqa: PLC0415

    return getattr(whatif, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

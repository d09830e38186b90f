"""A GPU finished its kernel: what is the next stage waiting for?

`load` reads the recordings of a run, `analyze` finds its handoffs and their events::

    import gapscope

    analysis = gapscope.analyze("run/")   # .nsys-rep, exports of nsys, torch.profiler JSON
    analysis.handoffs                     # a polars frame, one row per handoff
"""

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

"""From files to a `gapscope.trace.Trace`.

`reading` finds and reads the files, through the cache; `assembling` puts their tables together; `logs` is what mark
logs add to the traces of the same processes.
"""

from gapscope.load.assembling import assemble
from gapscope.load.reading import LoadOptions, known_origin, load

__all__ = ["LoadOptions", "assemble", "known_origin", "load"]

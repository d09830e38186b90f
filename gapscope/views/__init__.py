"""Tables for pictures: what plots, the page and the export to Perfetto draw, computed once and drawn by several.

`placed` puts everything recorded on the common timebase, lane by lane; `timeline` cuts out what surrounds one handoff.
"""

from gapscope.views.placed import Placed, place
from gapscope.views.timeline import Timeline, timeline_from, timeline_of, windows_of

__all__ = ["Placed", "Timeline", "place", "timeline_from", "timeline_of", "windows_of"]

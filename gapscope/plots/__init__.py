"""Plots: results in, figures and pages out. They draw what they are given and compute nothing but places on the paper.

Plotly is imported when a figure is made, not before. Each figure has a form of plain dictionaries (``..._spec``), which
the page takes as it is.
"""

from gapscope.plots.alignment import alignment_figure
from gapscope.plots.gaps import gaps_figure, history_figure
from gapscope.plots.held import causes_figure, phases_figure, units_figure
from gapscope.plots.html import write_figure
from gapscope.plots.timeline import timeline_figure

__all__ = [
    "alignment_figure",
    "causes_figure",
    "gaps_figure",
    "history_figure",
    "phases_figure",
    "timeline_figure",
    "units_figure",
    "write_figure",
]

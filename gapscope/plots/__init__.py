"""Plots: results in, figures and pages out. They draw what they are given and compute nothing but places on the paper.

Plotly is imported when a figure is made, not before.
"""

from gapscope.plots.alignment import alignment_figure
from gapscope.plots.html import write_figure

__all__ = ["alignment_figure", "write_figure"]

"""One page with all of an analysis, in one file that needs no network.

What has few numbers is written into the page as text (`gapscope.page.page`). What has many (handoffs, tiles, recorded
operations) travels as columns (`gapscope.page.payload`), and the page's own code (``js/``) draws them on demand.
"""

from gapscope.page.page import write_report

__all__ = ["write_report"]

"""HolisticTraceAnalysis on the ranks of a run, a process a rank: ``hta_analysis.py load|analyses FILE...``.

``load`` makes its frames; ``analyses`` adds its temporal breakdown, its idle time breakdown of all ranks and its
critical path of one step of rank 0.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    what, *paths = sys.argv[1:]
    analysis = TraceAnalysis(trace_files=dict(enumerate(paths)), trace_dir=str(Path(paths[0]).parent))
    found = {"events": sum(len(analysis.t.get_trace(rank)) for rank in range(len(paths)))}
    if what == "analyses":
        analysis.get_temporal_breakdown(visualize=False)
        analysis.get_idle_time_breakdown(ranks=list(range(len(paths))), visualize=False)
        graph, whole = analysis.critical_path_analysis(rank=0, annotation="gapscope::step", instance_id=5)
        if not whole:
            sys.exit("no critical path")
        found["nodes_of_the_critical_path"] = len(graph.nodes)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

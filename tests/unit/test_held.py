"""How far the causes in the report can be trusted."""

import io

import pytest
from rich.console import Console

from gapscope.reports.held import render_causes


def row(cause, ns):
    times = {"exposure_ns": 0, "handoff_ns": ns, "wall_ns": ns, "removable_p50_ns": 1_000}
    return {"cause": cause, "rank": 0, "handoffs": 1, "dominant": 1, **times}


def edge(gap_ns, uncertain_ns, causes):
    key = {"src_rank": 0, "dst_rank": 1, "channel": 0, "direction": None, "group": None, "transport": "nccl"}
    about = {"handoffs": 1, "gap_ns": gap_ns, "consumer_bound": 0, "uncertain_ns": uncertain_ns}
    return {**key, **about, "causes": causes}


def shown(edges, total, evidence):
    causes = {"edges": edges, "total": total, "evidence": evidence, "units": {"n": 0, "unit": None}}
    console = Console(width=1_000, file=io.StringIO(), record=True)
    for part in render_causes(causes, most=1):
        console.print(part)
    return console.export_text()


@pytest.mark.parametrize(
    ("uncertain_ns", "said"), [(0, None), (20_000, "the clocks cannot tell apart: 20%."), (1, "apart: < 1%.")]
)
def test_what_is_unexplained_or_uncertain_is_said_of_all_gap_time(uncertain_ns, said):
    """Of all edges, also those that are not shown."""
    movement, unexplained = row("movement", 70_000), row("unexplained", 30_000)
    edges = [edge(80_000, uncertain_ns, [movement, unexplained]), edge(20_000, 0, [unexplained])]
    text = shown(edges, [movement, unexplained], {"recorded": 0.7, "unknown": 0.3})
    assert "by how it is known: recorded 70%, unknown 30%. Unexplained: 30%." in text
    assert (said in text) if said else ("cannot tell" not in text)

"""Two arms compared, as text: the end of the chain first, then where the time went, then all metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gapscope.findings import plural
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, percent, signed

_FAMILIES = ("request", "latency", "step", "gap", "phase")
_LEAST_SHARE = 0.005
_VALUES_FOR_P99 = 299  # so many independent values hold the 99th percentile between their ends, 19 times in 20


def render_comparison(found: Mapping[str, Any], verbose: bool = False) -> RenderableType:
    """Return a comparison for a rich console.

    Args:
        found: What ``gapscope compare --format json`` prints: ``a`` and ``b`` (``name``, ``runs``), ``primary``,
            ``metrics``, ``closure``, ``pairs``, ``findings``.
        verbose: Show all causes as metrics of their own, and every pair of restarts.
    """
    parts: list[RenderableType] = [_headline(found), Text("")]
    primary = next((m for m in found["metrics"] if m["is_primary"]), None)
    if primary is None:
        parts.append(Text("The arms have no metric in common: nothing is compared."))
    else:
        parts += [*_verdict(primary), Text(""), render_metrics(found["metrics"], verbose)]
        for edge in closure_edges(found["closure"]):
            clock_ns = gap_clock_ns(found["metrics"], edge[0]["edge"])
            parts += [Text(""), render_closure(edge, clock_ns)]
            if words := clock_words(edge[0], clock_ns):
                parts.append(Text(words, style="dim"))
        if verbose and len(found["a"]["runs"]) + len(found["b"]["runs"]) > 2:
            parts += [Text(""), render_pairs(found["pairs"], primary["metric"])]
        parts += [Text(""), Text(note_words(primary), style="dim")]
    for finding in found["findings"]:
        parts.append(Text(f"! {finding['message']} {finding['hint']}".rstrip(), style="yellow"))
    return Group(*parts)


def _headline(found: Mapping[str, Any]) -> Text:
    one, two = found["a"], found["b"]
    return Text(f"{two['name']} against {one['name']}", style="bold").append(
        f": {plural(len(two['runs']), 'run')} against {len(one['runs'])}; a difference is {two['name']} minus "
        f"{one['name']}, less is faster",
        style="not bold",
    )


def _verdict(primary: Mapping[str, Any]) -> list[RenderableType]:
    """Return what may be said of the primary metric, and why."""
    text = Text(f"{primary['metric']}: {primary['verdict']}", style="bold")
    if primary["difference_ns"] is not None:
        text.append(f"  {change_words(primary)}", style="not bold")
    return [text, Text(f"{primary['reason'][:1].upper()}{primary['reason'][1:]}.")]


def change_words(metric: Mapping[str, Any]) -> str:
    """Return a difference with its interval, and the ratio; below what the clocks resolve it is no number."""
    clock = metric["clock_ns"] or 0
    if abs(metric["difference_ns"]) < clock:
        return f"within ± {duration(clock)} (below clock resolution)"
    words = signed(round(metric["difference_ns"]))
    if metric["low_ns"] is not None:
        words += f" [{signed(round(metric['low_ns']))} … {signed(round(metric['high_ns']))}]"
    if metric["ratio"] is not None:
        words += f", x {metric['ratio']:.3g}"
    return words


def render_metrics(metrics: Sequence[Mapping[str, Any]], verbose: bool) -> RenderableType:
    """Return one row per metric.

    Args:
        metrics: Rows of the comparison.
        verbose: Show causes as metrics of their own.
    """
    shown = [m for m in metrics if verbose or m["family"] in _FAMILIES]
    table = plain_table("", ">n", ">p50 before", ">p50 after", ">difference", "interval", ">p99", "verdict")
    table.columns[0].no_wrap = True
    for m in shown:
        if m["difference_ns"] is None:
            table.add_row(m["metric"], f"{m['n']:,}", "-", "-", "-", "", "-", m["verdict"])
            continue
        clock = m["clock_ns"] or 0
        below = abs(m["difference_ns"]) < clock
        table.add_row(
            m["metric"] + ("" if m["paired"] else " (unpaired)"),
            f"{m['n']:,}",
            duration(round(m["a_p50_ns"]), m["a_clock_ns"] or 0),
            duration(round(m["b_p50_ns"]), m["b_clock_ns"] or 0),
            f"< {duration(clock)}" if below else signed(round(m["difference_ns"])),
            "" if below else interval_words(m),
            _tail(m),
            m["verdict"],
        )
    return table


def _tail(metric: Mapping[str, Any]) -> str:
    """Return the difference of the 99th percentiles, where there are values enough to have one."""
    if metric["n_eff"] < _VALUES_FOR_P99 or metric["difference_p99_ns"] is None:
        return "n too small"
    clock, difference = metric["clock_ns"] or 0, metric["difference_p99_ns"]
    return f"< {duration(clock)}" if abs(difference) < clock else signed(round(difference))


def interval_words(metric: Mapping[str, Any]) -> str:
    """Return the interval across restarts, or the one within the only pair there is, which is named as that."""
    if metric["low_ns"] is not None:
        return f"{signed(round(metric['low_ns']))} … {signed(round(metric['high_ns']))}"
    if metric["within_low_ns"] is not None:
        return f"in this pair {signed(round(metric['within_low_ns']))} … {signed(round(metric['within_high_ns']))}"
    return ""


def closure_edges(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the rows of what gaps are made of, edge by edge."""
    return [[row for row in rows if row["edge"] == edge] for edge in dict.fromkeys(row["edge"] for row in rows)]


def gap_clock_ns(metrics: Sequence[Mapping[str, Any]], edge: str) -> int:
    """Return how far the clocks can have moved the difference of an edge's gaps."""
    known = (m["clock_ns"] for m in metrics if m["family"] == "gap" and m["edge"] == edge)
    return next((int(clock) for clock in known if clock is not None), 0)


def clock_words(gap: Mapping[str, Any], clock_ns: int) -> str:
    """Return what the clocks leave of the change of a mean gap, in words; empty where it is more than they can make."""
    if abs(gap["difference_ns"]) >= clock_ns:
        return ""
    return (
        f"The clocks can have moved the gap by {duration(clock_ns)}, and with it those parts that go from one rank to "
        "another; the parts add up all the same."
    )


def render_closure(rows: Sequence[Mapping[str, Any]], clock_ns: int = 0) -> RenderableType:
    """Return what the change of one edge's mean gap is made of; small parts in one line, so that it still adds up.

    Args:
        rows: The gap, and its causes.
        clock_ns: How far the clocks can have moved the difference of the gap; below, it is no number and has no shares.
    """
    gap, causes = rows[0], rows[1:]
    whole = gap["difference_ns"] if abs(gap["difference_ns"]) >= clock_ns else None
    table = plain_table(f"mean gap of {gap['edge']}", ">before", ">after", ">difference", ">of the change")
    least = max(abs(gap["difference_ns"]), abs(gap["a_mean_ns"]), abs(gap["b_mean_ns"])) * _LEAST_SHARE
    shown = [c for c in causes if abs(c["difference_ns"]) >= least]
    rest = [c for c in causes if abs(c["difference_ns"]) < least]
    for cause in shown:
        name = cause["cause"] + ("" if cause["rank"] is None else f" @ rank {cause['rank']}")
        table.add_row(name, *_means(cause), _part(cause["difference_ns"], whole))
    if rest:
        sums = {c: sum(row[c] for row in rest) for c in ("a_mean_ns", "b_mean_ns", "difference_ns")}
        table.add_row(f"{len(rest)} more", *_means(sums), _part(sums["difference_ns"], whole))
    before, after, difference = _means(gap)
    table.add_row(
        "gap", before, after, difference if whole is not None else f"< {duration(clock_ns)}", "", style="bold"
    )
    return table


def _means(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return duration(round(row["a_mean_ns"])), duration(round(row["b_mean_ns"])), signed(round(row["difference_ns"]))


def _part(part: float, whole: float | None) -> str:
    """Return a share of the change; parts of other signs are more than all of it, or less than nothing."""
    if whole is None:
        return ""
    return (
        f"{part / whole:.0%}" if whole and abs(part / whole) >= _LEAST_SHARE else percent(0.0) if not part else "< 1%"
    )


def render_pairs(pairs: Sequence[Mapping[str, Any]], metric: str) -> RenderableType:
    """Return one row per pair of restarts of a metric."""
    table = plain_table(f"{metric}, pair by pair", "", ">n", ">n_eff", ">difference", "within the pair", "")
    short = short_names([row[arm] for row in pairs for arm in ("run_a", "run_b")])
    for row in [p for p in pairs if p["metric"] == metric]:
        between = ""
        clock = row["clock_ns"] or 0
        below = row["difference_ns"] is not None and abs(row["difference_ns"]) < clock
        if row["low_ns"] is not None and not below:
            between = f"{signed(round(row['low_ns']))} … {signed(round(row['high_ns']))}"
        difference = signed(None if row["difference_ns"] is None else round(row["difference_ns"]))
        difference = f"< {duration(clock)}" if below else difference
        words = row["no_interval"] or ("at least this wide" if row["at_least"] else "")
        table.add_row(
            short[row["run_a"]], short[row["run_b"]], f"{row['n']:,}", f"{row['n_eff']:.0f}", difference, between, words
        )
    return table


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return names without the folders that all of them share.

    >>> short_names(["runs/a/1", "runs/b/1"])
    {'runs/a/1': 'a/1', 'runs/b/1': 'b/1'}
    """
    folders = [name.split("/")[:-1] for name in set(names)]
    shared = 0
    for level in zip(*folders, strict=False):
        if len(set(level)) > 1:
            break
        shared += 1
    return {name: "/".join(name.split("/")[shared:]) if len(folders) > 1 else name for name in names}


def note_words(primary: Mapping[str, Any]) -> str:
    """Return how the numbers were had."""
    words = "Differences are medians over what has one key in both runs"
    words += ", averaged over pairs of restarts" if primary["restarts_a"] > 1 else ""
    words += "; the mean gap is the sum of its causes, so their differences add up to its own. "
    if primary["detectable_ns"] is not None:
        words += (
            f"So many restarts find a true change of {duration(round(primary['detectable_ns']))} four times in five. "
        )
    if primary["noise_floor_ns"] is not None:
        words += f"A differs from A by up to {duration(round(primary['noise_floor_ns']))}. "
    if primary["advice"]:
        words += f"{primary['advice'][:1].upper()}{primary['advice'][1:]}. "
    if primary["restarts_a"] == 1 or primary["restarts_b"] == 1:
        words += "One start of the job says nothing about the next: record four or more per arm, in turn."
    return words.strip()

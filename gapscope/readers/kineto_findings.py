"""What a user has to know about one torch.profiler file: one sentence for each oddity, with its count."""

from __future__ import annotations

from gapscope.findings import Finding, Level
from gapscope.readers.kineto_scan import Scanned
from gapscope.readers.kineto_strings import Repairs
from gapscope.readers.kineto_tables import Anomalies


def is_cut(scanned: Scanned) -> bool:
    """Tell if the file, or the compressed stream that it is, ends before its own end."""
    return not scanned.whole or scanned.stream_damage is not None


def findings_of(
    path: str, scanned: Scanned, *, repairs: Repairs, anomalies: Anomalies, duplicates: int, is_empty: bool
) -> list[Finding]:
    """Return the findings of one file, besides those about its clock."""
    found: list[Finding] = []

    def note(code: str, count: int, message: str, hint: str = "", level: Level = "warning") -> None:
        if count:
            found.append(Finding(code, level, message, hint, path=path, count=count))

    if is_cut(scanned):
        why = f" ({scanned.stream_damage})" if scanned.stream_damage else ""
        message = f"The file ends before its own end{why}, after {scanned.events:,} events in {scanned.size:,} bytes."
        hint = "What was recorded after the cut is unknown; copy or export the file again."
        found.append(Finding("truncated", "warning", message, hint, path=path))
    if is_empty:
        message = "The file is a valid report, but nothing is in its window."
        hint = "Nothing ran between start and stop of the profiler, or its schedule never reached an active step."
        found.append(Finding("no_events", "warning", message, hint, path=path))
    n = scanned.damaged
    note("damaged_events", n, f"{n:,} events are broken and left out, the first one at byte {scanned.first_damage:,}.")
    n = repairs.uses
    note("repaired_texts", n, f"{n:,} texts are no legal JSON and were repaired, from byte {repairs.first_byte:,} on.")
    n = scanned.non_finite
    note("non_finite_values", n, f"{n:,} values are inf or nan and count as not recorded.", level="info")
    n, hint = anomalies.untimed, "Handoffs that one of them decides stay incomplete."
    note("untimed_ops", n, f"{n:,} GPU operations were recorded without a time and are kept without one.", hint)
    n = anomalies.negative
    note("negative_durations", n, f"{n:,} events have a negative duration; their end counts as not recorded.")
    n = anomalies.alien
    note("other_clock", n, f"{n:,} events count their time from another zero than the rest; it is not used.")
    note("duplicate_correlations", duplicates, f"{duplicates:,} API calls repeat the correlation id of another call.")
    return found

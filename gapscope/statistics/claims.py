"""From the evidence to a verdict: the rules of algorithms.md 4.4, in their order.

One restart per arm never gives a verdict, whatever else is given, and two or three never more than a hint. The rules
look at the interval across restarts alone; an interval within one restart is no evidence for a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gapscope.errors import UsageError
from gapscope.statistics.estimators import values_needed
from gapscope.statistics.restarts import Across
from gapscope.wording import duration

ENOUGH = 4
"""Restarts per arm from which on a verdict is allowed."""

MARGIN_SHARE = 0.02
"""Of arm A: differences below are equivalent, unless a margin was given before or A against A spreads more."""

NOISY_SHARE = 0.1
"""Of arm A: where A differs from A by more than this, its noise is no margin. Else a wild enough A would make anything
equivalent."""


class Verdict(StrEnum):
    """What may be said of a difference."""

    NO_CLAIM = "no claim"
    INDICATIVE = "indicative"
    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    BELOW_CLOCK_RESOLUTION = "below clock resolution"
    N_TOO_SMALL = "n too small"


@dataclass(frozen=True)
class Evidence:
    """What a verdict is drawn from. Nanoseconds; differences are B minus A.

    Attributes:
        across: What the restarts say.
        baseline_ns: Arm A's own value, for the default margin; None where unknown.
        margin_ns: Differences up to here do not matter, as was said before looking; None: 2 % of the baseline or the
            noise floor, the larger (a noise floor above `NOISY_SHARE` of the baseline counts for nothing here).
        noise_floor_ns: How far A is from A; None where unknown.
        clock_ns: How far clocks alone can have moved the difference: 0 within one clock, else the sum of the
            uncertainties of both arms, as each restart aligns its clocks anew.
        p_value: Of the exact test, or adjusted by `holm` where the metric is one of many; None: the interval alone.
        quantile: The quantile that is compared (0.5 for a median); None for a mean or a total.
        n_eff: Effective size of the smallest restart; needed with a quantile.
        shape_change: Whether the distribution changed its shape rather than moved, as where median and Hodges-Lehmann
            differ in sign.
    """

    across: Across
    baseline_ns: float | None = None
    margin_ns: float | None = None
    noise_floor_ns: float | None = None
    clock_ns: float = 0.0
    p_value: float | None = None
    quantile: float | None = None
    n_eff: float | None = None
    shape_change: bool = False

    def __post_init__(self) -> None:
        for name in ("baseline_ns", "margin_ns", "noise_floor_ns", "clock_ns"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name} is {value}, it has to be 0 or more.")

    @property
    def margin(self) -> float | None:
        """The margin of equivalence; None where nothing tells one."""
        if self.margin_ns is not None:
            return self.margin_ns
        known = [] if self.baseline_ns is None else [MARGIN_SHARE * self.baseline_ns]
        noise, baseline = self.noise_floor_ns, self.baseline_ns
        if noise is not None and (baseline is None or noise <= NOISY_SHARE * baseline):
            known.append(noise)
        return max(known, default=None)


@dataclass(frozen=True)
class Claim:
    """A verdict.

    Attributes:
        verdict: What may be said.
        reason: Why, in words.
    """

    verdict: Verdict
    reason: str

    @property
    def label(self) -> str:
        """The verdict as reports print it."""
        return "no claim (n=1 restart)" if self.verdict is Verdict.NO_CLAIM else self.verdict.value


def judge(evidence: Evidence, confidence: float = 0.95) -> Claim:
    """Return what may be said of a difference, and why.

    Args:
        evidence: What is known.
        confidence: Of the interval; equivalence is two one-sided tests at 1 - confidence.
    """
    across, clock = evidence.across, evidence.clock_ns
    interval = across.interval(confidence)
    if across.fewest < 2 or interval is None:
        return Claim(
            Verdict.NO_CLAIM,
            f"n=1 restart ({across.restarts_a} of A, {across.restarts_b} of B): an observed difference, nothing tells "
            "how far two restarts of the same program differ",
        )
    if shortage := _shortage(evidence):
        return Claim(Verdict.N_TOO_SMALL, shortage)
    if abs(across.estimate) < clock:
        return Claim(
            Verdict.BELOW_CLOCK_RESOLUTION,
            f"the clocks alone can move the difference by {_time(clock)}",
        )
    low, high = interval[0] - clock, interval[1] + clock
    says = f"{_percent(confidence)} interval across restarts {_range(low, high)}"
    says += f" (clocks {_time(clock)} included)" if clock else ""
    if across.fewest < ENOUGH:
        return Claim(Verdict.INDICATIVE, f"{across.fewest} restarts per arm, a verdict takes {ENOUGH}; {says}")
    return _equivalent(evidence, confidence) or _direction(evidence, confidence, low, high, says)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return p-values adjusted for being many, so that the chance of one false claim among all stays at the level.

    Holm, *A simple sequentially rejective multiple test procedure* (Scandinavian Journal of Statistics 1979).

    Args:
        p_values: By name of the metric; None was not tested and stays None.

    >>> holm({"movement": 0.01, "slot_wait": 0.04, "peer_wait": 0.03, "submit_call": None})
    {'movement': 0.03, 'slot_wait': 0.06, 'peer_wait': 0.06, 'submit_call': None}
    """
    tested = sorted((p, name) for name, p in p_values.items() if p is not None)
    adjusted: dict[str, float | None] = dict.fromkeys(p_values)
    largest = 0.0
    for place, (p, name) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - place)))
        adjusted[name] = largest
    return adjusted


def _shortage(evidence: Evidence) -> str:
    """Return why requests are too few for the quantile, in words; empty if they are not."""
    if evidence.quantile is None:
        return ""
    needed, name = values_needed(evidence.quantile), f"p{evidence.quantile * 100:g}"
    if evidence.n_eff is None:
        return f"{name} needs {needed} independent values per restart, how many there are is unknown"
    if evidence.n_eff < needed:
        return f"{name} needs {needed} independent values per restart, the smallest has {evidence.n_eff:.0f}"
    return ""


def _equivalent(evidence: Evidence, confidence: float) -> Claim | None:
    """Return the claim of equivalence where two one-sided tests reject both sides of the margin, else None."""
    margin, clock = evidence.margin, evidence.clock_ns
    inner = evidence.across.interval(1 - 2 * (1 - confidence))
    if margin is None or inner is None or evidence.shape_change:
        return None
    low, high = inner[0] - clock, inner[1] + clock
    if max(-low, high) >= margin:
        return None
    return Claim(
        Verdict.EQUIVALENT,
        f"two one-sided tests: the difference is within {_range(low, high)}, the margin is {_time(margin)}",
    )


def _direction(evidence: Evidence, confidence: float, low: float, high: float, says: str) -> Claim:
    """Return faster or slower where everything speaks for it, else inconclusive."""
    across, floor = evidence.across, evidence.noise_floor_ns
    if low <= 0 <= high:
        return Claim(Verdict.INCONCLUSIVE, f"{says} holds zero")
    if floor is not None and abs(across.estimate) <= floor:
        return Claim(Verdict.INCONCLUSIVE, f"{says}, but A differs from A by {_time(floor)} as well")
    if evidence.p_value is not None and evidence.p_value > 1 - confidence + 1e-12:
        return Claim(Verdict.INCONCLUSIVE, f"{says}, but p = {evidence.p_value:.2g} by the test that was asked for")
    if evidence.shape_change:
        return Claim(Verdict.INCONCLUSIVE, f"{says}, but the distribution changed its shape: this is no shift")
    if across.s_between == 0:
        return Claim(
            Verdict.INCONCLUSIVE,
            "all restarts agree to the last digit, so how they differ is unknown. Is it one recording given several "
            "times?",
        )
    return Claim(Verdict.FASTER if high < 0 else Verdict.SLOWER, f"{says} excludes zero")


def _time(ns: float) -> str:
    return duration(round(ns))


def _range(low: float, high: float) -> str:
    return f"{duration(round(low))} to {duration(round(high))}"


def _percent(confidence: float) -> str:
    return f"{confidence * 100:g} %"

"""The claim rules, one by one, and that none of them can be talked into a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.errors import UsageError
from gapscope.statistics.claims import Evidence, Verdict, holm, judge
from gapscope.statistics.restarts import across_arms, across_pairs

FASTER = across_pairs([-1000, -1100, -900, -1050, -950])
NEAR_ZERO = across_pairs([-10, 10, 5, -5, 2])
VERDICTS = {Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT}

NS = st.integers(-(10**9), 10**9)
POSITIVE = st.none() | st.floats(0, 1e9)
OTHERS = st.fixed_dictionaries(
    {
        "baseline_ns": POSITIVE,
        "margin_ns": POSITIVE,
        "noise_floor_ns": POSITIVE,
        "clock_ns": st.floats(0, 1e6),
        "p_value": st.none() | st.floats(0, 1),
        "quantile": st.none() | st.sampled_from([0.5, 0.99]),
        "n_eff": st.none() | st.floats(0, 1e6),
        "shape_change": st.booleans(),
    }
)

EXAMPLES = settings(max_examples=60, deadline=None)


@EXAMPLES
@given(NS, st.lists(NS, min_size=1, max_size=9), OTHERS)
def test_one_restart_never_gives_a_verdict(one, many, others):
    for across in (across_pairs([one]), across_arms([one], many), across_arms(many, [one])):
        claim = judge(Evidence(across, **others))
        assert claim.verdict is Verdict.NO_CLAIM
        assert claim.label == "no claim (n=1 restart)"


@EXAMPLES
@given(st.lists(NS, min_size=2, max_size=3), OTHERS)
def test_two_or_three_restarts_give_no_verdict(values, others):
    for across in (across_pairs(values), across_arms(values, [*values, 5, 6, 7])):
        assert judge(Evidence(across, **others)).verdict not in VERDICTS


@EXAMPLES
@given(st.lists(NS, min_size=1, max_size=8), OTHERS)
def test_swapping_arms_mirrors_the_verdict(values, others):
    mirrored = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    there = judge(Evidence(across_pairs(values), **others)).verdict
    back = judge(Evidence(across_pairs([-v for v in values]), **others)).verdict
    assert back is mirrored.get(there, there)


@EXAMPLES
@given(st.lists(NS, min_size=1, max_size=8), OTHERS)
def test_every_claim_has_a_reason(values, others):
    assert len(judge(Evidence(across_pairs(values), **others)).reason) > 10


@pytest.mark.parametrize(
    ("evidence", "verdict", "words"),
    [
        (Evidence(across_pairs([-1000])), Verdict.NO_CLAIM, "n=1 restart (1 of A, 1 of B)"),
        (Evidence(across_pairs([-1000, -1001])), Verdict.INDICATIVE, "2 restarts per arm, a verdict takes 4"),
        (Evidence(across_pairs([-1000, -1001, -999])), Verdict.INDICATIVE, "3 restarts per arm"),
        (Evidence(FASTER), Verdict.FASTER, "95 % interval across restarts -1.10 µs to -902 ns excludes zero"),
        (Evidence(across_pairs([1000, 1100, 900, 1050])), Verdict.SLOWER, "excludes zero"),
        (Evidence(across_arms([10, 12, 11, 13], [1, 2, 1, 3])), Verdict.FASTER, "excludes zero"),
        (Evidence(NEAR_ZERO), Verdict.INCONCLUSIVE, "holds zero"),
        (Evidence(NEAR_ZERO, margin_ns=20), Verdict.EQUIVALENT, "the margin is 20 ns"),
        (Evidence(NEAR_ZERO, margin_ns=5), Verdict.INCONCLUSIVE, "holds zero"),
        (Evidence(NEAR_ZERO, baseline_ns=1000), Verdict.EQUIVALENT, "the margin is 20 ns"),
        (Evidence(NEAR_ZERO, baseline_ns=1000, noise_floor_ns=33), Verdict.EQUIVALENT, "the margin is 33 ns"),
        (Evidence(NEAR_ZERO, baseline_ns=10**6, margin_ns=5), Verdict.INCONCLUSIVE, "holds zero"),
        (Evidence(NEAR_ZERO, margin_ns=20, shape_change=True), Verdict.INCONCLUSIVE, "holds zero"),
        (Evidence(NEAR_ZERO, margin_ns=20, clock_ns=19), Verdict.BELOW_CLOCK_RESOLUTION, "can move the difference by"),
        (Evidence(FASTER, margin_ns=2000), Verdict.EQUIVALENT, "the margin is 2.00 µs"),
        (Evidence(FASTER, noise_floor_ns=1000), Verdict.INCONCLUSIVE, "A differs from A by 1.00 µs"),
        (Evidence(FASTER, noise_floor_ns=999), Verdict.FASTER, "excludes zero"),
        (Evidence(FASTER, clock_ns=1001), Verdict.BELOW_CLOCK_RESOLUTION, "by 1.00 µs"),
        (Evidence(FASTER, clock_ns=950), Verdict.INCONCLUSIVE, "(clocks 950 ns included) holds zero"),
        (Evidence(FASTER, clock_ns=850), Verdict.FASTER, "(clocks 850 ns included) excludes zero"),
        (Evidence(FASTER, p_value=0.0625), Verdict.INCONCLUSIVE, "p = 0.062"),
        (Evidence(FASTER, p_value=0.05), Verdict.FASTER, "excludes zero"),
        (Evidence(FASTER, shape_change=True), Verdict.INCONCLUSIVE, "no shift"),
        (Evidence(FASTER, quantile=0.99, n_eff=298), Verdict.N_TOO_SMALL, "p99 needs 299 independent values"),
        (Evidence(FASTER, quantile=0.99, n_eff=299), Verdict.FASTER, "excludes zero"),
        (Evidence(FASTER, quantile=0.5), Verdict.N_TOO_SMALL, "how many there are is unknown"),
        (Evidence(across_pairs([-5, -5, -5, -5])), Verdict.INCONCLUSIVE, "one recording given several times"),
        (Evidence(across_pairs([0, 0, 0, 0]), margin_ns=1), Verdict.EQUIVALENT, "0 ns to 0 ns"),
        (Evidence(across_pairs([0, 0, 0, 0])), Verdict.INCONCLUSIVE, "holds zero"),
    ],
)
def test_rule(evidence, verdict, words):
    claim = judge(evidence)
    assert claim.verdict is verdict
    assert words in claim.reason


def test_equivalence_is_two_one_sided_tests():
    """Each at 5 %: the 90 % interval has to lie within the margin, the 95 % interval need not."""
    inner, outer = NEAR_ZERO.interval(0.90)[1], NEAR_ZERO.interval(0.95)[1]
    assert inner < outer
    assert judge(Evidence(NEAR_ZERO, margin_ns=inner + 0.01)).verdict is Verdict.EQUIVALENT
    assert judge(Evidence(NEAR_ZERO, margin_ns=inner - 0.01)).verdict is Verdict.INCONCLUSIVE


def test_numbers_below_zero_are_refused():
    for name in ("baseline_ns", "margin_ns", "noise_floor_ns", "clock_ns"):
        with pytest.raises(UsageError, match=name):
            Evidence(FASTER, **{name: -1.0})
    with pytest.raises(UsageError, match="margin_ns"):
        Evidence(FASTER, margin_ns=float("nan"))


@EXAMPLES
@given(st.dictionaries(st.text(max_size=3), st.none() | st.floats(0, 1), max_size=8))
def test_holm_against_its_definition(p_values):
    """Rejecting at a level what is adjusted to it or below is what stepping down does."""
    adjusted = holm(p_values)
    assert holm({"a": 0.04, "b": 0.03, "c": None}) == {"a": 0.06, "b": 0.06, "c": None}
    tested = sorted((p, name) for name, p in p_values.items() if p is not None)
    assert list(adjusted) == list(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for place, (p, name) in enumerate(tested):
            if p * (len(tested) - place) > level:
                break
            rejected.add(name)
        assert {name for name, p in adjusted.items() if p is not None and p <= level} == rejected


def test_a_wild_arm_makes_nothing_equivalent():
    """As measured (tests/data/restarts): steps of 796 µs, A against A up to 436 µs, B later by 103 ± 188 µs."""
    pairs = across_pairs([103_000.0 + shift for shift in (-180_000, 180_000, -150_000, 150_000, -60_000, 60_000)])
    calm = judge(Evidence(pairs, baseline_ns=8_000_000.0, noise_floor_ns=436_000.0))
    wild = judge(Evidence(pairs, baseline_ns=796_000.0, noise_floor_ns=436_000.0))
    assert calm.verdict is Verdict.EQUIVALENT
    assert wild.verdict is Verdict.INCONCLUSIVE

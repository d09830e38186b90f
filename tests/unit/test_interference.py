"""Operations alone and beside others, on built recordings: who is compared with whom, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

import gapscope
from gapscope.causes.groups import FEWEST, compared, second_hump, shift
from gapscope.reports.beside import render_interference
from gapscope.testing import trace
from tests.unit.test_causes import US, Run, ns

COMPUTE, COPIES, OTHERS = 7, 13, 20


def run_of(n, length, beside, *, other="kernel", rank=0, nccl=False, step=True):
    """Handoffs whose copy takes ``length(k)`` µs; where ``beside(k)`` another operation runs on the device with it."""
    run = Run()
    for k in range(1, n + 1):
        at, took = k * 1000, length(k)
        if beside(k):
            op = {} if other == "kernel" else {"kind": "memcpy", "copy_kind": other}
            stream = OTHERS
            run.op(rank, (at + 3, at + 4), (at + 300, at + 300 + 4 * took), stream, name="other", **op)
        run.handoff(k, at, nccl=nccl, submit=(200, 230), send_call=(210, 220), sent=(325, 325 + took),
                    received=(400 + took, 402 + took), consumed=(410 + took, 460 + took))  # fmt: skip
        if step:
            run.ranks[rank].mark(f"step step={k}", *ns((0, 240), at))
    return run


def analyzed(run):
    return gapscope.analyze(trace(*run.recordings()))


def rows(found, what="transfer", **wanted):
    """Rows of table ``interference`` of one sort, of a run or of its analysis."""
    found = analyzed(found) if isinstance(found, Run) else found
    rows = found.interference.to_dicts()
    return [r for r in rows if r["what"] == what and all(r[c] == v for c, v in wanted.items())]


def test_copies_beside_kernels_are_set_beside_lonely_copies():
    """Copies of 10 to 12 µs alone, twice as long beside a kernel."""
    (row,) = rows(run_of(40, lambda k: (10 + k % 3) * (2 if k % 2 else 1), lambda k: k % 2 == 1), hop="DtoH")
    assert (row["edge"], row["transport"], row["rank"], row["device"]) == ("0 → 1", "mailbox", 0, 0)
    # The first handoff is start-up. The window is the median of all, 16 µs: each copy beside a kernel is so throughout.
    assert (row["alone_n"], row["overlapped_n"], row["partly_n"]) == (20, 19, 0)
    assert [row[f"alone_{q}_ns"] / US for q in ("p10", "p50", "p90")] == [10, 11, 12]
    assert [row[f"overlapped_{q}_ns"] / US for q in ("p10", "p50", "p90")] == [20, 22, 24]
    assert (row["shift_ns"] / US, row["verdict"]) == (11, "slower")
    assert 9 * US <= row["shift_lo_ns"] <= 11 * US <= row["shift_hi_ns"] <= 13 * US
    assert (row["alone_humps"], row["overlapped_humps"]) == ([], [])


def test_too_few_on_a_side_give_numbers_and_no_verdict():
    found = analyzed(run_of(21, lambda k: 20 if k in (5, 9, 13) else 10, lambda k: k in (5, 9, 13)))
    (row,) = rows(found, hop="DtoH")
    assert (row["alone_n"], row["overlapped_n"], row["verdict"]) == (17, 3, "too few")
    assert (row["shift_ns"], row["shift_lo_ns"], row["shift_hi_ns"]) == (None, None, None)
    assert (row["alone_p50_ns"], row["overlapped_p50_ns"]) == (10 * US, 20 * US)
    table, note = render_interference(found.summary["interference"], True)
    assert [str(cell) for cell in table.columns[-1].cells] == ["too few: 17 alone, 3 overlapped"]
    assert "1 more had too few on a side" in note.plain
    assert len(render_interference(found.summary["interference"])) == 1  # the note alone, unless asked


def test_a_group_with_two_humps_is_shown_as_two():
    """Half of the copies beside a kernel take 10 as all others do, half of them 30."""
    found = analyzed(run_of(60, lambda k: 30 if k % 4 == 1 else 10, lambda k: k % 2 == 1))
    (row,) = rows(found, hop="DtoH")
    assert row["alone_humps"] == []
    assert row["overlapped_humps"] == [{"n": 15, "p50_ns": 10 * US}, {"n": 14, "p50_ns": 30 * US}]
    (row,) = found.summary["interference"]["kinds"]
    assert row["overlapped_humps"][1] == {"n": 14, "p50_ns": 30 * US}
    table, _ = render_interference(found.summary["interference"], True)
    assert [str(cell) for cell in table.columns[2].cells] == ["two humps: 10.0 µs (15) and 30.0 µs (14)"]


def test_what_runs_longer_does_not_overlap_more_for_being_longer():
    """A kernel begins 20 µs after each copy did, so only copies that take longer anyway reach into it."""
    run = Run()
    for k in range(1, 41):
        at, took = k * 1000, 30 if k % 2 else 10
        run.op(0, (at + 3, at + 4), (at + 345, at + 395), OTHERS, name="other")
        run.handoff(k, at, submit=(200, 230), send_call=(210, 220), sent=(325, 325 + took),
                    received=(400, 402), consumed=(410, 460))  # fmt: skip
    # The median is 10 or 20; within as much from its start no copy meets a kernel: nothing to compare.
    assert rows(run, hop="DtoH") == []


@pytest.mark.parametrize("other", ["kernel", "HtoD"])
def test_kernels_of_another_process_on_the_same_device_number_are_not_beside(other):
    """Two processes, each with a device 0 of its own numbering, or taking turns: nobody ran beside anything."""
    run = Run(devices=(0, 0))
    for k in range(1, 41):
        at = k * 1000
        op = {} if other == "kernel" else {"kind": "memcpy", "copy_kind": other}
        if k % 2:
            run.op(1, (at + 3, at + 4), (at + 300, at + 360), OTHERS, name="other", **op)
        run.handoff(k, at, submit=(200, 230), send_call=(210, 220), sent=(325, 335 if k % 2 else 330),
                    received=(400, 402), consumed=(410, 460))  # fmt: skip
    found = analyzed(run)
    assert rows(found, rank=0) == []
    assert rows(found, "kernel", rank=0) == []


def test_waiting_for_a_peer_is_not_slowness():
    """Receives that run for long because the send comes late, always when a kernel runs; then bytes move for 10 µs."""
    run = Run()
    for k in range(1, 41):
        at, late = k * 1000, 300 if k % 2 else 0
        if late:
            run.op(1, (at + 3, at + 4), (at + 90, at + 700), OTHERS, name="other")
        run.handoff(k, at, nccl=True, submit=(200 + late, 230 + late), send_call=(210 + late, 220 + late),
                    sent=(225 + late, 233 + late), received=(100, 235 + late),
                    consumed=(710, 760))  # fmt: skip
    (row,) = rows(run, hop="nccl")
    assert (row["rank"], row["alone_n"], row["overlapped_n"]) == (1, 20, 19)
    assert (row["alone_p90_ns"], row["overlapped_p90_ns"]) == (10 * US, 10 * US)
    assert (row["shift_ns"], row["verdict"]) == (0, "no difference")


def test_kernels_and_steps_beside_transfers():
    """The stage's kernel takes 100 µs, 150 with a copy to the host beside it."""
    run = Run()
    for k in range(1, 41):
        at, took = k * 1000, (150 if k % 2 else 100) + k % 5
        if k % 2:
            run.op(0, (at + 3, at + 4), (at + 50, at + 260), OTHERS, "memcpy", kind="memcpy", copy_kind="DtoH",
                   name="offload")  # fmt: skip
        run.handoff(k, at, produced=(60, 60 + took), submit=(200, 230), send_call=(210, 220), sent=(325, 335),
                    received=(400, 402), consumed=(410, 460))  # fmt: skip
        run.ranks[0].mark(f"step step={k}", *ns((0, 240), at))
    found = analyzed(run)
    (kernel,) = rows(found, "kernel", name="producer")
    assert (kernel["alone_n"], kernel["overlapped_n"], kernel["verdict"]) == (20, 20, "slower")
    assert kernel["shift_ns"] == 50 * US
    (step,) = rows(found, "step")
    assert (step["name"], step["rank"], step["shift_ns"]) == ("steps of 1 kernels", 0, 50 * US)
    assert (step["alone_n"], step["overlapped_n"], step["verdict"]) == (20, 20, "slower")
    assert (step["alone_p50_ns"], step["overlapped_p50_ns"]) == (102 * US, 152 * US)
    summary = found.summary["interference"]
    assert summary["kinds"][0]["what"] == "step"
    assert summary["verdicts"]["slower"] == 2


def test_interference_is_no_cause():
    found = analyzed(run_of(40, lambda k: 20 if k % 2 else 10, lambda k: k % 2 == 1))
    assert "interference" not in set(found.tiles["cause"])


# The statistics ---------------------------------------------------------------------------------------------------


def test_the_interval_of_the_shift_holds_what_it_says():
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        one, two = (rng.lognormal(0, 0.4, n) * 10_000 for n in (15, 25))
        _, low, high = shift(one.astype(np.int64), two.astype(np.int64) + 3_000)
        held += low <= 3_000 <= high
    assert 0.92 <= held / 300 <= 0.99


def test_equal_groups_are_seldom_called_different():
    rng = np.random.default_rng(8)
    groups = [[(rng.normal(10_000, 1_500, n)).astype(np.int64) for n in (20, 20)] for _ in range(300)]
    verdicts = [compared(one, two)["verdict"] for one, two in groups]
    assert verdicts.count("no difference") >= 280


@pytest.mark.parametrize(("n", "most"), [(FEWEST, 24), (15, 6), (300, 0)])
def test_one_hump_is_seldom_taken_for_two(n, most):
    rng = np.random.default_rng(9)
    samples = [np.sort((rng.lognormal(0, 0.3, n) * 10_000).astype(np.int64)) for _ in range(300)]
    assert sum(second_hump(s) is not None for s in samples) <= most
    two = [np.sort(np.concatenate([10_000 + s // 50, 20_000 + s // 50])) for s in samples]
    assert all(second_hump(s) == n for s in two)


def test_a_shift_of_many_is_that_of_all():
    one = np.arange(10_000, 30_000)
    middle, low, high = shift(one, one + 700)
    assert abs(middle - 700) <= 60
    assert low < 700 < high
    assert high - low < 400

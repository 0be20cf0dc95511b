"""Where the line is between kept and broken, from both sides of it: a line that moved is noticed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta
from tests.audit.bandit import Bandit, promise

from deniable.audit.checks import belief_checks, draw_checks, evidence_checks, proven_check
from deniable.audit.decisions import NEUTRAL, UNLISTED, DecisionLog
from deniable.audit.draws import DrawTest, RowTests
from deniable.audit.evidence import (
    ALPHA,
    COUNTS_ALPHA,
    DRAWS_ALPHA,
    LOTTERY_ALPHA,
    Evidence,
    Power,
)
from deniable.audit.exact import ArmProof, exact_proof
from deniable.audit.trackers import Belief, Beliefs, ProvenRisk, proven_risk
from deniable.privacy.exact import exp_floor

ABOVE, BELOW = 1 + 1e-9, 1 - 1e-9


def drawn(*p_values: float) -> list[DrawTest]:
    names = ["arms, all visitors", "likeliest arm shown"]
    names += [f"arms, segment {place + 1}" for place in range(len(p_values) - 2)]
    return [
        DrawTest(name, (1, 1), (1.0, 1.0), 0.0, 1, p_value, False)
        for name, p_value in zip(names, p_values, strict=True)
    ]


def test_the_checks_share_one_chance_of_a_false_accusation() -> None:
    assert ALPHA == 1e-3
    assert pytest.approx(ALPHA, rel=1e-12) == DRAWS_ALPHA + LOTTERY_ALPHA + COUNTS_ALPHA


def test_draws_and_lots_are_accused_from_their_line_on() -> None:
    power = Power(100, None, None)
    for factor, accused in ((ABOVE, True), (BELOW, False)):
        draws = -math.log(0.8e-3) * factor
        lottery = -math.log(0.1e-3) * factor
        found = Evidence(draws=draws, lottery=lottery, power=power)
        assert (found.draws_accuse, found.lottery_accuses) == (accused, accused)
        outcomes = [check.outcome for check in evidence_checks(found)]
        assert outcomes == ["broken" if accused else "kept"] * 2


@pytest.mark.parametrize("segments", [1, 2, 7])
def test_the_smallest_p_value_of_the_segments_is_told_times_their_number(segments: int) -> None:
    rows = RowTests(tested=0, too_few=0, least=1.0, table=None, adjusted=1.0)
    found = list(draw_checks(drawn(1.0, 1.0, *[1.0] * (segments - 1), 1e-4), rows))
    assert found[2].p_value == pytest.approx(1e-4 * segments, rel=1e-12)


@pytest.mark.parametrize("grade", ["across time", "given the time of the first visit"])
def test_a_ratio_holds_up_to_its_bound_and_not_a_part_in_a_billion_above(grade: str) -> None:
    bound = exp_floor(10**9)
    for ratio, holds in ((bound, True), (bound * Fraction(10**9 + 1, 10**9), False)):
        other = Fraction(1)  # the ratio that is smaller
        across = grade == "across time"
        proof = ArmProof(
            arm=0,
            budget_nano=10**9,
            ratio=other if across else ratio,
            ratio_across_time=ratio if across else other,
            bound=bound,
            most=1,
            least=1,
            grade=grade,
        )
        assert proof.holds is holds


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_a_schedule_five_percent_above_its_budget_is_broken(strategy: str) -> None:
    """Tables of budget 1.05 under a promise of 1: by every table, and by the band."""
    real = Bandit(promise(1.05, strategy=strategy))
    real.run(3_000)
    told = replace(promise(1.0, strategy=strategy), tables=real.promise.tables)
    proof = exact_proof(told)[0]
    assert not proof.holds
    assert not all(arm.holds for arm in proof.arms)
    assert proof.outside_band
    assert exact_proof(real.promise)[0].holds


def test_a_tracker_may_move_by_the_budget() -> None:
    for moved, outcome in ((1.0, "kept"), (1.0 + 1e-6, "broken"), (1.05, "broken")):
        belief = Belief(moved=moved, highest=0.5, bound=0.6, guessed=0.5, guessed_before=0.5)
        check = next(belief_checks(promise(1.0), Beliefs(100, belief, belief)))
        assert check.outcome == outcome


def test_counts_contradict_a_promise_from_just_above_it() -> None:
    for nats, exceeds in ((0.5, False), (1.0, False), (1.0 + 1e-9, True), (1.5, True)):
        found = ProvenRisk(nats, budget=1.0, arm=0, alpha=0.001, visitors=100)
        assert found.exceeds is exceeds
        outcome = proven_check(promise(1.0), found).outcome
        assert outcome == ("broken" if exceeds else "kept")


def test_what_counts_prove_is_corrected_for_all_that_is_compared() -> None:
    """Clopper and Pearson's limits by SciPy, at alpha over twice the number of cells."""
    promised, log = Bandit(promise(1.0, strategy="constant")).log(2_000)
    found = proven_risk(promised, log, alpha=0.01)
    shape = (len(promised.segments), len(promised.arms))
    counts = np.zeros(shape)
    np.add.at(counts, (log.segment, log.shown), 1)
    level, total = 0.01 / (2 * counts.size), counts.sum(axis=1, keepdims=True)
    low = beta.ppf(level, counts, total - counts + 1)
    high = beta.ppf(1 - level, counts + 1, total - counts)
    expected = np.log(low.max(axis=0)) - np.log(high.min(axis=0))
    assert found.arm is not None
    assert found.nats == pytest.approx(max(0.0, expected.max()), rel=1e-9)
    assert found.nats > 0


def test_only_members_are_compared_with_their_segments_row() -> None:
    ones = np.ones(4, dtype=np.int64)
    log = DecisionLog(
        visitor=np.arange(4),
        segment=np.array([0, 1, 1, -1]),
        shown=0 * ones,
        table=ones,
        role=np.array([0, 0, 1, 0]),
        version=ones,
        reward=-ones,
    )
    assert log.row.tolist() == [0, 1, NEUTRAL, UNLISTED]

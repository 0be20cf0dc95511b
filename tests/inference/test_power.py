"""Forecasts of decisions: compared with the confidence sequence that decides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from deniable.expectations.prior import Prior
from deniable.inference.intervals import compare
from deniable.inference.power import detectable_difference, visitors_until_decided
from deniable.inference.state import VisitorBatch, new_state, update
from deniable.inference.verdict import verdict
from deniable.inference.words import forecast_words
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.power import Decision, power

RATES, ALPHA = (0.10, 0.13), 0.05 / 3


def decided(visitors: float, planned: float) -> bool:
    """Whether the interval excludes 0 after this many visitors whose clicks are exactly as expected."""
    state = new_state(1, 2, horizon=planned, rate=sum(RATES) / 2)
    steps = 40
    each = round(visitors / steps / 2)
    for _ in range(steps):
        clicks = [[each * rate for rate in RATES]]
        state = update(state, VisitorBatch([[0.5, 0.5]], [[each, each]], clicks))
    found = compare(state, alpha=ALPHA).segments
    return bool(found.low[0, 0] > 0)


def needed(planned: float) -> float:
    variance = sum(rate * (1 - rate) for rate in RATES) / 2
    return float(
        visitors_until_decided(
            RATES[1] - RATES[0],
            weight_each=0.25,
            variance=variance,
            planned_weight=planned / 4,
            alpha=ALPHA,
        )
    )


@pytest.mark.parametrize("planned", [3_000, 10_000, 100_000])
def test_the_forecast_is_when_the_confidence_sequence_decides(planned: float) -> None:
    found = needed(planned)
    assert not decided(0.93 * found, planned)
    assert decided(1.07 * found, planned)


def test_a_single_look_would_decide_too_early() -> None:
    """The planted fault: the usual formula for one look at the end."""
    z = float(stats.norm.isf(ALPHA / 2))
    variance = sum(rate * (1 - rate) for rate in RATES) / 2
    naive = 4 * variance * (z / (RATES[1] - RATES[0])) ** 2
    assert naive < 0.8 * needed(10_000)
    assert not decided(naive, 10_000)


def test_the_detectable_difference_is_decided_at_the_planned_visitors() -> None:
    gap = float(detectable_difference(20_000, weight_each=0.25, variance=0.09, alpha=ALPHA))
    count = visitors_until_decided(
        gap * (1 + 1e-9), weight_each=0.25, variance=0.09, planned_weight=5_000, alpha=ALPHA
    )
    assert float(count) == pytest.approx(20_000, rel=1e-4)


def test_what_cannot_be_decided_takes_for_ever() -> None:
    found = visitors_until_decided(
        np.array([0.0, 0.05]), weight_each=0.25, variance=0.09, planned_weight=5_000, alpha=ALPHA
    )
    assert math.isinf(np.asarray(found)[0])
    assert np.isfinite(np.asarray(found)[1])


def visitors(decision: Decision) -> int:
    found = decision.forecast.visitors
    assert found is not None
    return found


def test_a_plan_uses_the_smallest_segment_and_all_comparisons() -> None:
    even = power(PlannedExperiment(3, 200_000, 2), Prior(0.05, 0.3), per_day=1_000)
    uneven = power(PlannedExperiment(3, 200_000, 2, (0.9, 0.1)), Prior(0.05, 0.3), per_day=1_000)
    assert even.segment is not None
    assert uneven.segment is not None
    assert even.everybody == uneven.everybody
    assert visitors(uneven.segment) == pytest.approx(5 * visitors(even.segment), rel=0.15)
    assert even.everybody.forecast.days == math.ceil(visitors(even.everybody) / 1_000)
    single = power(PlannedExperiment(3, 200_000, 1), Prior(0.05, 0.3))
    assert single.segment is None
    assert visitors(single.everybody) < visitors(even.everybody)  # 3 comparisons, not 9


@pytest.mark.parametrize("arms", [2, 4])
def test_planner_and_verdict_forecast_the_same(arms: int) -> None:
    """An experiment that goes as planned is decided when the planner said."""
    rate, lift, planned, daily, each = 0.05, 0.2, 400_000, 1_000, 500
    plan = power(PlannedExperiment(arms, planned, 2), Prior(rate, lift), per_day=daily)
    assert plan.segment is not None
    state = new_state(2, arms, horizon=planned / 2, rate=rate)
    shown = np.full((2, arms), each)
    clicks = shown * (rate + rate * lift * ((np.arange(arms) == 0) - 0.5))
    state = update(state, VisitorBatch(np.full((2, arms), 1 / arms), shown, clicks))
    found = verdict(
        state,
        arms=[f"arm-{k}" for k in range(arms)],
        segments=["a", "b"],
        default_arm="arm-0",
        visitors_per_day=daily,
    )
    best = [one.forecast for one in found.undecided if one.lift.against == "arm-0"]
    so_far = int(shown.sum())
    for one in best:
        assert one.visitors is not None
        assert one.visitors + so_far == pytest.approx(visitors(plan.segment), rel=0.02)
        assert one.days == math.ceil(one.visitors / daily)
    assert len(best) == 2 * (arms - 1)


def test_an_absurd_forecast_is_the_same_words_in_a_plan() -> None:
    hopeless = power(PlannedExperiment(2, 1_000, 2), Prior(0.001, 0.02), per_day=100)
    assert forecast_words(hopeless.everybody.forecast) == "not with this traffic"
    assert hopeless.everybody.detectable is None or hopeless.everybody.detectable > 0.002

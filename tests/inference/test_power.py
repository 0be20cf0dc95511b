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
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.power import power

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


def test_a_plan_uses_the_smallest_segment_and_all_comparisons() -> None:
    even = power(PlannedExperiment(3, 200_000, 2), Prior(0.05, 0.3), per_day=1_000)
    uneven = power(PlannedExperiment(3, 200_000, 2, (0.9, 0.1)), Prior(0.05, 0.3), per_day=1_000)
    assert even.segment is not None
    assert uneven.segment is not None
    assert even.everybody == uneven.everybody
    assert uneven.segment.visitors == pytest.approx(5 * (even.segment.visitors or 0), rel=0.15)
    assert even.everybody.days == math.ceil((even.everybody.visitors or 0) / 1_000)
    single = power(PlannedExperiment(3, 200_000, 1), Prior(0.05, 0.3))
    assert single.segment is None
    assert (single.everybody.visitors or 0) < (even.everybody.visitors or 0)  # 3 comparisons, not 9

"""Values of other policies: against rows, against the truth over many logs, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.inference.experiments import Setting, dynamic, run, same
from tests.inference.row_by_row import batches_of, guess, log_of_one_segment

from deniable.errors import InvalidArgumentError
from deniable.inference.boundaries import normal_mixture
from deniable.inference.off_policy import (
    Method,
    Value,
    always,
    arm_values,
    best_of_each,
    chosen_value,
    policy_value,
)
from deniable.inference.state import State, Sums, VisitorBatch, new_state, update

METHODS: tuple[Method, ...] = ("ips", "snips", "dr")
POLICIES = ([0.0, 1.0, 0.0], [0.2, 0.3, 0.5])


@pytest.mark.parametrize("policy", POLICIES)
def test_estimates_are_those_of_the_rows(policy: list[float]) -> None:
    log = log_of_one_segment(np.random.default_rng(6), [40, 60, 90, 140], n_arms=3)
    batches = batches_of(log, 3)
    ratios = [policy[v.arm] / v.row[v.arm] for v in log]
    earned = math.fsum(ratio * v.reward for ratio, v in zip(ratios, log, strict=True))
    found = {
        method: policy_value(batches, policy, method=method, horizon=500) for method in METHODS
    }
    assert found["ips"].estimate == pytest.approx(earned / len(log), rel=1e-10)
    assert found["snips"].estimate == pytest.approx(earned / math.fsum(ratios), rel=1e-10)
    weight = total = squares = 0.0
    cache: dict[int, list[float]] = {}
    for v, ratio in zip(log, ratios, strict=True):
        m = cache.setdefault(v.batch, [guess(log, v.batch, arm, 0.1) for arm in range(3)])
        w = 1 / max(pi / p for pi, p in zip(policy, v.row, strict=True))
        score = sum(pi * mean for pi, mean in zip(policy, m, strict=True))
        weight += w
        total += w * (score + ratio * (v.reward - m[v.arm]))
        squares += (w * ratio * (v.reward - m[v.arm])) ** 2
    assert found["dr"].estimate == pytest.approx(total / weight, rel=1e-10)
    radius = float(normal_mixture(squares, len(log) / 500, 0.05)) / weight
    assert found["dr"].high == pytest.approx(total / weight + radius, rel=1e-9)
    assert (found["ips"].exact_low, found["ips"].exact_high) == (0.0, 1.0)


def test_the_table_that_served_has_the_mean_reward_as_its_value() -> None:
    """One table, evaluated on itself: every ratio is 1, so IPS and SNIPS are the plain mean."""
    batches = [VisitorBatch([[0.6, 0.4]], [[300, 200]], [[30, 50]])] * 4
    for method in ("ips", "snips"):
        found = policy_value(batches, [0.6, 0.4], method=method, horizon=2000)
        assert found.estimate == pytest.approx(0.16, rel=1e-12)


def test_segments_are_weighted_by_shares() -> None:
    batches = [VisitorBatch([[0.5, 0.5]] * 2, [[500, 500], [50, 50]], [[50, 100], [20, 5]])] * 3
    row = always(1, n_segments=2, n_arms=2)
    observed = policy_value(batches, row, method="snips", horizon=2000)
    assert observed.estimate == pytest.approx((10 * 0.2 + 0.1) / 11)
    equal = policy_value(batches, row, method="snips", horizon=2000, shares=[1, 1])
    assert equal.estimate == pytest.approx(0.15)
    alone = policy_value(batches, row, method="snips", horizon=2000, shares=[0, 1])
    assert alone.estimate == pytest.approx(0.1)


@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_at_all_looks(method: Method) -> None:
    """250 experiments with dynamic tables with budget 3: 30% of arm 0, 70% of arm 1."""
    setting = Setting(
        dynamic(3.0), same(0.1, 0.15), horizon=6000, growth=0.5, first=100, typical=0.1
    )
    policy, truth, runs = [0.3, 0.7], 0.3 * 0.1 + 0.7 * 0.15, 250
    batches: list[list[VisitorBatch]] = [[] for _ in range(runs)]
    missed = np.zeros((2, runs), dtype=bool)
    for n, _, _, _, batch in run(setting, 12, runs=runs):
        for place, own in enumerate(batches):
            own.append(_only(batch, place))
            if n < 1000:
                continue
            found = policy_value(own, policy, method=method, horizon=6000)
            missed[0, place] |= found.ready and not found.low <= truth <= found.high
            missed[1, place] |= not found.exact_low <= truth <= found.exact_high
    assert found.ready
    assert (missed.mean(axis=1) <= 0.05).all()


def test_the_best_of_each_segment_is_covered_although_it_was_chosen() -> None:
    """Five equal arms: the best estimate is too high, and its interval must still hold."""
    setting = Setting(dynamic(1.0), same(*[0.1] * 5), horizon=4000, growth=0.25, typical=0.1)
    runs = 400
    state = list(run(setting, 21, runs=runs))[-1][1]
    missed, estimates = 0, []
    for place in range(runs):
        own = only_state(state, place)
        found = chosen_value(own, best_of_each(own))
        missed += not found.low <= 0.1 <= found.high
        estimates.append(found.estimate)
    assert np.mean(estimates) > 0.105  # the winner's curse is there
    assert missed / runs <= 0.05


def test_a_policy_that_wants_a_retired_arm_leaves_those_visitors_out() -> None:
    early = VisitorBatch([[0.5, 0.5]], [[400, 400]], [[40, 80]])
    late = VisitorBatch([[0.9999, 0.0001]], [[5000, 0]], [[500, 0]])
    alone = policy_value([early], [0, 1], horizon=1000)
    both = policy_value([early, late], [0, 1], horizon=1000)
    assert both.estimate == alone.estimate
    assert policy_value([early, late], [1, 0], horizon=1000).estimate != alone.estimate
    nothing = policy_value([late], [0, 1], horizon=1000)
    assert math.isnan(nothing.estimate)
    assert (nothing.low, nothing.high, nothing.ready) == (0.0, 1.0, False)


def test_too_few_visitors_are_not_ready() -> None:
    few = [VisitorBatch([[0.5, 0.5]], [[100, 100]], [[20, 20]])]
    assert not policy_value(few, [0, 1], horizon=1000).ready
    state = update(new_state(1, 2, horizon=1000), few[0])
    assert not chosen_value(state, [0, 1]).ready


def test_mistakes_are_refused() -> None:
    batch = VisitorBatch([[0.5, 0.5]], [[10, 10]], [[1, 1]])
    with pytest.raises(InvalidArgumentError, match="policy"):
        policy_value([batch], [0.5, 0.4], horizon=10)
    with pytest.raises(InvalidArgumentError, match="batches"):
        policy_value([], [0.5, 0.5], horizon=10)
    with pytest.raises(InvalidArgumentError, match="method"):
        policy_value([batch], [0.5, 0.5], method="magic", horizon=10)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="shares"):
        policy_value([batch], [0.5, 0.5], horizon=10, shares=[0.0])
    with pytest.raises(InvalidArgumentError, match="arm"):
        always(2, n_segments=1, n_arms=2)


def test_a_value_has_its_estimate_inside() -> None:
    found = policy_value(
        [VisitorBatch([[0.5, 0.5]], [[900, 900]], [[90, 180]])], [1, 0], horizon=1000
    )
    assert isinstance(found, Value)
    assert found.exact_low <= found.low <= found.estimate <= found.high <= found.exact_high


def _only(batch: VisitorBatch, place: int) -> VisitorBatch:
    at = slice(place, place + 1)
    return VisitorBatch(
        batch.probabilities[at], batch.shows[at], batch.rewards[at], batch.squares[at]
    )


def only_state(state: State, place: int) -> State:
    """One experiment out of many, as a state of its own, with the same sums."""
    at = slice(place, place + 1)

    def part(sums: Sums) -> Sums:
        return Sums(sums.visitors[at], sums.weight[at], sums.total[at], sums.variance[at])

    return replace(
        state,
        horizon=state.horizon[at],
        shows=state.shows[at],
        rewards=state.rewards[at],
        squares=state.squares[at],
        between=part(state.between),
        alone=part(state.alone),
        stopped_at=state.stopped_at[at],
        latest=state.latest[at],
    )


def test_arm_values_share_alpha_among_all_cells() -> None:
    """Six cells at 6% are each as wide as two of them alone at 2%."""
    row, shows, rewards = [0.5, 0.5], [500, 500], [50, 80]
    few = update(new_state(1, 2, horizon=1000), VisitorBatch([row], [shows], [rewards]))
    many = update(
        new_state(3, 2, horizon=1000), VisitorBatch([row] * 3, [shows] * 3, [rewards] * 3)
    )
    alone, together = arm_values(few, alpha=0.02), arm_values(many, alpha=0.06)
    for name in ("low", "high", "exact_low", "exact_high"):
        expected = np.repeat(getattr(alone, name), 3, axis=0)
        np.testing.assert_allclose(getattr(together, name), expected, rtol=1e-12)
    assert (together.low < together.high).all()

"""The trace budget in a plan, against the service's account and the simulator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.service.support import running, serving

import deniable
from deniable.errors import InvalidArgumentError
from deniable.planning import trace
from deniable.planning.trace import trace_costs
from deniable.policies.greedy import ConstantPolicy
from deniable.simulation.environment import Environment
from deniable.simulation.run import simulate
from deniable.strategies import STRATEGIES

SIZES: dict[str, Any] = {"n_arms": 2, "horizon": 20_000, "n_segments": 2}


def test_the_promise_is_what_the_account_commits() -> None:
    planned = deniable.plan(**SIZES, prior=0.2, budget=1, trace_budget=0.5)
    assert planned.trace is not None
    odds = 0.25 * math.exp(1.5)
    assert planned.trace.highest_belief == pytest.approx(odds / (1 + odds), rel=1e-12)
    with serving("memory:") as service:
        running(service, budget=1, trace_budget=0.5)
        assert service.firm.current().committed == pytest.approx(planned.trace.total, abs=2e-9)


def test_without_a_trace_budget_nothing_is_said() -> None:
    planned = deniable.plan(**SIZES, budget=1)
    assert planned.trace is None
    assert planned.trace_costs() == ()
    assert planned.to_dict()["trace"] is None


def test_a_largest_belief_holds_for_own_arm_and_trace_together() -> None:
    free = deniable.plan(**SIZES, max_belief=0.3)
    traced = deniable.plan(**SIZES, max_belief=0.3, trace_budget=0.3)
    assert traced.recommendation.budget == pytest.approx(free.recommendation.budget - 0.3, abs=0.01)
    assert 0.295 < traced.recommendation.belief <= 0.3
    assert "trace budget included" in traced.recommendation.reason
    much = deniable.plan(**SIZES, max_belief=0.3, trace_budget=2)
    assert much.recommendation.budget == 0
    assert "take a smaller one" in much.recommendation.reason


def test_costs_are_the_simulator_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known rates instead of drawn ones: what `simulate` says, policy by policy."""
    rates = np.array([[0.3, 0.2], [0.2, 0.3]])
    monkeypatch.setattr(trace, "_rates", lambda *_: [rates] * trace.WORLDS)
    found = trace_costs(**SIZES, budget=1.0, trace_budget=0.2)
    world = Environment(rates, 20_000)
    policies = [ConstantPolicy(1, growth="service"), ConstantPolicy(1, trace_budget=0.2)]
    lost = simulate(world, policies, repetitions=400, seed=9, workers=1).summary("regret")
    for told, wanted, low, high in zip(
        (found[0].lost, found[0].lost_with_trace),
        lost["mean"],
        lost["low"],
        lost["high"],
        strict=True,
    ):
        assert abs(told - wanted) < 4.5 * (high - low)  # each is 400 runs: over 12 deviations
    assert found[0].lost_with_trace - found[0].lost > 6 * found[0].error


def test_every_strategy_has_its_cost() -> None:
    """Noise costs each of them; half of it would be told as less."""
    sizes: dict[str, Any] = {**SIZES, "horizon": 5_000, "lift": 0.5}
    found = trace_costs(**sizes, budget=1.0, trace_budget=0.05)
    assert [cost.strategy for cost in found] == list(STRATEGIES)
    for cost in found:
        assert cost.lost_with_trace - cost.lost > 4 * cost.error


def test_less_trace_budget_costs_more() -> None:
    def cost(budget: float) -> float:
        return trace_costs(**SIZES, budget=2.0, trace_budget=budget)[0].lost_with_trace

    costs = [cost(budget) for budget in (3.0, 0.3, 0.03)]
    assert costs == sorted(costs)
    assert costs[2] > 1.2 * costs[0]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"trace_budget": 0.0}, "trace_budget"),
        ({"trace_budget": math.inf}, "trace_budget"),
        ({"base_rate": 0.0}, "base_rate"),
        ({"base_rate": 1.0}, "base_rate"),
        ({"lift": -0.1}, "lift"),
        ({"horizon": 10**13}, "horizon"),
    ],
)
def test_bad_values_are_named(options: dict[str, float], argument: str) -> None:
    given: dict[str, Any] = {**SIZES, "budget": 1.0, "trace_budget": 1.0, **options}
    with pytest.raises(InvalidArgumentError) as caught:
        trace_costs(**given)
    assert caught.value.argument == argument

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
from deniable.policies.tables import JointPolicy
from deniable.simulation.environment import Environment
from deniable.simulation.run import simulate

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


def test_the_joint_strategy_s_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for joint, whose tables double their visitors where there is noise."""
    rates = np.array([[0.3, 0.2], [0.2, 0.3]])
    monkeypatch.setattr(trace, "_rates", lambda *_: [rates] * trace.WORLDS)
    found = {cost.strategy: cost for cost in trace_costs(**SIZES, budget=1.0, trace_budget=0.1)}
    assert list(found) == ["constant", "dynamic", "joint"]  # the gate learns from no counts
    joint = found["joint"]
    world = Environment(rates, 20_000)
    policies = [JointPolicy(1), JointPolicy(1, trace_budget=0.1)]
    lost = simulate(world, policies, repetitions=100, seed=9, workers=1).summary("regret")
    assert abs(joint.lost - lost["mean"][0]) < 5 * (lost["high"] - lost["low"])[0]
    assert abs(joint.lost_with_trace - lost["mean"][1]) < 5 * (lost["high"] - lost["low"])[1]
    assert joint.lost_with_trace - joint.lost > 6 * joint.error


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

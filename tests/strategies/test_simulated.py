"""One contract for every policy that exists: a new file is found and checked."""

from __future__ import annotations

import inspect
import math
import pickle
from dataclasses import FrozenInstanceError
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deniable.strategies
from deniable.errors import InvalidArgumentError
from deniable.privacy.mechanism import ArmSpecificResponse, RandomizedResponse
from deniable.simulation.job import kernel_rule
from deniable.simulation.kernels.exploration import explore
from deniable.simulation.scenario import POLICIES, Settings, policy_named
from deniable.strategies.arm_budgets import ArmDynamic
from deniable.strategies.benchmarks import EpsilonGreedy, Gittins
from deniable.strategies.custom import ThompsonSampling, UpperConfidence
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import (
    EpochRule,
    FixedRule,
    GreedyRule,
    IndexRule,
    KnownRatesRule,
    LearnerRule,
)

SETTINGS = Settings(budget=2.0, budgets=(0.5, 1.0, 2.0), discount=0.9)


def _classes() -> list[type]:
    found = []
    for file in Path(next(iter(deniable.strategies.__path__))).glob("*.py"):
        module = import_module(f"deniable.strategies.{file.stem}")
        found += [
            value
            for name, value in vars(module).items()
            if inspect.isclass(value) and isinstance(vars(value).get("name"), str)
            if value.__module__ == module.__name__ and not name.startswith("_")
        ]
    return found


def test_every_policy_is_in_the_catalogue() -> None:
    named = {kind.name for kind in _classes() if kind.name and hasattr(kind, "rule")}  # type: ignore[attr-defined]
    custom = {
        f"{learner.name}{way}"
        for learner in (ThompsonSampling, UpperConfidence)
        for way in ("", "-response")
    }
    assert named | custom == set(POLICIES)
    for name in POLICIES:
        assert policy_named(name, SETTINGS).label.partition("(")[0] == name


@pytest.mark.parametrize("name", POLICIES)
def test_the_contract(name: str) -> None:
    policy = policy_named(name, SETTINGS)
    assert policy.label.startswith(name)
    assert policy.risk_cap >= 0
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(policy) == hash(policy_named(name, SETTINGS))
    with pytest.raises((FrozenInstanceError, AttributeError)):
        policy.label = "mine"  # type: ignore[misc]
    rates = np.array([[0.1, 0.2, 0.3], [0.4, 0.3, 0.2]])
    rule = policy.rule(rates, 1000)
    if isinstance(rule, FixedRule):
        assert rule.shown.shape == rates.shape
        assert np.allclose(rule.shown.sum(axis=1), 1)
    elif isinstance(rule, IndexRule):
        assert 0 < rule.discount < 1
    elif isinstance(rule, LearnerRule):
        _check_learner(rule, policy.risk_cap)
    elif isinstance(rule, EpochRule | KnownRatesRule):
        assert rule.budget == policy.risk_cap  # what a budget is for: tests/strategies
    else:
        assert isinstance(rule, GreedyRule)
        _check_greedy(rule, policy.risk_cap)


def _check_learner(rule: LearnerRule, cap: float) -> None:
    """Randomized response has the cap's risk, and a free learner has no cap."""
    assert (rule.n_arms, rule.n_segments, rule.horizon) == (3, 2, 1000)
    if rule.explored:
        shown = 1 - rule.explored + rule.explored / 3
        assert math.log(shown / (rule.explored / 3)) == pytest.approx(cap)
    else:
        assert math.isinf(cap)


def _check_greedy(rule: GreedyRule, cap: float) -> None:
    """At every clock the shown arm's probabilities keep the cap, and the bonus never falls."""
    assert (np.diff(rule.turns) >= 0).all()
    exploring = np.empty(3)
    before = 0.0
    for clock in [*range(1, 200), 10**3, 10**4, 10**6, 10**9]:
        bonus = float(explore(kernel_rule(rule), clock, exploring))
        assert abs(exploring.sum() + bonus - 1) < 1e-12
        assert bonus >= before - 1e-15
        before = bonus
        risks = np.log1p(bonus / exploring)
        assert risks.max() <= cap + 1e-9 or math.isinf(cap)


@pytest.mark.parametrize("clock", [1, 2, 3, 10, 100, 5000, 10**7])
@pytest.mark.parametrize("n_arms", [2, 3, 8])
def test_rules_are_the_mechanisms(clock: int, n_arms: int) -> None:
    """The kernels' exploration against the privacy layer's mechanisms."""
    rates = np.full((1, n_arms), 0.1)
    budgets = tuple(np.linspace(0.5, 4, n_arms).tolist())
    given = Settings(3.0, budgets)
    wanted: dict[str, Any] = {
        "constant": RandomizedResponse(n_arms, 3.0),
        "dynamic": Dynamic(3.0).mechanism(clock, n_arms),
        "arm-constant": ArmSpecificResponse(budgets),
        "arm-dynamic": ArmDynamic(budgets).mechanism(clock),
    }
    for name, mechanism in wanted.items():
        rule = policy_named(name, given).rule(rates, 10**8)
        assert isinstance(rule, GreedyRule)
        out = np.empty(n_arms)
        bonus = explore(kernel_rule(rule), clock, out)
        shown = out.copy()
        shown[1] += bonus
        assert np.allclose(shown, mechanism.shown_distribution(1), rtol=1e-12, atol=1e-14), name


def test_only_perfect_information_looks_at_the_rates() -> None:
    one, other = np.array([[0.1, 0.2, 0.3]]), np.array([[0.3, 0.2, 0.1]])
    for name in POLICIES:
        rules = [policy_named(name, SETTINGS).rule(rates, 100) for rates in (one, other)]
        texts = [repr(vars(rule)) for rule in rules]
        assert (texts[0] != texts[1]) == (name == "perfect")


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        ("constant", Settings(), "budget"),
        ("dynamic", Settings(budget=-1), "budget"),
        ("arm-constant", Settings(budget=1), "budgets"),
        ("arm-dynamic", Settings(budgets=(0.0, 1.0)), "budgets"),
        ("gittins", Settings(discount=1.0), "discount"),
        ("softmax", Settings(), "policies"),
        ("thompson-response", Settings(), "budget"),
    ],
)
def test_bad_settings_are_named(name: str, settings: Settings, named: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        policy_named(name, settings)
    assert caught.value.argument == named


@pytest.mark.parametrize("budget", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("n_arms", [2, 5])
def test_the_dynamic_schedule_turns_where_its_floor_is_reached(n_arms: int, budget: float) -> None:
    """The first visitor whose exploration is at the floor, by a scan of (K log n / n)^(1/3)."""
    rule = Dynamic(budget).rule(np.full((1, n_arms), 0.1), 10**6)
    assert isinstance(rule, GreedyRule)
    n = np.arange(3, 200_000)
    falling = np.minimum(1.0, np.cbrt(n_arms * np.log(n) / n))
    floor = n_arms / (n_arms - 1 + np.exp(budget))
    assert rule.turns.tolist() == [float(n[(falling <= floor).argmax()])]
    assert rule.floor == pytest.approx(floor, rel=1e-12)
    assert rule.on_segment_clock


def test_budgets_by_arm_follow_the_experiments_clock() -> None:
    """With clocks of their own, two segments would show an arm with a ratio above its budget."""
    rates = np.full((2, 2), 0.1)
    by_arm = ArmDynamic((0.5, 2)).rule(rates, 1000)
    assert isinstance(by_arm, GreedyRule)
    assert not by_arm.on_segment_clock
    assert EpsilonGreedy().rule(rates, 1000).on_segment_clock


@pytest.mark.parametrize(
    ("horizon", "discount"), [(1, 0.5), (2, 0.5), (10, 0.9), (1000, 0.999), (10**8, 0.9999)]
)
def test_the_gittins_discount_is_that_of_the_horizon(horizon: int, discount: float) -> None:
    assert Gittins().rule(np.full((1, 2), 0.1), horizon).discount == discount
    assert Gittins(0.7).rule(np.full((1, 2), 0.1), horizon).discount == 0.7

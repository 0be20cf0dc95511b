"""Every strategy of the table keeps the contract; what holds for all is not said for each."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from deniable.simulation.environment import Environment
from deniable.simulation.run import simulate
from deniable.strategies import STRATEGIES
from deniable.strategies.base import NEAR, Strategy
from deniable.strategies.rules import Grade

SIZES = [(2, 10_000, 1), (5, 1_000_000, 3), (20, 100_000, 2), (2, 20, 1), (3, 10, 40)]

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


@every_strategy
def test_it_introduces_itself(strategy: type[Strategy]) -> None:
    assert STRATEGIES[strategy.name] is strategy
    assert strategy.grade in get_args(Grade)
    assert strategy.title[0].isupper()
    assert strategy.description
    assert not strategy.description.endswith(".")


@every_strategy
@pytest.mark.parametrize(("k", "t", "j"), SIZES)
def test_the_bound_its_gain_and_its_best_budget_belong_together(
    strategy: type[Strategy], k: int, t: int, j: int
) -> None:
    budgets = np.linspace(0, 8, 1601)
    bound = np.asarray(strategy.regret(k, t, budgets, j))
    terms = strategy.regret_terms(k, t, budgets, j)
    np.testing.assert_array_equal(bound, np.asarray(terms.total))
    best = float(strategy.best_budget(k, t, j))
    # Where the bound falls forever, the best budget is where privacy costs what learning does.
    lowest = float(strategy.regret(k, t, 700 if strategy.falls_forever else best, j))
    if strategy.falls_forever:
        assert (np.diff(bound) <= 0).all()
        there = float(strategy.regret(k, t, best, j))
        assert there == pytest.approx(2 * lowest, rel=1e-12) or (best == 0 and there <= 2 * lowest)
    else:
        assert lowest <= bound.min() * (1 + 1e-12)
    near = float(strategy.budget_for_regret(k, t, NEAR, j))
    assert near <= best or strategy.falls_forever
    assert best <= float(strategy.useful_budget(k, t, j))
    assert float(strategy.regret(k, t, near, j)) <= (1 + NEAR) * lowest * (1 + 1e-12)
    assert (bound[budgets < near] > (1 + NEAR) * lowest).all()
    # The gain against differences, away from kinks.
    slope = -np.gradient(bound, budgets)[1:-1]
    gain = np.asarray(strategy.gain(k, t, budgets, j))[1:-1]
    assert np.median(np.abs(gain - slope)) <= 1e-3 * np.abs(slope).max() + 1e-9
    assert np.mean(np.abs(gain - slope) > 0.02 * np.abs(slope).max() + 1e-9) < 0.02
    equal = strategy.regret(k, t, budgets, shares=[1 / j] * j)
    np.testing.assert_allclose(equal, bound, rtol=1e-12)


@every_strategy
@pytest.mark.parametrize(("k", "t", "j"), SIZES)
def test_its_reading_agrees_with_its_elasticity(
    strategy: type[Strategy], k: int, t: int, j: int
) -> None:
    best = float(strategy.best_budget(k, t, j))
    best_regret = float(strategy.regret(k, t, best, j))
    for budget in (0.0, 1e-9, 0.1, 1.0, 2.0, 3.0, 3.5, 5.0, 8.0, 40.0, best):
        gain = float(strategy.gain(k, t, budget, j))
        regret = float(strategy.regret(k, t, budget, j))
        slope = float(strategy.elasticity(k, t, budget, j))
        reading = strategy.reading(
            regret=regret, gain=gain, budget=budget, best_budget=best, best_regret=best_regret
        )
        assert math.isfinite(slope)
        if strategy.falls_forever and gain > 0:
            assert reading == ("too random" if budget < best else "near the best")
            continue
        assert {
            "too random": slope <= 0 and regret > (1 + NEAR) * best_regret,
            "near the best": regret <= (1 + NEAR) * best_regret,
            "too greedy": slope >= 0 and regret > (1 + NEAR) * best_regret,
            "cap never binds": slope == 0 and budget > best,
        }[reading]
        assert strategy.reading_words(reading, slope).endswith(".")


@every_strategy
def test_what_its_visitors_meet(strategy: type[Strategy]) -> None:
    for k, budget in [(2, 0.0), (2, 1.0), (5, 3.0)]:
        spent = strategy(budget)
        clocks = [1, 2, 10, 1000, 10**6]
        assert (np.asarray(spent.risk(clocks, k)) <= budget).all()
        assert spent.risk_cap == budget
        share = spent.exploration(clocks, k)
        binds = spent.binds_at(k)
        if share is None:  # then there is no clock on which the budget would bind
            assert binds is None
            continue
        assert ((np.asarray(share) >= 0) & (np.asarray(share) <= 1)).all()
        assert binds is not None
        assert binds >= 1


@every_strategy
def test_the_simulator_runs_it(strategy: type[Strategy]) -> None:
    policy = strategy(1.0)
    assert policy.name == strategy.name
    assert policy.risk_cap == 1.0
    result = simulate(Environment([0.3, 0.2], 500), [policy], repetitions=3, seed=1, workers=1)
    assert result.frame["policy"].unique().to_list() == [policy.label]


@pytest.mark.parametrize("name", ["constant", "dynamic"])
def test_a_flat_bound_is_read_by_its_side(name: str) -> None:
    """Where the bound does not move, the side of the best budget tells; beyond it nothing binds."""
    strategy = STRATEGIES[name]
    far = {"regret": 2.0, "gain": 0.0, "best_regret": 1.0, "best_budget": 2.0}
    assert strategy.reading(budget=1.0, **far) == "too random"
    assert strategy.reading(budget=2.0, **far) == "too greedy"
    assert strategy.reading(budget=3.0, **far) == "cap never binds"
    near = {"regret": 1.05, "best_regret": 1.0, "best_budget": 2.0}
    assert strategy.reading(budget=1.0, gain=1.0, **near) == "near the best"
    above = {"regret": 1.0500001, "best_regret": 1.0, "best_budget": 2.0}
    assert strategy.reading(budget=1.0, gain=1.0, **above) == "too random"
    assert strategy.reading(budget=1.0, gain=-1.0, **above) == "too greedy"

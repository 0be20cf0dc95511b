"""What budgets change: tables that keep them, beliefs, and clicks computed by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.leak.logs import SHARES, TRUTH, counted

import deniable
from deniable._validation import FloatArray
from deniable.leak.budgets import (
    BUDGETS,
    MECHANISMS,
    BudgetEffect,
    Mechanism,
    Situation,
    budget_effects,
    smoothed_rates,
)
from deniable.leak.measuring import measure

SHOWN = np.array([[8_000, 2_000], [1_000, 4_000]])
CLICKS = np.array([[800, 100], [50, 600]])


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_mechanism_keeps_its_budget(name: str, budget: float) -> None:
    rates = np.random.default_rng(2).random(TRUTH.shape)
    table = MECHANISMS[name](Situation(SHARES, TRUTH, 5.0, rates), budget)
    assert table is not None
    assert table.sum(axis=1) == pytest.approx(1)
    worst = (table.max(axis=0) / table.min(axis=0)).max()
    assert worst <= max(np.exp(budget), 1) * (1 + 1e-12)


def test_a_table_that_keeps_the_budget_stays() -> None:
    now = Situation(SHARES, TRUTH, ratio_high=5.2, rates=None)
    assert MECHANISMS["today's variant"](now, 2.0) is TRUTH
    assert MECHANISMS["today's variant"](now, 1.0) is not TRUTH
    assert MECHANISMS["best variant"](now, 1.0) is None


def effects(**options: Any) -> tuple[BudgetEffect, ...]:
    counts = counted(SHOWN, rewards=CLICKS)
    leak = measure(counts, alpha=1e-4)
    return budget_effects([(counts, leak)], segment="s1", prior=1 / 3, met_most=4, **options)


def test_beliefs_are_the_promise() -> None:
    for effect in effects():
        assert effect.belief == pytest.approx(float(deniable.highest_belief(1 / 3, effect.budget)))
        assert effect.joint_belief == pytest.approx(
            float(deniable.highest_belief(1 / 3, 4 * effect.budget))
        )
        for cost in effect.costs:
            assert cost.belief <= effect.belief + 1e-12


def test_clicks_by_hand() -> None:
    """Budget log 3: the chosen variant with 3/4, the other with 1/4. Rates are what both halves have."""
    (effect,) = effects(budgets=[float(np.log(3))])
    visitors = 2 * SHOWN.sum(axis=1)
    rate = [[Fraction(1, 10), Fraction(1, 20)], [Fraction(1, 20), Fraction(3, 20)]]
    today = [[Fraction(8, 10), Fraction(2, 10)], [Fraction(2, 10), Fraction(8, 10)]]
    stay, move = Fraction(3, 4), Fraction(1, 4)

    def clicks(tables: list[list[Fraction]]) -> Fraction:
        return sum(
            (int(visitors[s]) * tables[s][a] * rate[s][a] for s in (0, 1) for a in (0, 1)),
            Fraction(),
        )

    response = [[stay * p + move * q, stay * q + move * p] for p, q in today]
    best = [[stay, move], [move, stay]]
    expected = {
        "today's variant": clicks(response) - clicks(today),
        "best variant": clicks(best) - clicks(today),
    }
    assert float(expected["today's variant"]) == -300
    assert {cost.mechanism for cost in effect.costs} == set(expected)
    for cost in effect.costs:
        assert cost.change == pytest.approx(float(expected[cost.mechanism]), abs=1)  # smoothing
        assert cost.error is not None
        assert cost.error > 0


def test_a_mechanism_is_chosen_on_one_half_and_paid_on_the_other() -> None:
    """Rewards that agree nowhere: what looked best in the first half earns nothing in the second."""
    counts = counted(SHOWN, rewards=CLICKS)
    lucky = np.stack([CLICKS, CLICKS[:, ::-1] * SHOWN / SHOWN[:, ::-1]])
    fooled = type(counts)(
        counts.experiment, counts.segments, counts.variants, counts.shown, lucky, lucky
    )
    pair = [(fooled, measure(fooled, alpha=1e-4))]
    (effect,) = budget_effects(pair, segment="s1", prior=1 / 3, met_most=None, budgets=[5.0])
    best = next(cost for cost in effect.costs if cost.mechanism == "best variant")
    assert best.change is not None
    assert best.change < 0
    assert effect.joint_belief is None


def test_another_mechanism_can_be_plugged_in() -> None:
    """The row that is best for everybody, shown to everybody: no risk at all."""

    def same_for_all(now: Situation, budget: float) -> FloatArray | None:
        assert now.rates is not None
        best = int((now.shares @ now.rates).argmax())
        table = np.zeros_like(now.today)
        table[:, best] = 1
        return table

    plugged: dict[str, Mechanism] = {"same for all": same_for_all}
    (effect,) = effects(budgets=[0.0], mechanisms=plugged)
    assert [cost.mechanism for cost in effect.costs] == ["same for all"]
    assert effect.costs[0].belief == pytest.approx(1 / 3)


def test_standard_errors_cover_the_truth() -> None:
    """400 logs with known rates: |found - true| beyond 5 errors does not happen, 0.2 errors does."""
    rng = np.random.default_rng(3)
    truth = np.array([[0.10, 0.05], [0.05, 0.15]])
    scores = []
    for _ in range(400):
        rewards = np.stack([rng.binomial(SHOWN, truth) for _ in range(2)]).astype(float)
        counts = counted(SHOWN, rewards=CLICKS)
        drawn = type(counts)("x", counts.segments, counts.variants, counts.shown, rewards, rewards)
        pair = [(drawn, measure(drawn, alpha=1e-4))]
        (effect,) = budget_effects(pair, segment="s1", prior=1 / 3, met_most=None, budgets=[1.0])
        cost = effect.costs[0]
        assert cost.change is not None
        assert cost.error is not None
        leak = pair[0][1]
        table = MECHANISMS["today's variant"](Situation(leak.shares, leak.table, 100, None), 1.0)
        assert table is not None
        true = (leak.shares[:, None] * (table - leak.table) * truth).sum() * leak.visitors
        scores.append((cost.change - true) / cost.error)
    assert np.abs(scores).max() < 5
    assert 0.8 < np.std(scores) < 1.2


def test_cells_without_exposures_take_the_variants_mean() -> None:
    rates = smoothed_rates(
        np.array([[0.0, 100.0], [100.0, 100.0]]), np.array([[0, 10], [50, 10.0]])
    )
    assert rates[0, 0] == pytest.approx(0.5, abs=0.01)

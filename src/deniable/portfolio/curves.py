"""Curves: the regret bound of one experiment under one strategy, as a function of its budget.

A portfolio is a flat list of curves, so that thousands of them are evaluated in one call. A curve
ends at its best budget: spending more cannot help. Between its ends it is smooth except at its kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.portfolio.problem import Portfolio, Regime
from deniable.privacy.exploration import _risk
from deniable.theory.best_budget import best_constant_budget, best_dynamic_budget
from deniable.theory.elasticity import constant_gain, dynamic_gain
from deniable.theory.regret import constant_regret, dynamic_regret

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
STRATEGIES = ("constant", "dynamic")
CONSTANT, DYNAMIC = 0, 1

_BRANCH_RATE = np.cbrt(2 / np.e)  # with two arms the clock rests at e until exploration is here


@dataclass(frozen=True)
class Curves:
    """Flat arrays, one entry for each (experiment, strategy) that may be chosen.

    Attributes:
        experiment: the row of the portfolio.
        dynamic: whether the strategy is the dynamic one.
        arms, visitors, segments: K, T and J.
        low, high: the budgets to choose from, in nats; beyond `high` the bound does not fall.
    """

    experiment: IntArray
    dynamic: BoolArray
    arms: FloatArray
    visitors: FloatArray
    segments: FloatArray
    low: FloatArray
    high: FloatArray

    def regret(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """The bound of each curve at its budget."""
        return self._apply((constant_regret, dynamic_regret), curve, budget)

    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """-dR/d budget of each curve at its budget."""
        return self._apply((constant_gain, dynamic_gain), curve, budget)

    def kinks(self) -> FloatArray:
        """Budgets at which a curve's slope jumps, NaN where there is none; shape (curves, 2)."""
        clock = self.visitors / self.segments
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.cbrt(self.arms * np.log(clock) / clock)
            several = np.where(
                self.dynamic & (self.segments > 1) & (clock > np.e) & (rate < 1),
                _risk(self.arms, rate),
                np.nan,
            )
        branch = _risk(np.float64(2), _BRANCH_RATE)
        two = np.where(self.dynamic & (self.arms == 2), branch, np.nan)
        return np.stack([two, several], axis=1)

    def _apply(
        self, formulas: tuple[Callable[..., object], ...], curve: IntArray, budget: FloatArray
    ) -> FloatArray:
        # One call for each form of the bound: the formula for several segments is not computed
        # for experiments that have one.
        kind = np.where(self.dynamic[curve], 1 + (self.segments[curve] > 1), 0)
        result = np.empty(budget.shape)
        for form in range(3):
            chosen = kind == form
            if not chosen.any():
                continue
            rows = curve[chosen]
            result[chosen] = formulas[min(form, 1)](
                self.arms[rows], self.visitors[rows], budget[chosen], self.segments[rows]
            )
        return result


def build_curves(portfolio: Portfolio, regime: Regime) -> Curves:
    """Every strategy that the regime and the experiment's own pin allow, unless dominated.

    With one segment the dynamic bound is never above the constant one at the same budget: with n the
    exhaustion clock it is lower by 2 sqrt(2) n e (2 sqrt(log T / log n) - 1). So only with several
    segments can the constant strategy be the better choice.
    """
    allowed = np.stack(
        [np.full(portfolio.size, regime != other) for other in ("dynamic", "constant")], axis=1
    )
    pinned = portfolio.strategy_codes
    for code in (CONSTANT, DYNAMIC):
        allowed[pinned == code] = np.arange(2) == code
    both = allowed.all(axis=1)
    allowed[both & (portfolio.segments == 1), CONSTANT] = False
    experiment, code = np.nonzero(allowed)
    arms, visitors, segments = (
        column[experiment].astype(np.float64)
        for column in (portfolio.arms, portfolio.visitors, portfolio.segments)
    )
    dynamic = code == DYNAMIC
    best = np.where(
        dynamic,
        best_dynamic_budget(arms, visitors, segments),
        best_constant_budget(arms, visitors, segments),
    )
    # Up to the next whole nano-nat: just below its best budget a dynamic bound for several segments
    # rises like a square root, and rounding down would cost more than the gap that is promised.
    best = np.ceil(best * NANO) / NANO
    low, top = portfolio.low[experiment], portfolio.high[experiment]
    high = np.maximum(low, np.minimum(top, best))
    return Curves(experiment, dynamic, arms, visitors, segments, low, high)

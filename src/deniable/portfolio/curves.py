"""Curves: the regret bound of one experiment under one strategy, as a function of its budget.

A portfolio is a flat list of curves, so that thousands of them are evaluated in one call. A curve
ends at its best budget: spending more cannot help. Between its ends it is smooth except at its kinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable._blocks import in_blocks
from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.portfolio.problem import Portfolio, Regime
from deniable.privacy.exploration import _risk
from deniable.theory.best_budget import best_constant_budget, best_dynamic_budget
from deniable.theory.elasticity import _dynamic_gain, constant_gain
from deniable.theory.regret import _dynamic_regret, constant_regret

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
STRATEGIES = ("constant", "dynamic")
CONSTANT, DYNAMIC = 0, 1

Formula = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], Any]

# Curves are checked when they are made; the search asks for their values hundreds of times.
_dynamic_regrets: Formula = partial(in_blocks, _dynamic_regret)
_dynamic_gains: Formula = partial(in_blocks, _dynamic_gain)

_BRANCH_RATE = np.cbrt(2 / math.e)  # with two arms the clock rests at e until exploration is here


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
        return self._apply((constant_regret, _dynamic_regrets, _dynamic_regrets), curve, budget)

    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """-dR/d budget of each curve at its budget."""
        return self._apply((constant_gain, _dynamic_gains, _dynamic_gains), curve, budget)

    @cached_property
    def form(self) -> IntArray:
        """Which form of the bound holds: 0 constant, 1 dynamic with one segment, 2 with several."""
        return np.where(self.dynamic, 1 + (self.segments > 1), 0)

    def kinks(self) -> FloatArray:
        """Budgets at which a curve's slope jumps, NaN where there is none; shape (curves, 2)."""
        clock = self.visitors / self.segments
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.cbrt(self.arms * np.log(clock) / clock)
            several = np.where(
                self.dynamic & (self.segments > 1) & (clock > math.e) & (rate < 1),
                _risk(self.arms, rate),
                np.nan,
            )
        branch = _risk(np.array(2.0), np.array(_BRANCH_RATE))
        two = np.where(self.dynamic & (self.arms == 2), branch, np.nan)
        return np.stack([two, several], axis=1)

    def _apply(
        self, formulas: tuple[Formula, ...], curve: IntArray, budget: FloatArray
    ) -> FloatArray:
        # By form: where all experiments of a call have one segment, the other form is not computed.
        form = self.form[curve]
        result = np.empty(budget.shape)
        for which, formula in enumerate(formulas):
            chosen = np.flatnonzero(form == which)
            if chosen.size:
                rows = curve[chosen]
                result[chosen] = formula(
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
    for strategy in (CONSTANT, DYNAMIC):
        allowed[pinned == strategy] = np.arange(2) == strategy
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

"""Curves: the regret bound of one experiment under one strategy, as a function of its budget.

A portfolio is a flat list of curves, so that thousands of them are evaluated in one call. A curve ends
where spending more cannot help, or hardly. Between its ends it is smooth except at its kinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.portfolio.problem import FLEXIBLE, Portfolio
from deniable.strategies import STRATEGIES
from deniable.strategies.base import Strategy
from deniable.theory.regret import Form

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Curves:
    """Flat arrays, one entry for each (experiment, strategy) that may be chosen.

    Attributes:
        names: the strategies that `strategy` counts.
        form: which bound.
        experiment: the row of the portfolio.
        strategy: the position of its strategy in `names`.
        arms, visitors, segments: K, T and J.
        low, high: the budgets to choose from, in nats; beyond `high` it hardly falls.
    """

    names: tuple[str, ...]
    form: Form
    experiment: IntArray
    strategy: IntArray
    arms: FloatArray
    visitors: FloatArray
    segments: FloatArray
    low: FloatArray
    high: FloatArray

    def regret(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """The bound of each curve at its budget."""
        return self._apply("regret", curve, budget)

    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """-dR/d budget of each curve at its budget."""
        return self._apply("gain", curve, budget)

    def strategies(self, curve: IntArray) -> tuple[str, ...]:
        """The name of each curve's strategy."""
        return tuple(self.names[int(code)] for code in self.strategy[curve])

    def kinks(self) -> FloatArray:
        """Budgets at which a curve's slope jumps, NaN where there is none; shape (curves, any)."""
        columns = []
        for code, name in enumerate(self.names):
            found = STRATEGIES[name].kinks(self.arms, self.visitors, self.segments, form=self.form)
            columns.append(np.where((self.strategy == code)[:, None], found, np.nan))
        return np.concatenate(columns, axis=1)

    def _apply(self, formula: str, curve: IntArray, budget: FloatArray) -> FloatArray:
        # By strategy: what nobody uses is not computed.
        code = self.strategy[curve]
        result = np.empty(budget.shape)
        for which, name in enumerate(self.names):
            chosen = np.flatnonzero(code == which)
            if chosen.size:
                rows = curve[chosen]
                evaluate: Any = getattr(STRATEGIES[name], formula)
                result[chosen] = evaluate(
                    self.arms[rows],
                    self.visitors[rows],
                    budget[chosen],
                    self.segments[rows],
                    form=self.form,
                )
        return result


def build_curves(portfolio: Portfolio, regime: str) -> Curves:
    """Every strategy that the regime and the experiment's own pin allow, unless dominated."""
    names = tuple(name for name, strategy in STRATEGIES.items() if portfolio.form in strategy.forms)
    codes = {name: code for code, name in enumerate(names)}
    kinds: list[type[Strategy]] = [STRATEGIES[name] for name in names]
    allowed = np.stack(
        [
            (regime in (FLEXIBLE, kind.name)) & kind.fits(portfolio.arms, portfolio.segments)
            for kind in kinds
        ],
        axis=1,
    )
    for row, pinned in enumerate(portfolio.strategies):
        if pinned is not None:
            allowed[row] = np.arange(len(names)) == codes[pinned]
    if not allowed.any(axis=1).all():
        first = portfolio.ids[int(np.flatnonzero(~allowed.any(axis=1))[0])]
        raise InvalidArgumentError(
            "regime", regime, f"a strategy that can serve experiment {first!r} and has this bound"
        )
    for code, kind in enumerate(kinds):
        choice = allowed.sum(axis=1) > 1
        allowed[choice & kind.dominated(portfolio.segments, form=portfolio.form), code] = False
    experiment, chosen = np.nonzero(allowed)
    arms, visitors, segments = (
        column[experiment].astype(np.float64)
        for column in (portfolio.arms, portfolio.visitors, portfolio.segments)
    )
    useful = np.zeros(experiment.size)
    for which, kind in enumerate(kinds):
        rows = np.flatnonzero(chosen == which)
        if rows.size:
            useful[rows] = kind.useful_budget(
                arms[rows], visitors[rows], segments[rows], form=portfolio.form
            )
    # Up to the next whole nano-nat: just below its best budget a dynamic bound for several segments
    # rises like a square root, and rounding down would cost more than the gap that is promised.
    useful = np.ceil(useful * NANO) / NANO
    low, top = portfolio.low[experiment], portfolio.high[experiment]
    high = np.maximum(low, np.minimum(top, useful))
    return Curves(
        *(names, portfolio.form, experiment, chosen),
        *(arms, visitors, segments, low, high),
    )

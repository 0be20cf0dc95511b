"""Curves: the loss of one experiment under one strategy, as a function of its budget.

A portfolio is a flat list of curves, so that thousands of them are evaluated in one call. A curve
ends where more budget cannot help, or hardly helps. Bounds are formulas, smooth between their ends
except at their kinks. Expected losses are tables, linear between budgets; any other table that
falls with the budget would do as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.expectations.expected import expected_loss, has_surface
from deniable.portfolio.problem import FLEXIBLE, Portfolio
from deniable.strategies import STRATEGIES
from deniable.theory.regret import Form

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Curves(ABC):
    """Flat arrays with one entry for each possible (experiment, strategy).

    Attributes:
        names: names of the strategies that `strategy` refers to.
        experiment: row in the portfolio.
        strategy: index of its strategy in `names`.
        useful: budget beyond which more hardly helps, in nats.
        low, high: the budgets to choose from; `high` is `useful`, or a limit of the experiment.
    """

    names: tuple[str, ...]
    experiment: IntArray
    strategy: IntArray
    useful: FloatArray
    low: FloatArray
    high: FloatArray

    @abstractmethod
    def regret(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Return the loss of each curve at its budget."""

    @abstractmethod
    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Return -dR/d budget of each curve at its budget."""

    @abstractmethod
    def kinks(self) -> FloatArray:
        """Return budgets at which a curve's slope jumps, padded with NaN; shape (curves, any)."""

    def strategies(self, curve: IntArray) -> tuple[str, ...]:
        """Return the name of each curve's strategy."""
        return tuple(self.names[int(code)] for code in self.strategy[curve])


@dataclass(frozen=True)
class TableCurves(Curves):
    """Losses at common budgets, linear in between.

    Attributes:
        knots: the budgets, in nats, ascending from 0.
        loss: shape (curves, knots), nonincreasing.
    """

    knots: FloatArray
    loss: FloatArray

    def regret(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Interpolate linearly; constant beyond the last knot."""
        place = self._place(budget)
        left, right = self.knots[place], self.knots[place + 1]
        part = np.clip((budget - left) / (right - left), 0.0, 1.0)
        start, end = self.loss[curve, place], self.loss[curve, place + 1]
        return np.asarray(start + part * (end - start))

    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Return the slope of the segment that starts at or before the budget."""
        place = self._place(budget)
        fall = self.loss[curve, place] - self.loss[curve, place + 1]
        slope = fall / (self.knots[place + 1] - self.knots[place])
        return np.asarray(np.where(budget < self.knots[-1], slope, 0.0))

    def kinks(self) -> FloatArray:
        """All knots."""
        return np.broadcast_to(self.knots, (self.experiment.size, self.knots.size))

    def _place(self, budget: FloatArray) -> IntArray:
        return np.clip(np.searchsorted(self.knots, budget, "right") - 1, 0, self.knots.size - 2)


@dataclass(frozen=True)
class BoundCurves(Curves):
    """Regret bounds, times the value of a click.

    Attributes:
        form: form of the bound.
        arms, visitors, segments: K, T and J.
        worth: value of a click.
    """

    form: Form
    arms: FloatArray
    visitors: FloatArray
    segments: FloatArray
    worth: FloatArray

    def regret(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Return the bound of each curve at its budget."""
        return self._apply("regret", curve, budget) * self.worth[curve]

    def gain(self, curve: IntArray, budget: FloatArray) -> FloatArray:
        """Return -dR/d budget of each curve at its budget."""
        return self._apply("gain", curve, budget) * self.worth[curve]

    def kinks(self) -> FloatArray:
        """Return budgets at which a curve's slope jumps, padded with NaN; shape (curves, any)."""
        columns = []
        for code, name in enumerate(self.names):
            found = STRATEGIES[name].kinks(self.arms, self.visitors, self.segments, form=self.form)
            columns.append(np.where((self.strategy == code)[:, None], found, np.nan))
        return np.concatenate(columns, axis=1)

    def _apply(self, formula: str, curve: IntArray, budget: FloatArray) -> FloatArray:
        # Grouped by strategy, so that unused ones are not computed.
        code = self.strategy[curve]
        result = np.empty(budget.shape)
        for which, name in enumerate(self.names):
            chosen = np.flatnonzero(code == which)
            if chosen.size:
                rows = curve[chosen]
                evaluate: Callable[..., FloatArray] = getattr(STRATEGIES[name], formula)
                result[chosen] = evaluate(
                    self.arms[rows],
                    self.visitors[rows],
                    budget[chosen],
                    self.segments[rows],
                    form=self.form,
                )
        return result


@lru_cache(maxsize=4)  # shared by the allocator and the rules that it is compared with
def build_curves(portfolio: Portfolio, regime: str) -> Curves:
    """Return a curve for every allowed strategy of each experiment, unless dominated."""
    expected = portfolio.objective == "expected"
    names = tuple(
        name
        for name, kind in STRATEGIES.items()
        if portfolio.form in kind.forms and not (expected and not has_surface(name))
    )
    allowed = _allowed(portfolio, regime, names)
    return (_expected if expected else _bounds)(portfolio, names, allowed)


def _allowed(portfolio: Portfolio, regime: str, names: tuple[str, ...]) -> BoolArray:
    codes = {name: code for code, name in enumerate(names)}
    columns = [
        (regime in (FLEXIBLE, name)) & STRATEGIES[name].fits(portfolio.arms, portfolio.segments)
        for name in names
    ]
    allowed = np.stack(columns, axis=1)
    for row, pinned in enumerate(portfolio.strategies):
        if pinned is not None:
            allowed[row] = np.arange(len(names)) == codes.get(pinned, -1)
    if not allowed.any(axis=1).all():
        first = portfolio.ids[int(np.flatnonzero(~allowed.any(axis=1))[0])]
        raise InvalidArgumentError(
            "regime", regime, f"a strategy that can serve experiment {first!r} and has this bound"
        )
    return allowed


def _bounds(portfolio: Portfolio, names: tuple[str, ...], allowed: BoolArray) -> BoundCurves:
    for code, name in enumerate(names):
        choice = allowed.sum(axis=1) > 1
        lost = STRATEGIES[name].dominated(portfolio.segments, form=portfolio.form)
        allowed[choice & lost, code] = False
    experiment, chosen = np.nonzero(allowed)
    arms, visitors, segments = (
        column[experiment].astype(np.float64)
        for column in (portfolio.arms, portfolio.visitors, portfolio.segments)
    )
    useful = np.zeros(experiment.size)
    for which, name in enumerate(names):
        rows = np.flatnonzero(chosen == which)
        if rows.size:
            useful[rows] = STRATEGIES[name].useful_budget(
                arms[rows], visitors[rows], segments[rows], form=portfolio.form
            )
    # Round up to a whole nano-nat: just below its best budget a dynamic bound for several segments
    # rises like a square root, and rounding down would cost more than the promised gap.
    useful = np.ceil(useful * NANO) / NANO
    ends = _ends(portfolio, experiment, useful)
    return BoundCurves(
        *(names, experiment, chosen, useful, *ends, portfolio.form),
        *(arms, visitors, segments, portfolio.worth[experiment]),
    )


def _ends(
    portfolio: Portfolio, experiment: IntArray, useful: FloatArray
) -> tuple[FloatArray, FloatArray]:
    low, top = portfolio.low[experiment], portfolio.high[experiment]
    return low, np.maximum(low, np.minimum(top, useful))


KNOTS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.25,
                  2.5, 2.75, 3, 3.25, 3.5, 3.75, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8])  # fmt: skip
"""Budgets at which expected losses are tabulated."""

ENOUGH = 0.01
"""More budget hardly helps once this share of the possible saving is left."""


def _expected(portfolio: Portfolio, names: tuple[str, ...], allowed: BoolArray) -> TableCurves:
    loss = np.full((*allowed.shape, KNOTS.size), np.inf)
    for code, name in enumerate(names):
        rows = np.flatnonzero(allowed[:, code])
        if rows.size:
            loss[rows, code] = expected_table(portfolio, name, rows)
    # A strategy that is never better than another one is not needed.
    for code in range(len(names)):
        for other in range(len(names)):
            beaten = allowed[:, code] & allowed[:, other] & (code != other)
            beaten &= (loss[:, code] >= loss[:, other]).all(axis=1)
            allowed[beaten, code] = False
    experiment, chosen = np.nonzero(allowed)
    table = loss[experiment, chosen]
    left = table - table[:, -1:]
    useful = KNOTS[np.argmax(left <= ENOUGH * left[:, :1], axis=1)]
    ends = _ends(portfolio, experiment, useful)
    return TableCurves(names, experiment, chosen, useful, *ends, KNOTS, table)


def expected_table(portfolio: Portfolio, strategy: str, rows: IntArray) -> FloatArray:
    """Return expected losses of experiments at each knot, times the value of a click.

    A budget need not be spent completely, so a larger one never loses more. Segments of different
    sizes that learn separately are treated as separate experiments. If they learn together, they
    are replaced by a number of equal segments for which two visitors share a segment equally often.
    """
    known = portfolio.known
    assert known is not None
    together = strategy in STRATEGIES and STRATEGIES[strategy].explored(2, 100, 1.0) is None
    parts: list[tuple[int, float, int]] = []  # row, visitors, segments
    for row in rows:
        shares, visitors = known.shares[row], float(portfolio.visitors[row])
        if shares is None:
            parts.append((int(row), visitors, int(portfolio.segments[row])))
        elif together:
            alike = round(1 / sum(share**2 for share in shares))
            parts.append((int(row), visitors, max(alike, min(len(shares), 2))))
        else:
            parts += [(int(row), max(1.0, share * visitors), 1) for share in shares]
    row, size, segments = (np.array(column) for column in zip(*parts, strict=True))
    found = expected_loss(
        strategy,
        portfolio.arms[row][:, None],
        np.maximum(np.rint(size), 1)[:, None],
        segments[:, None],
        base_rate=known.base_rate[row][:, None],
        lift=known.lift[row][:, None],
        heterogeneity=known.heterogeneity[row][:, None],
        budgets=KNOTS,
    )
    lost = np.zeros((portfolio.size, KNOTS.size))
    np.add.at(lost, row, found.lost)
    whole = np.minimum.accumulate(lost[rows], axis=1)
    return np.asarray(whole * portfolio.worth[rows, None])

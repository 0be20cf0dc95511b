"""Allocate the firm's budget over its experiments, with a proof of how good the result is.

minimize    sum of losses: regret bounds, or expected lost clicks
subject to  sum of single experiments' budgets + sum over layers of their largest <= firm budget
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._extras import is_installed, require
from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.portfolio.curves import Curves, IntArray, build_curves
from deniable.portfolio.problem import (
    NanoArray,
    Portfolio,
    check_regime,
    firm_nano,
    require_portfolio,
)
from deniable.portfolio.rows import over_commitment
from deniable.portfolio.solver import ROUNDING, Division, divide
from deniable.portfolio.units import Units
from deniable.strategies import STRATEGIES
from deniable.strategies.kernel_rules import Simulated

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

CERTIFIED_GAP = 1e-4
_ROOM = 1e-6  # nats: a unit with less room than that has all that helps it


@dataclass(frozen=True, eq=False)
class Allocation:
    """Budgets and strategies for a portfolio, with what is proven about them.

    Attributes:
        portfolio: the portfolio, which includes the objective.
        regime: which strategies were allowed.
        firm_nano: the available budget, in nano-nats.
        budgets_nano: the budget of each experiment, in nano-nats.
        strategies: name of each experiment's strategy.
        regret: loss of each experiment at its budget: the bound or the expected lost clicks, times
            the value of a click.
        saved: reduction of the loss compared with the experiment's least budget, which is 0 unless
            it has a minimum or a commitment.
        marginal_gain: what the next nat of each would save, whether or not it may have it.
        shadow_value: lambda, the regret that one more nat of firm budget would save.
        total_regret: the sum of the losses.
        lower_bound: no allocation has a smaller sum.
        total_saved: the sum of `saved`.
        relative_gap: (total_regret - lower_bound) relative to the largest saving that the lower
            bound allows: at most this share of it is missed.
        certified: whether the requested gap was reached.
        seconds: run time.
        curves: the losses as functions of the budget.
        curve: index of each experiment's curve.

    >>> found = allocate(Portfolio.from_sizes([2, 5], [1000, 50_000], form="paper"), 2.5)
    >>> found.budgets.tolist(), found.spent_nano, found.certified
    ([0.0, 2.5], 2500000000, True)
    """

    portfolio: Portfolio
    regime: str
    firm_nano: int
    budgets_nano: NanoArray
    strategies: tuple[str, ...]
    regret: FloatArray
    saved: FloatArray
    marginal_gain: FloatArray
    shadow_value: float
    total_regret: float
    lower_bound: float
    total_saved: float
    relative_gap: float
    certified: bool
    seconds: float
    curves: Curves = field(repr=False)
    curve: IntArray = field(repr=False)

    @property
    def budgets(self) -> FloatArray:
        """The budgets in nats."""
        return self.budgets_nano / NANO

    @property
    def firm_budget(self) -> float:
        """The firm budget in nats."""
        return self.firm_nano / NANO

    @property
    def spent_nano(self) -> int:
        """Total cost of the budgets: the sum of single experiments, and the largest of each group."""
        return self.portfolio.cost(self.budgets_nano)

    @property
    def has_all(self) -> NDArray[np.bool_]:
        """Which experiments have all the budget that helps them."""
        return np.asarray(self.budgets > 0.999 * self.curves.useful[self.curve])

    @property
    def at_limit(self) -> NDArray[np.bool_]:
        """Which experiments may not have more, because of a maximum or a commitment."""
        return np.asarray(self.budgets_nano >= self.portfolio.max_nano)

    @property
    def certificate(self) -> str:
        """What is proven, as text.

        >>> allocate(Portfolio.from_sizes([2], [9000], form="paper"), 1).certificate
        'Certified: at most 0.0001% of the possible saving is missed.'
        """
        part = f"{gap_words(self.relative_gap)} of the possible saving"
        if self.certified:
            return f"Certified: at most {part} is missed."
        return f"NOT certified: up to {part} may be missed."

    def policies(self) -> dict[str, Simulated]:
        """Return the simulator's policies by experiment id: the strategy at its budget.

        >>> found = allocate(Portfolio.from_sizes([2, 5], [1000, 50_000], form="paper"), 2.5)
        >>> found.policies()["e2"].risk_cap
        2.5
        """
        rows = zip(self.portfolio.ids, self.strategies, self.budgets, strict=True)
        return {name: STRATEGIES[kind](float(budget)) for name, kind, budget in rows}

    def what_if(self, firm_budgets: Sequence[float] | None = None, *, n_points: int = 33) -> WhatIf:
        """Return the optimum for other firm budgets.

        Args:
            firm_budgets: in nats; by default from the smallest possible to the largest useful.
            n_points: number of firm budgets by default, denser where the curve bends.

        >>> two = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
        >>> curve = allocate(two, 4, regime="dynamic").what_if([1.5, 4])
        >>> curve.total_regret.round(1).tolist(), round(curve.unlimited_cost, 4)
        ([8934.9, 5938.2], 4.7215)
        """
        units = _units(self.portfolio, self.regime)
        least, most = units.least_cost / NANO, units.useful_cost / NANO
        if firm_budgets is None:
            points = check.whole("n_points", n_points, 2)
            budgets = least + (most - least) * np.linspace(0, 1, points) ** 2
            budgets = np.ceil(budgets * NANO) / NANO
        else:
            given = np.asarray(firm_budgets, dtype=float)
            budgets = np.unique(check.nonnegative("firm_budgets", given))
        found = [allocate(self.portfolio, float(b), regime=self.regime) for b in budgets]
        return WhatIf(
            budgets,
            np.array([a.total_regret for a in found]),
            np.array([a.lower_bound for a in found]),
            np.array([a.shadow_value for a in found]),
            tuple(a.certified for a in found),
            most,
        )

    def budget_for_share(self, share: float) -> float:
        """Return the smallest firm budget that reaches a share of what an unlimited one saves.

        Args:
            share: 0.9 for 90% of the saving.

        Returns:
            Nats, rounded up to a millionth.

        >>> two = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
        >>> round(allocate(two, 4).budget_for_share(0.9), 3)
        2.7
        """
        part = check.single("share", check.probability("share", share))
        units = _units(self.portfolio, self.regime)

        def regret(firm_budget: float) -> float:
            return allocate(self.portfolio, firm_budget, regime=self.regime).total_regret

        low, high = units.least_cost / NANO, units.useful_cost / NANO
        worst, best = regret(low), regret(high)
        target = worst - part * (worst - best)
        if part in (0, 1) or best >= worst:
            return high if part == 1 and best < worst else low
        from scipy.optimize import brentq

        root = brentq(lambda firm_budget: regret(firm_budget) - target, low, high, xtol=5e-7)
        return float(np.ceil((root + 5e-7) * 1e6) / 1e6)

    def chart(self, *, compared: bool = False) -> ChartType:
        """Chart budgets, marginal gains and the what-if curve with Altair.

        Args:
            compared: add the totals of other rules.
        """
        from deniable.charts.portfolio import allocation_chart

        return allocation_chart(self, compared=compared)

    def __repr__(self) -> str:
        size = f"{self.portfolio.size:,} experiments, firm budget {self.firm_budget:g}"
        return f"Allocation({size}: regret {self.total_regret:,.0f})"

    def _repr_html_(self) -> str:
        """Render a table and the chart for notebooks."""
        if not is_installed("altair"):
            return f"<p>{escape(repr(self))}</p>"
        from deniable.charts.portfolio import allocation_html

        return allocation_html(self)

    def frame(self) -> pl.DataFrame:
        """Return one row per experiment, largest budget first."""
        require("polars", extra="data")
        import polars as pl

        columns: dict[str, list[str | None] | list[str] | IntArray | FloatArray] = {
            "id": list(self.portfolio.ids),
            "arms": self.portfolio.arms,
            "visitors": self.portfolio.visitors,
            "segments": self.portfolio.segments,
            "value": self.portfolio.worth,
            "layer": list(self.portfolio.groups),
            "strategy": list(self.strategies),
            "budget": self.budgets,
            "budget_nano": self.budgets_nano,
            "regret": self.regret,
            "saved": self.saved,
            "marginal_gain": self.marginal_gain,
        }
        schema = {"id": pl.String, "layer": pl.String, "strategy": pl.String}
        frame = pl.DataFrame(columns, schema_overrides=schema)
        return frame.sort(["budget_nano", "id"], descending=[True, False])

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON."""
        return {
            "regime": self.regime,
            "objective": self.portfolio.objective,
            "firm_budget": self.firm_budget,
            "spent": self.spent_nano / NANO,
            "spent_nano": self.spent_nano,
            "shadow_value": self.shadow_value,
            "total_regret": self.total_regret,
            "lower_bound": self.lower_bound,
            "total_saved": self.total_saved,
            "relative_gap": self.relative_gap,
            "certified": self.certified,
            "certificate": self.certificate,
            "seconds": self.seconds,
            "experiments": self.frame().to_dicts(),
        }


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The optimum for each of several firm budgets.

    Attributes:
        firm_budgets: in nats, ascending.
        total_regret: the smallest total found for each.
        lower_bound: proven lower bound for each.
        shadow_value: lambda at each.
        certified: whether each reached the usual gap.
        unlimited_cost: the firm budget beyond which nothing is gained.

    >>> one = allocate(Portfolio.from_sizes([2], [10_000], form="paper"), 1)
    >>> one.what_if(n_points=3).share_of_gain.round(3).tolist()
    [0.0, 0.365, 1.0]
    """

    firm_budgets: FloatArray
    total_regret: FloatArray
    lower_bound: FloatArray
    shadow_value: FloatArray
    certified: tuple[bool, ...]
    unlimited_cost: float

    @property
    def share_of_gain(self) -> FloatArray:
        """The share of the largest possible saving that each budget reaches, if the curve spans it."""
        most = self.total_regret[0] - self.total_regret[-1]
        saved = self.total_regret[0] - self.total_regret
        return np.asarray(saved / most if most > 0 else np.ones_like(saved))


def allocate(
    portfolio: Portfolio,
    firm_budget: float,
    *,
    regime: str = "flexible",
    reserve: float = 0.0,
    gap: float = CERTIFIED_GAP,
) -> Allocation:
    """Return the best division of the firm budget over the experiments, with its certificate.

    A portfolio is tabulated once, so another firm budget for the same object is faster.

    Args:
        portfolio: the experiments; its objective is minimized.
        firm_budget: Gamma, in nats.
        regime: "flexible" lets each experiment have its best strategy; a strategy's name allows
            only that one. An experiment's own setting takes precedence.
        reserve: amount to keep for future experiments.
        gap: stop once at most this share of the possible saving can be missed.

    >>> two = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
    >>> allocate(two, 1.5, regime="dynamic").budgets.tolist()
    [0.0, 1.5]
    """
    require("scipy", extra="data")
    require_portfolio(portfolio)
    started = time.monotonic()
    available = firm_nano("firm_budget", firm_budget) - firm_nano("reserve", reserve)
    target = check.single("gap", check.probability("gap", gap, open_at_zero=True))
    units = _units(portfolio, check_regime(regime))
    if available < units.least_cost:
        held = np.flatnonzero(portfolio.min_nano > 0)
        rows = [(int(row) + 1, portfolio.ids[row]) for row in held]
        raise over_commitment(rows, units.least_cost / NANO, max(available, 0) / NANO)
    # Some of the gap is left for rounding.
    division = divide(units, available / NANO, 0.9 * target)
    return _allocation(units, regime, division, available, target, started)


def gap_words(gap: float) -> str:
    """Format a proven relative gap in percent, rounded up to one digit, at least 0.0001%.

    >>> gap_words(3e-9), gap_words(2.1e-6), gap_words(0.00095), gap_words(0.0301)
    ('0.0001%', '0.0003%', '0.1%', '4%')
    """
    finest = Decimal(max(gap, 1e-6)) * 100
    step = Decimal(1).scaleb(finest.adjusted())
    return f"{finest.quantize(step, rounding=ROUND_CEILING).normalize():f}%"


@lru_cache(maxsize=8)
def _units(portfolio: Portfolio, regime: str) -> Units:
    return Units(portfolio, build_curves(portfolio, regime))


def _allocation(
    units: Units,
    regime: str,
    division: Division,
    available: int,
    target: float,
    started: float,
) -> Allocation:
    portfolio, curves = units.portfolio, units.curves
    caps = _whole_caps(units, division, available)
    budgets, curve = units.per_experiment(caps)
    nats = budgets / NANO
    regret = curves.regret(curve, nats)
    least = _least_regret(portfolio, curves)
    total, base = math.fsum(regret), math.fsum(units.base)
    # A member of a layer may have what the layer's largest minimum costs anyway, so the saving that
    # the proof is about starts there.
    reached = math.fsum([*units.base, *-regret])
    possible = max(-division.lower_bound, reached)
    # Savings below the rounding error of the sum count as none.
    relative = (possible - reached) / possible if possible > 2 * ROUNDING * base else 0.0
    return Allocation(
        portfolio=portfolio,
        regime=regime,
        firm_nano=available,
        budgets_nano=budgets,
        strategies=curves.strategies(curve),
        regret=regret,
        saved=least - regret,
        marginal_gain=np.where(
            nats >= curves.useful[curve], 0.0, np.maximum(curves.gain(curve, nats), 0.0)
        ),
        shadow_value=_next_nat(units, caps / NANO),
        total_regret=total,
        lower_bound=min(base - possible, total),
        total_saved=math.fsum([*least, *-regret]),
        relative_gap=relative,
        certified=relative <= target,
        seconds=time.monotonic() - started,
        curves=curves,
        curve=curve,
    )


def _whole_caps(units: Units, division: Division, available: int) -> NanoArray:
    """Return the units' budgets in whole nano-nats, exactly within the firm budget."""
    low = np.ceil(units.low * NANO - 1e-3).astype(np.int64)
    high = np.maximum(low, np.floor(units.high * NANO + 1e-3).astype(np.int64))
    caps = np.clip(np.floor(division.budget * NANO + 1e-3).astype(np.int64), low, high)
    # Rounding changes the sum by at most a nano-nat per unit. Units far from their ends compensate:
    # at an end a bound may have a kink, or rise like a square root beyond it.
    inside = np.minimum(division.budget - units.low, units.high - division.budget)
    left = available - int(caps.sum())
    for unit in np.argsort(-inside):
        if left == 0 or left > caps.size:
            break
        change = int(np.clip(left, low[unit] - caps[unit], high[unit] - caps[unit]))
        caps[unit] += change
        left -= change
    return caps


def _next_nat(units: Units, budget: FloatArray) -> float:
    """Return what one more nat of firm budget would save, given to the unit that it helps most."""
    room = np.flatnonzero(units.high - budget > _ROOM)
    return float(units.gain(room, budget[room] + 2 / NANO).max(initial=0.0))


def _least_regret(portfolio: Portfolio, curves: Curves) -> FloatArray:
    """Return the loss of each experiment at its least budget, with its best strategy there."""
    each = np.arange(curves.experiment.size)
    least = np.full(portfolio.size, np.inf)
    np.minimum.at(least, curves.experiment, curves.regret(each, curves.low))
    return least

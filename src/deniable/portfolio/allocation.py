"""Allocate the firm's budget over its experiments, with a proof of how good the result is.

minimize    sum of losses: regret bounds, or expected lost clicks
subject to  sum of loners' budgets + sum over groups of their largest budget <= firm budget
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.policies.base import Policy
from deniable.portfolio.curves import Curves, IntArray, build_curves
from deniable.portfolio.dual import ROUNDING, Demand
from deniable.portfolio.equalize_gains import equalize_gains
from deniable.portfolio.initial_price import SampledLosses
from deniable.portfolio.pieces import (
    Losses,
    Pieces,
    cells_of_group,
    cells_of_loners,
    clip_pieces,
    cut_into_pieces,
    join_cells,
)
from deniable.portfolio.problem import (
    NanoArray,
    Portfolio,
    check_regime,
    firm_nano,
    require_portfolio,
)
from deniable.portfolio.rows import over_commitment
from deniable.portfolio.search import Best, Search, SearchResult
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

CERTIFIED_GAP = 1e-4
TIME_LIMIT = 10.0


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
        saved: reduction of the loss compared with budget 0.
        marginal_gain: what the last nano-nat of each saved, in regret per nat.
        shadow_value: lambda, the regret that one more nat of firm budget would save.
        total_regret: the sum of the losses.
        lower_bound: no allocation has a smaller sum.
        total_saved: reduction of total_regret compared with the smallest possible budgets.
        relative_gap: (total_regret - lower_bound) relative to the largest saving that the lower
            bound allows: at most this share of it is missed.
        certified: whether the requested gap was reached within the time limit.
        nodes: nodes of the branch-and-bound search; 1 if none was needed.
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
    nodes: int
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
    def certificate(self) -> str:
        """What is proven, as text.

        >>> allocate(Portfolio.from_sizes([2], [9000], form="paper"), 1).certificate
        'Certified: at most 0.0001% of the possible saving is missed.'
        """
        part = f"{gap_words(self.relative_gap)} of the possible saving"
        if self.certified:
            return f"Certified: at most {part} is missed."
        return f"NOT certified: up to {part} may be missed. The time given was too short for more."

    def policies(self) -> dict[str, Policy]:
        """Return the simulator's policies by experiment id: the strategy at its budget.

        >>> found = allocate(Portfolio.from_sizes([2, 5], [1000, 50_000], form="paper"), 2.5)
        >>> found.policies()["e2"].risk_cap
        2.5
        """
        rows = zip(
            *(self.portfolio.ids, self.portfolio.arms, self.strategies, self.budgets), strict=True
        )
        return {name: STRATEGIES[kind](int(k), float(b)).policy() for name, k, kind, b in rows}

    def chart(self, *, compared: bool = False) -> ChartType:
        """Chart budgets, marginal gains and the what-if curve with Altair.

        Args:
            compared: add the totals of other rules.
        """
        from deniable.charts.portfolio import allocation_chart

        return allocation_chart(self, compared=compared)

    def _repr_html_(self) -> str:
        """Render a table and the chart for notebooks."""
        from deniable.charts.portfolio import allocation_html

        return allocation_html(self)

    def frame(self) -> pl.DataFrame:
        """Return one row per experiment, largest budget first."""
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
            "nodes": self.nodes,
            "seconds": self.seconds,
            "experiments": self.frame().to_dicts(),
        }


class Allocator:
    """A portfolio prepared once, for allocating any number of firm budgets.

    >>> portfolio = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
    >>> allocator = Allocator(portfolio, regime="dynamic")
    >>> allocator.allocate(4).budgets.round(4).tolist()
    [1.2711, 2.7289]
    """

    def __init__(self, portfolio: Portfolio, regime: str = "flexible") -> None:
        """Cut every experiment's bound into convex and concave pieces."""
        require_portfolio(portfolio)
        self.portfolio, self.regime = portfolio, check_regime(regime)
        self.curves = build_curves(portfolio, self.regime)
        self.losses, self.pieces, self.sampled = _prepare(portfolio, self.curves)
        self.twins = _twins(portfolio)
        self.least_nano = portfolio.cost(portfolio.min_nano)

    def allocate(
        self,
        firm_budget: float,
        *,
        reserve: float = 0.0,
        gap: float = CERTIFIED_GAP,
        time_limit: float = TIME_LIMIT,
    ) -> Allocation:
        """Return the best allocation; see `allocate`."""
        started = time.monotonic()
        available = firm_nano("firm_budget", firm_budget) - firm_nano("reserve", reserve)
        if available < self.least_nano:
            raise self._over_committed(available)
        target = check.single("gap", check.probability("gap", gap, open_at_zero=True))
        limit = check.single("time_limit", check.nonnegative("time_limit", time_limit))
        nats = available / NANO
        pieces, origin, sampled = self._within(nats)
        search = Search(self.losses, pieces, nats, sampled.initial_price(nats), self.twins)
        result = search.run(0.9 * target, started + limit)  # leave some of the gap for rounding
        found, demand = result.best, search.demand
        if origin is not None:  # ends due to the firm budget are not ends of the losses
            found = Best(found.loss, found.budget, origin[found.piece])
            demand = Demand(self.losses, self.pieces)
        best, shadow = equalize_gains(demand, found, nats)
        return self._round(best, shadow, result, available, target, started)

    def _within(self, available: float) -> tuple[Pieces, IntArray | None, SampledLosses]:
        """Return pieces up to what a unit could have if all others had their minimum.

        Savings that would need more than that must not count in the bound: with a small budget,
        they would be most of the apparent saving.
        """
        pieces, first = self.pieces, self.pieces.first
        low, high = pieces.left[first], np.maximum.reduceat(pieces.right, first)
        most = np.minimum(high, low + max(available - float(low.sum()), 0.0) + 1e-12)
        if (most >= high).all():
            return pieces, None, self.sampled
        clipped, origin = clip_pieces(self.losses, pieces, np.arange(first.size), low, most)
        return clipped, origin, self.sampled.up_to(most, clipped)

    def _over_committed(self, available: int) -> Exception:
        held = np.flatnonzero(self.portfolio.min_nano > 0)
        rows = [(int(row) + 1, self.portfolio.ids[row]) for row in held]
        return over_commitment(rows, self.least_nano / NANO, max(available, 0) / NANO)

    def _round(
        self,
        best: Best,
        shadow: float,
        result: SearchResult,
        available: int,
        target: float,
        started: float,
    ) -> Allocation:
        caps = self._whole_caps(best, available)
        budgets, curve = self._per_experiment(caps, best)
        nats = budgets / NANO
        everyone = np.arange(self.portfolio.size)
        regret = self.curves.regret(curve, nats)
        zero = self._zero_regret()
        just_below = np.maximum(nats - 1 / NANO, 0.0)
        total = math.fsum(regret)
        least = self.losses.base
        saved = math.fsum([*least, *-regret])
        possible = max(-result.lower_bound, saved)
        # Savings below the rounding error of the sum count as none.
        noise = 2 * ROUNDING * math.fsum(least)
        relative = (possible - saved) / possible if possible > noise else 0.0
        assert (self.curves.experiment[curve] == everyone).all()
        return Allocation(
            portfolio=self.portfolio,
            regime=self.regime,
            firm_nano=available,
            budgets_nano=budgets,
            strategies=self.curves.strategies(curve),
            regret=regret,
            saved=zero - regret,
            marginal_gain=self.curves.gain(curve, just_below),
            shadow_value=shadow,
            total_regret=total,
            lower_bound=min(math.fsum(least) - possible, total),
            total_saved=saved,
            relative_gap=relative,
            certified=relative <= target,
            nodes=result.nodes,
            seconds=time.monotonic() - started,
            curves=self.curves,
            curve=curve,
        )

    def _whole_caps(self, best: Best, available: int) -> NanoArray:
        """Return the units' budgets in whole nano-nats, exactly within the firm budget."""
        first, pieces = self.pieces.first, self.pieces
        low = np.ceil(pieces.left[first] * NANO - 1e-3).astype(np.int64)
        high = np.floor(np.maximum.reduceat(pieces.right, first) * NANO + 1e-3).astype(np.int64)
        high = np.maximum(low, high)
        caps = np.clip(np.floor(best.budget * NANO + 1e-3).astype(np.int64), low, high)
        over = int(caps.sum()) - available
        # Rounding changes the sum by at most a nano-nat per unit. Units inside their pieces
        # compensate: at an end a bound may have a kink, or rise like a square root beyond it.
        inside = np.minimum(
            best.budget - pieces.left[best.piece], pieces.right[best.piece] - best.budget
        )
        for unit in np.argsort(-inside):
            if over == 0 or over < -caps.size or (over < 0 and inside[unit] < 1e-6):
                break
            room = low[unit] - caps[unit], high[unit] - caps[unit]
            change = int(np.clip(-over, *room))
            caps[unit] += change
            over += change
        return caps

    def _per_experiment(self, caps: NanoArray, best: Best) -> tuple[NanoArray, IntArray]:
        """Return each experiment's budget and curve, from the units' budgets."""
        portfolio = self.portfolio
        budgets = np.zeros(portfolio.size, dtype=np.int64)
        curve = np.zeros(portfolio.size, dtype=np.int64)
        loners = portfolio.loners
        cells = self.losses.cells
        budgets[loners] = caps[: loners.size]
        start = cells.start[self.pieces.cell[best.piece[: loners.size]]]
        curve[loners] = cells.term_curve[start] if loners.size else start
        for unit, rows in enumerate(portfolio.members, start=loners.size):
            budgets[rows], curve[rows] = self._under_cap(rows, int(caps[unit]))
        return budgets, curve

    def _under_cap(self, rows: IntArray, cap: int) -> tuple[NanoArray, IntArray]:
        """Return what the members of a group do with its cap: each its own best at or below it."""
        mine = np.flatnonzero(np.isin(self.curves.experiment, rows))
        _, unit = np.unique(self.curves.experiment[mine], return_inverse=True)
        losses = Losses(self.curves, cells_of_loners(self.curves, mine, unit))
        pieces, _ = cut_into_pieces(losses)
        low = self.portfolio.low[np.sort(rows)]
        narrowed, _ = clip_pieces(
            losses, pieces, np.arange(rows.size), low, np.maximum(low, cap / NANO)
        )
        response = Demand(losses, narrowed).at(0.0)
        nano = np.floor(response.budget * NANO + 1e-3).astype(np.int64)
        own = losses.cells.term_curve[losses.cells.start[narrowed.cell[response.piece]]]
        place = np.argsort(np.argsort(rows))
        least, most = self.portfolio.min_nano[rows], np.maximum(self.portfolio.min_nano[rows], cap)
        return np.clip(nano[place], least, most), own[place]

    def _zero_regret(self) -> FloatArray:
        """Return the smallest bound of each experiment at budget 0 over its curves."""
        curves = self.curves
        at_zero = curves.regret(np.arange(curves.experiment.size), np.zeros(curves.experiment.size))
        least = np.full(self.portfolio.size, np.inf)
        np.minimum.at(least, curves.experiment, at_zero)
        return least


def gap_words(gap: float) -> str:
    """Format a proven relative gap in percent, rounded up to one digit, at least 0.0001%.

    >>> gap_words(3e-9), gap_words(2.1e-6), gap_words(0.00095), gap_words(0.0301)
    ('0.0001%', '0.0003%', '0.1%', '4%')
    """
    finest = Decimal(max(gap, 1e-6)) * 100
    step = Decimal(1).scaleb(finest.adjusted())
    return f"{finest.quantize(step, rounding=ROUND_CEILING).normalize():f}%"


def allocate(
    portfolio: Portfolio,
    firm_budget: float,
    *,
    regime: str = "flexible",
    reserve: float = 0.0,
    gap: float = CERTIFIED_GAP,
    time_limit: float = TIME_LIMIT,
) -> Allocation:
    """Return the best division of the firm budget over the experiments, with its certificate.

    Args:
        portfolio: the experiments; its objective is minimized.
        firm_budget: Gamma, in nats.
        regime: "flexible" lets each experiment have its best strategy; a strategy's name allows
            only that one. An experiment's own setting takes precedence.
        reserve: amount to keep for future experiments.
        gap: prove that at most this share of the possible saving is missed.
        time_limit: seconds after which the best result so far is returned, with its gap.

    >>> two = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
    >>> allocate(two, 1.5, regime="dynamic").budgets.tolist()
    [0.0, 1.5]
    """
    allocator = Allocator(portfolio, regime)
    return allocator.allocate(firm_budget, reserve=reserve, gap=gap, time_limit=time_limit)


def _prepare(portfolio: Portfolio, curves: Curves) -> tuple[Losses, Pieces, SampledLosses]:
    """Prepare the units. Single experiments come first, in order, then groups."""
    unit = np.full(portfolio.size, -1)
    unit[portfolio.loners] = np.arange(portfolio.loners.size)
    alone = np.flatnonzero(unit[curves.experiment] >= 0)
    parts = [cells_of_loners(curves, alone, unit[curves.experiment[alone]])]
    for number, rows in enumerate(portfolio.members, start=portfolio.loners.size):
        parts.append(cells_of_group(curves, rows, number))
    losses = Losses(curves, join_cells(parts))
    return losses, *cut_into_pieces(losses)


def _twins(portfolio: Portfolio) -> IntArray | None:
    """Return labels of the units, equal for interchangeable single experiments; None without any."""
    rows = portfolio.loners
    columns: list[IntArray | FloatArray] = [
        *(portfolio.arms, portfolio.segments, portfolio.strategy_codes),
        *(portfolio.visitors, portfolio.min_nano, portfolio.max_nano, portfolio.worth),
    ]
    known = portfolio.known
    if known is not None:
        kinds = {shares: number for number, shares in enumerate(dict.fromkeys(known.shares))}
        sizes = np.array([kinds[shares] for shares in known.shares])
        columns += [known.base_rate, known.lift, known.heterogeneity, sizes]
    table = np.stack([column[rows] for column in columns], axis=1)
    _, label = np.unique(table, axis=0, return_inverse=True)
    twins = np.concatenate([label.ravel(), rows.size + np.arange(len(portfolio.members))])
    return None if np.unique(twins).size == twins.size else twins

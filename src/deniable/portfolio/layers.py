"""Designs layers for the firm: which experiments exclude each other, and with which shares.

In a layer a visitor enters only one experiment, so the layer costs its largest budget. The price is
traffic: an experiment with a share w of its visitors learns from w T of them, and all others see
its arms at random, as if it did not run. Without layers, a visitor meets every experiment, and
their budgets add up. So few layers give large budgets to few visitors, and many give small ones to
many.

Clicks alone never justify layers: what a layer gains is at most what its best member would gain
with all visitors and the layer's budget, while the others have none. Minimum budgets do:
experiments that are only worth running with some budget, if there are more of them than the sum
allows.

For given layers the best shares are exact in steps of 1/20, and `allocate` divides the budgets.
Which experiments share a layer is found by a heuristic search: layers are merged one by one, the
cheapest pair first, and experiments are moved while that helps. Nothing is proven about this
choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from deniable import _validation as check
from deniable._types import JsonObject, Record
from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.curves import IntArray
from deniable.portfolio.layer_search import (
    IMPOSSIBLE,
    STEPS,
    Found,
    Group,
    LayerProblem,
    designs,
    nearest_number,
    reduced,
)
from deniable.portfolio.problem import Portfolio, check_regime, firm_nano, require_portfolio

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

MOST_EXPERIMENTS = 200


@dataclass(frozen=True)
class Layer:
    """Experiments that exclude each other.

    Attributes:
        name: name of the layer.
        experiments: their ids.
        shares: share of the visitors of each; they sum to 1.
        budget: the largest of their budgets, in nats, which is the cost of the layer.

    >>> Layer("layer 1", ("home", "cart"), (0.75, 0.25), 1.5).budget
    1.5
    """

    name: str
    experiments: tuple[str, ...]
    shares: tuple[float, ...]
    budget: float


@dataclass(frozen=True, eq=False)
class LayerDesign:
    """Layers for a portfolio, with their results.

    Attributes:
        layers: the best ones found; an experiment that excludes no other is in a layer of its own.
        allocation: budgets and strategies within them.
        certified: whether no other budgets within these layers save more, up to the usual gap.
        firm_budget: the largest total risk of a visitor, in nats.
        outside: loss from visitors who are not in an experiment.
        total_loss: total expected lost clicks, times their value.
        one_sum_loss: the same if every visitor meets every experiment and budgets add up; infinite
            if the firm budget does not cover the minimum budgets.
        random_loss: the same with random arms for all visitors.
        n_layers: the numbers of layers that were tried.
        losses: the smallest loss found for each.
        meets: the most experiments that a visitor meets, if given.

    >>> rows = [{"id": i, "arms": 5, "visitors": 90_000, "base_rate": 0.1} for i in "abc"]
    >>> design = design_layers(Portfolio.of(rows), 2)
    >>> design.n_layers, design.certified, design.saved >= 0
    ((1, 2, 3), True, True)
    """

    layers: tuple[Layer, ...]
    allocation: Allocation = field(repr=False)
    certified: bool
    firm_budget: float
    outside: float
    total_loss: float
    one_sum_loss: float
    random_loss: float
    n_layers: tuple[int, ...]
    losses: FloatArray
    meets: int | None

    @property
    def saved(self) -> float:
        """What the layers save compared with a single sum."""
        return self.one_sum_loss - self.total_loss

    def rows(self) -> list[Record]:
        """Return one row per experiment: its layer, share, visitors, strategy and budget."""
        place = {name: row for row, name in enumerate(self.allocation.portfolio.ids)}
        return [
            {
                "id": name,
                "layer": layer.name,
                "share": share,
                "visitors": int(self.allocation.portfolio.visitors[place[name]]),
                "strategy": self.allocation.strategies[place[name]],
                "budget": float(self.allocation.budgets[place[name]]),
                "loss": float(self.allocation.regret[place[name]]),
            }
            for layer in self.layers
            for name, share in zip(layer.experiments, layer.shares, strict=True)
        ]

    def frame(self) -> pl.DataFrame:
        """Return the rows as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows())

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON, with None for what is impossible."""
        return {
            "firm_budget": self.firm_budget,
            "meets": self.meets,
            "total_loss": self.total_loss,
            "one_sum_loss": _finite(self.one_sum_loss),
            "random_loss": self.random_loss,
            "saved": _finite(self.saved),
            "curve": [
                {"layers": count, "loss": _finite(float(loss))}
                for count, loss in zip(self.n_layers, self.losses, strict=True)
            ],
            "experiments": self.rows(),
            "certified": self.certified,
        }

    def chart(self) -> ChartType:
        """Chart the loss over the number of layers, and the shares in the best ones, with Altair."""
        from deniable.charts.layers import layers_chart

        return layers_chart(self)


def design_layers(
    portfolio: Portfolio,
    firm_budget: float,
    *,
    meets: int | None = None,
    together: Iterable[Iterable[str]] | None = None,
    regime: str = "flexible",
) -> LayerDesign:
    """Return the layers with the smallest expected loss.

    Args:
        portfolio: experiments with base rates; `visitors` is what each would have on its own.
        firm_budget: Gamma, in nats.
        meets: the most experiments that a visitor meets, if nothing else is known.
        together: sets of ids that a visitor may meet together; experiments that no chain of sets
            connects share no visitor, and each such part of the firm has the whole budget. By
            default every visitor may meet all.
        regime: as in `allocate`.

    Raises:
        InvalidArgumentError: without base rates, with groups or commitments, which layers would
            break, or if not even one layer covers the minimum budgets.

    >>> rows = [{"id": i, "arms": 2, "visitors": 90_000, "base_rate": 0.1} for i in "ab"]
    >>> [layer.experiments for layer in design_layers(Portfolio.of(rows), 9).layers]
    [('a',), ('b',)]
    """
    check_regime(regime)
    _require_plain(portfolio)
    budget = firm_nano("firm_budget", firm_budget) / NANO
    most = None if meets is None else check.whole("meets", meets, 1)
    problem = LayerProblem.of(portfolio, regime)
    parts = _parts(portfolio, together)
    found = [designs(problem, part, budget, most) for part in parts]
    largest = max(len(part) for part in parts)
    counts = tuple(range(1, largest + 1))
    losses = np.array([sum(nearest_number(own, count)[1] for own in found) for count in counts])
    best = [_fewest_exclusions(own) for own in found]
    groups = [group for own in best for group in own]
    if float(losses.min()) >= IMPOSSIBLE / 2:
        allowed = "at least the largest least budget, and at most 20 experiments a layer"
        raise InvalidArgumentError("firm_budget", firm_budget, allowed)
    allocation, certified, shares = _settled(problem, groups, parts, budget, most)
    outside = float(((1 - shares) * problem.random).sum())
    return LayerDesign(
        layers=_named(portfolio, groups, shares, allocation),
        allocation=allocation,
        certified=certified,
        firm_budget=budget,
        outside=outside,
        total_loss=allocation.total_regret + outside,
        one_sum_loss=_one_sum(problem, parts, budget, most),
        random_loss=float(problem.random.sum()),
        n_layers=counts,
        losses=np.where(losses < IMPOSSIBLE / 2, losses, np.inf),
        meets=most,
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _fewest_exclusions(own: Found) -> list[Group]:
    """Return the best layers; among nearly equal losses the most layers, which exclude the fewest."""
    least = min(loss for _, loss in own.values())
    return own[max(count for count, (_, loss) in own.items() if loss <= least * (1 + 1e-5))][0]


def _settled(
    problem: LayerProblem,
    groups: list[Group],
    parts: list[Group],
    budget: float,
    meets: int | None,
) -> tuple[Allocation, bool, FloatArray]:
    """Return shares and budgets for the chosen layers; shares depend on caps, and caps on shares."""
    portfolio = problem.portfolio
    shares = np.ones(portfolio.size)
    caps = [budget / max(1, len([g for g in groups if g[0] in part])) for part in parts]
    of_group = [
        next(c for c, part in zip(caps, parts, strict=True) if g[0] in part) for g in groups
    ]
    for _ in range(3):
        for group, cap in zip(groups, of_group, strict=True):
            shares[list(group)] = np.array(problem.shares(group, cap)) / STEPS
        allocation, certified = _allocated(problem, groups, parts, shares, budget, meets)
        after = [float(allocation.budgets[list(group)].max()) for group in groups]
        if np.allclose(after, of_group, atol=1e-6):
            break
        of_group = after
    return allocation, certified, shares


def _allocated(
    problem: LayerProblem,
    groups: list[Group],
    parts: list[Group],
    shares: FloatArray,
    budget: float,
    meets: int | None,
) -> tuple[Allocation, bool]:
    """Return budgets for layers with these shares, and whether they are certified."""
    portfolio = problem.portfolio
    rows = np.arange(portfolio.size)
    names: list[str | None] = [None] * portfolio.size
    for number, group in enumerate(groups, start=1):
        for row in group:
            names[row] = f"layer {number}" if len(group) > 1 else None
    whole = replace(reduced(portfolio, rows, shares), ids=portfolio.ids, groups=tuple(names))
    if len(parts) == 1 and not (meets is not None and meets < len(groups)):
        found = allocate(whole, budget, regime=problem.regime)
        return found, found.certified
    # Parts that share no visitor each have the whole budget.
    budgets, certified = np.zeros(portfolio.size, dtype=np.int64), True
    for part in parts:
        own = [group for group in groups if group[0] in part]
        inside = _subset(whole, np.array(sorted(part)))
        fits = inside.cost(inside.min_nano) <= firm_nano("firm_budget", budget)
        tried = [allocate(inside, budget, regime=problem.regime)] if fits else []
        if meets is not None and meets < len(own) and inside.low.max() <= budget / meets:
            capped = np.minimum(inside.max_nano, int(budget / meets * NANO))
            tried.append(
                allocate(replace(inside, max_nano=capped), len(own) * budget, regime=problem.regime)
            )
        best = min(tried, key=lambda allocation: allocation.total_regret)
        budgets[sorted(part)] = best.budgets_nano
        certified &= best.certified
    held = replace(
        whole, min_nano=budgets, max_nano=budgets, committed=np.ones(portfolio.size, bool)
    )
    return allocate(held, held.cost(budgets) / NANO, regime=problem.regime), certified


def _subset(portfolio: Portfolio, rows: IntArray) -> Portfolio:
    some = reduced(portfolio, rows, np.ones(rows.size))
    return replace(some, ids=tuple(portfolio.ids[row] for row in rows))


def _one_sum(problem: LayerProblem, parts: list[Group], budget: float, meets: int | None) -> float:
    alone: list[Group] = [(row,) for part in parts for row in part]
    shares = np.ones(problem.portfolio.size)
    for part in parts:
        low = problem.portfolio.low[list(part)]
        few = meets is not None and meets < low.size and low.max() <= budget / meets
        if low.sum() > budget and not few:
            return np.inf
    return _allocated(problem, alone, parts, shares, budget, meets)[0].total_regret


def _named(
    portfolio: Portfolio, groups: list[Group], shares: FloatArray, allocation: Allocation
) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            f"layer {number}",
            tuple(portfolio.ids[row] for row in group),
            tuple(float(shares[row]) for row in group),
            float(allocation.budgets[list(group)].max()),
        )
        for number, group in enumerate(groups, start=1)
    )


def _parts(portfolio: Portfolio, together: Iterable[Iterable[str]] | None) -> list[Group]:
    """Return groups of experiments that are connected by shared visitors."""
    if together is None:
        return [tuple(range(portfolio.size))]
    place = {name: row for row, name in enumerate(portfolio.ids)}
    home = list(range(portfolio.size))
    for names in together:
        rows = []
        for name in names:
            if name not in place:
                raise InvalidArgumentError("together", name, "ids of the portfolio")
            rows.append(place[name])
        if rows:
            joined = {home[row] for row in rows}
            home = [min(joined) if label in joined else label for label in home]
    labels = sorted(set(home))
    return [tuple(row for row, own in enumerate(home) if own == label) for label in labels]


def _require_plain(portfolio: Portfolio) -> None:
    require_portfolio(portfolio)
    if portfolio.objective != "expected":
        raise InvalidArgumentError(
            "portfolio",
            portfolio.objective,
            "experiments with a base_rate, judged by what is expected",
        )
    if portfolio.size > MOST_EXPERIMENTS:
        raise InvalidArgumentError(
            "portfolio", portfolio.size, f"at most {MOST_EXPERIMENTS} experiments"
        )
    if portfolio.members or portfolio.committed.any():
        raise InvalidArgumentError(
            "portfolio", "groups or committed budgets", "experiments without them"
        )

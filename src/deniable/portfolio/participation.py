"""Realized risk: the exposure of a visitor who meets only some experiments.

The firm budget bounds the risk of a visitor who meets every experiment. For a visitor who meets
each with some probability, the total is random; its distribution is computed exactly up to a grid,
and rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.portfolio.problem import NanoArray, Portfolio

BINS = 8192


@dataclass(frozen=True, eq=False)
class RealizedRisk:
    """The distribution of a visitor's total risk.

    Attributes:
        worst_case: for a visitor who meets all, with one experiment of each group.
        mean: mean over visitors.
        risk: ascending values of total risk, in nats.
        probability: share of visitors at or below each.

    >>> one = Portfolio.from_sizes([2], [1000], form="paper")
    >>> risk = realized_risk(one, np.array([2 * 10**9]), 0.25)
    >>> risk.quantile(0.75), risk.quantile(0.76), risk.mean
    (0.0, 2.0, 0.5)
    """

    worst_case: float
    mean: float
    risk: FloatArray
    probability: FloatArray

    def quantile(self, part: float) -> float:
        """Return the total risk that this share of visitors does not exceed."""
        wanted = check.single("part", check.probability("part", part))
        index = int(np.searchsorted(self.probability, wanted - 1e-12))
        return float(self.risk[min(index, self.risk.size - 1)])


def realized_risk(portfolio: Portfolio, budgets_nano: NanoArray, share: ArrayLike) -> RealizedRisk:
    """Return the distribution if visitors meet experiments independently.

    Args:
        portfolio: the experiments; a visitor who meets a group meets one member, each equally
            likely.
        budgets_nano: their budgets.
        share: probability of meeting each single experiment, or each group; one for all, or one per
            experiment (a group's is the largest of its members').

    >>> three = Portfolio.from_sizes([2, 2, 2], [1000, 1000, 1000], form="paper")
    >>> risk = realized_risk(three, np.array([1, 1, 2]) * 10**9, 0.5)
    >>> risk.worst_case, risk.mean, round(risk.quantile(0.5), 2)
    (4.0, 2.0, 2.0)
    """
    chance = np.broadcast_to(check.probability("share", share), (portfolio.size,))
    nats = budgets_nano / NANO
    worst = portfolio.cost(budgets_nano) / NANO
    if worst == 0:
        return RealizedRisk(0.0, 0.0, np.zeros(1), np.ones(1))
    width = worst / BINS
    units = [(nats[[row]], float(chance[row])) for row in portfolio.loners]
    units += [(nats[rows], float(chance[rows].max())) for rows in portfolio.members]
    # Rounding up may exceed the worst case by a bin per unit.
    mass = np.zeros(BINS + len(units) + 2)
    mass[0] = 1.0
    mean, top = 0.0, 0
    for budgets, meets in units:
        after = (1 - meets) * mass
        steps = np.ceil(budgets / width - 1e-9).astype(np.int64)
        for step in steps:
            part = meets / budgets.size * mass[: top + 1]
            after[step : step + top + 1] += part
        mean += meets * float(budgets.mean())
        top += int(steps.max())
        mass = after
    kept = np.flatnonzero(mass > 0)
    risk = np.minimum(kept * width, worst)
    return RealizedRisk(worst, mean, risk, np.minimum(np.cumsum(mass[kept]), 1.0))


def sampled_risk(
    portfolio: Portfolio, budgets_nano: NanoArray, memberships: NDArray[np.bool_] | ArrayLike
) -> RealizedRisk:
    """Return the distribution over a sample of visitors.

    Args:
        portfolio: the experiments.
        budgets_nano: their budgets.
        memberships: shape (visitors, experiments); true if the visitor was in the experiment.

    >>> two = Portfolio.from_sizes([2, 2], [1000, 1000], form="paper")
    >>> sampled_risk(two, np.array([1, 2]) * 10**9, [[1, 0], [1, 1]]).risk.tolist()
    [1.0, 3.0]
    """
    table = np.asarray(memberships)
    shape = f"true or false in shape (visitors, {portfolio.size})"
    if table.ndim != 2 or table.shape[1] != portfolio.size or table.shape[0] == 0:
        raise InvalidArgumentError("memberships", table.shape, shape)
    if not np.isin(table, (0, 1)).all():
        raise InvalidArgumentError("memberships", "other values", shape)
    met = table.astype(bool)
    for rows in portfolio.members:
        twice = np.flatnonzero(met[:, rows].sum(axis=1) > 1)
        if twice.size:
            name = portfolio.groups[int(rows[0])]
            raise InvalidArgumentError(
                "memberships",
                f"visitor {int(twice[0])}",
                f"at most one experiment of group {name!r}",
            )
    total = (met @ budgets_nano) / NANO
    risk, counts = np.unique(total, return_counts=True)
    return RealizedRisk(
        portfolio.cost(budgets_nano) / NANO,
        float(total.mean()),
        risk,
        np.cumsum(counts) / total.size,
    )

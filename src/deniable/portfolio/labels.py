"""One label for all experiments of a firm, against the best division of the same budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.expectations.expected import expected_loss
from deniable.expectations.labels import expected_on_labels
from deniable.expectations.surface import POOLED
from deniable.portfolio.allocation import Allocation
from deniable.portfolio.problem import Portfolio

POINTS, LEAST_TOP = 13, 4.0
"""Budgets that are compared: so many, from 0 to at least this one."""


CLEARLY = 0.01
"""A loss that is smaller by less than this part is not called smaller: figures are approximate."""


@dataclass(frozen=True, eq=False)
class LabelComparison:
    """Expected losses of a firm by its budget, times the value of a click; approximate.

    Attributes:
        firm_budgets: in nats, ascending.
        divided: of the best division over the experiments.
        label: on a label that all experiments read. Those that gain more from one bandit for
            everybody use that.
        pooled: of one bandit for everybody in each experiment, at budget 0.
    """

    firm_budgets: FloatArray
    divided: FloatArray
    label: FloatArray
    pooled: float

    def at(self, firm_budget: float) -> tuple[float, float]:
        """Return the losses of the division and of the label, between budgets by a straight line."""
        divided, label = (
            float(np.interp(firm_budget, self.firm_budgets, losses))
            for losses in (self.divided, self.label)
        )
        return divided, label


def compare_label(
    found: Allocation, firm_budgets: Sequence[float] | None = None
) -> LabelComparison:
    """Compare an allocation with a label that costs the same budget, for other budgets too.

    The label is of one attribute, the segments of all experiments. Minimum and committed budgets,
    layers and fixed strategies limit the division only.

    Args:
        found: the division; its portfolio needs base rates.
        firm_budgets: in nats; by default from the least possible to at least 4.

    >>> from deniable.portfolio.allocation import allocate
    >>> tests = [{"id": str(n), "arms": 4, "visitors": 200_000, "segments": 4, "base_rate": 0.05,
    ...           "lift": 0.2, "heterogeneity": 0.8} for n in range(10)]
    >>> compared = compare_label(allocate(Portfolio.of(tests), 3), [3])
    >>> bool(compared.label[0] < compared.divided[0] < compared.pooled)
    True
    """
    portfolio = found.portfolio
    if portfolio.objective != "expected":
        allowed = "expected: labels need base rates, because bounds say nothing about them"
        raise InvalidArgumentError("objective", portfolio.objective, allowed)
    if firm_budgets is None:
        least = portfolio.cost(portfolio.min_nano) / NANO
        budgets = np.linspace(least, max(LEAST_TOP, 1.5 * found.firm_budget), POINTS)
        budgets = np.unique(np.append(budgets, max(found.firm_budget, least)).round(9))
    else:
        budgets = np.unique(check.nonnegative("firm_budgets", firm_budgets))
    pooled, labels = 0.0, np.zeros(budgets.size)
    for rows in _alike(portfolio):
        without, on_labels = _losses(portfolio, rows, budgets.tolist())
        pooled += float(without @ portfolio.worth[rows])
        labels += np.minimum(on_labels, without) @ portfolio.worth[rows]
    divided = found.what_if(budgets.tolist()).total_regret
    return LabelComparison(budgets, divided, labels, pooled)


def _alike(portfolio: Portfolio) -> list[list[int]]:
    """Return rows of experiments whose segments are alike, so that they get the same labels."""
    known = portfolio.known
    assert known is not None
    rows: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for row in range(portfolio.size):
        key = (int(portfolio.segments[row]), known.shares[row], float(known.heterogeneity[row]))
        rows[key].append(row)
    return list(rows.values())


def _losses(
    portfolio: Portfolio, rows: Sequence[int], budgets: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Return losses of one bandit for everybody, by row, and on labels, by budget and row."""
    known = portfolio.known
    assert known is not None
    first, places = rows[0], list(rows)
    asked: dict[str, Any] = {
        "n_arms": portfolio.arms[places],
        "horizon": portfolio.visitors[places],
        "n_segments": int(portfolio.segments[first]),
        "base_rate": known.base_rate[places],
        "lift": known.lift[places],
        "heterogeneity": float(known.heterogeneity[first]),
        "shares": known.shares[first],
    }
    on_labels = [expected_on_labels(**asked, budget=budget).lost for budget in budgets]
    return expected_loss(POOLED, **asked).lost, np.array(on_labels)


def label_words(found: Allocation, compared: LabelComparison) -> str:
    """Compare the label with the division at the firm's budget, in two or three sentences."""
    divided, label = compared.at(found.firm_budget)
    better = compared.firm_budgets[compared.label < (1 - CLEARLY) * compared.divided]
    return (
        f"A label that costs {found.firm_budget:g} nats once serves all {found.portfolio.size:,} "
        f"experiments. About {label:,.0f} clicks are expected to be lost on it, {divided:,.0f} with "
        f"the best division of the same budget, and {compared.pooled:,.0f} with one bandit for "
        "everybody in each experiment, at budget 0. "
        + (
            f"A label loses less than a division from a firm budget of about {better[0]:.2g} on. "
            if better.size
            else "A label does not lose less than a division of any budget here. "
        )
        + "These figures are approximate."
    )

"""Every number of the published check list, one row each, to its last printed digit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deniable as d
from deniable.privacy import ArmSpecificResponse

UNEQUAL = ArmSpecificResponse([0.5, 1, 2])

NUMBERS: list[tuple[Callable[[], Any], float, int]] = [
    # Belief, prior .2
    *[
        (lambda budget=budget: d.highest_belief(0.2, budget), belief, 3)
        for budget, belief in [(0.05, 0.208), (0.5, 0.292), (1, 0.405), (3, 0.834), (5, 0.974)]
    ],
    # Exploration
    (lambda: d.privacy.exploration_from_risk(2, 0.05), 0.975, 3),
    (lambda: d.privacy.exploration_from_risk(2, 3), 0.094852, 6),
    (lambda: d.privacy.exploration_from_risk(8, 3), 0.295361, 6),
    # Arm-specific (.5, 1, 2)
    (lambda: UNEQUAL.exploration, 0.695, 3),
    *[
        (lambda arm=arm: UNEQUAL.weights[arm], weight, 3)
        for arm, weight in enumerate([0.676, 0.255, 0.069])
    ],
    *[
        (lambda arm=arm: UNEQUAL.matrix[arm, arm], shown, 3)
        for arm, shown in enumerate([0.775, 0.482, 0.353])
    ],
    # Exhaustion clocks
    *[
        (lambda k=k, budget=budget: d.privacy.exhaustion_clock(k, budget), clock, 0)
        for k, budget, clock in [(2, 1, 51), (2, 3, 23_599), (5, 3, 4_730), (20, 5, 138_905)]
    ],
    # Dynamic schedule, two arms
    (lambda: d.privacy.dynamic_exploration(2, 10), 0.772233, 6),
    (lambda: d.privacy.dynamic_risk(2, 10), 0.463665, 6),
    (lambda: d.privacy.dynamic_exploration(2, 1000), 0.239951, 6),
    (lambda: d.privacy.dynamic_risk(2, 1000), 1.992663, 6),
    # Best budgets
    (lambda: d.theory.best_constant_budget(2, 10**4), 1.968181, 6),
    (lambda: d.theory.best_dynamic_budget(2, 10**4), 2.728852, 6),
    (lambda: d.theory.best_constant_budget(5, 10**6), 4.041814, 6),
    (lambda: d.theory.best_dynamic_budget(5, 10**6), 4.769489, 6),
    (lambda: d.theory.best_constant_budget(20, 10**5), 4.038283, 6),
    (lambda: d.theory.best_dynamic_budget(20, 10**5), 4.886264, 6),
    # Bounds and elasticities
    (lambda: d.theory.constant_regret(2, 10**4, 1), 8689.255, 3),
    (lambda: d.theory.constant_elasticity(2, 10**4, 1), -0.313281, 6),
    (lambda: d.theory.dynamic_regret(2, 10**4, 1), 8530.937, 3),
    (lambda: d.theory.dynamic_elasticity(2, 10**4, 1), -0.349826, 6),
    (lambda: d.theory.constant_regret(5, 10**6, 3), 310783.228, 3),
    (lambda: d.theory.constant_elasticity(5, 10**6, 3), -1.255774, 6),
    (lambda: d.theory.dynamic_regret(5, 10**6, 3), 306463.785, 3),
    (lambda: d.theory.dynamic_elasticity(5, 10**6, 3), -1.346527, 6),
]


@pytest.mark.parametrize(("formula", "published", "digits"), NUMBERS)
def test_published(formula: Callable[[], Any], published: float, digits: int) -> None:
    assert round(float(formula()), digits) == published


def test_two_experiments_share_a_firm_budget() -> None:
    """Dynamic only, T = 1,000 and 10,000: Gamma = 4 fills B up to its best, Gamma = 1.5 is all B's."""

    def split(firm: float) -> float:
        """B's share on a fine grid."""
        best_a, best_b = (float(d.theory.best_dynamic_budget(2, t)) for t in (10**3, 10**4))
        share = np.linspace(0, min(firm, best_b), 200_001)
        rest = np.clip(firm - share, 0, best_a)
        total = np.asarray(d.theory.dynamic_regret(2, 10**4, share))
        total = total + np.asarray(d.theory.dynamic_regret(2, 10**3, rest))
        return float(share[total.argmin()])

    assert round(split(4), 4) == 2.7289
    assert round(4 - split(4), 4) == 1.2711
    assert split(1.5) == 1.5

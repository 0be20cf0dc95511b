"""The exploration of an epsilon-greedy rule at a clock.

At each clock a rule gives every arm an exploration probability, and the rest, the bonus, to the
greedy arm. The bonus never falls as the clock advances.

- FIXED: `fixed` holds the K exploration probabilities and, last, the bonus.
- DYNAMIC: exploration max(floor, (K log n / n)^(1/3)), the same for all arms.
- ARM_DYNAMIC: risks min(budget_j, uncapped risk), turned into probabilities c_j / (1 + C).
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.state import DYNAMIC, FIXED, FloatArray, Rule


@compiled
def scheduled(n_arms: int, clock: int) -> float:
    """Return min(1, (K log n / n)^(1/3)), and 1 for the first two visitors."""
    if clock < 3:
        # log 1 is 0, so the formula alone would show the first visitor the greedy arm without
        # exploring.
        return 1.0
    return float(min(1.0, np.cbrt(n_arms * math.log(clock) / clock)))


@compiled
def explore(rule: Rule, clock: int, out: FloatArray) -> float:
    """Write the arms' exploration probabilities at this clock into `out`; return the bonus."""
    n_arms = out.size
    if rule.kind == FIXED:
        for arm in range(n_arms):
            out[arm] = rule.fixed[arm]
        return float(rule.fixed[n_arms])
    rate = scheduled(n_arms, clock)
    if rule.kind == DYNAMIC:
        rate = max(rate, rule.floor)
        for arm in range(n_arms):
            out[arm] = rate / n_arms
        return 1.0 - rate
    if rate >= 1.0:
        # The risk is 0 here, and c_j = 1 / (e^0 - 1) is infinite: all arms are equal, without a
        # bonus.
        for arm in range(n_arms):
            out[arm] = 1.0 / n_arms
        return 0.0
    # log1p and expm1 stay accurate for tiny risks, as at early clocks.
    risk = math.log1p((n_arms - 1) * (1.0 - rate)) - math.log(rate)
    total = 1.0
    for arm in range(n_arms):
        out[arm] = 1.0 / math.expm1(min(rule.budgets[arm], risk))
        total += out[arm]
    for arm in range(n_arms):
        out[arm] /= total
    return 1.0 / total


@compiled
def total(values: FloatArray) -> float:
    """Return the sum in order. Numba takes long to compile `sum` of an array."""
    found = 0.0
    for value in values:
        found += value
    return found

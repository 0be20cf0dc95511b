"""Who is shown what: the exploration of an epsilon-greedy rule at a clock, for the kernels.

A rule is a kind and a few numbers. At each clock it gives every arm an exploration probability, and
the rest, the bonus, to the greedy arm. The bonus never falls as the clock runs.

- FIXED: `fixed` holds the K exploration probabilities and, last, the bonus.
- DYNAMIC: exploration max(floor, (K log n / n)^(1/3)), the same for all arms.
- ARM_DYNAMIC: risks min(budget_j, uncapped risk), turned into probabilities c_j / (1 + C).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled

FIXED, DYNAMIC, ARM_DYNAMIC = 0, 1, 2


@compiled
def scheduled(n_arms: Any, clock: Any) -> Any:
    """min(1, (K log n / n)^(1/3)), and 1 for the first two."""
    if clock < 3:
        return 1.0
    return min(1.0, np.cbrt(n_arms * math.log(clock) / clock))


@compiled
def explore(kind: Any, clock: Any, fixed: Any, floor: Any, budgets: Any, out: Any) -> Any:
    """Write the arms' exploration probabilities at this clock into `out`; return the bonus."""
    n_arms = out.size
    if kind == FIXED:
        out[:] = fixed[:n_arms]
        return fixed[n_arms]
    rate = scheduled(n_arms, clock)
    if kind == DYNAMIC:
        rate = max(rate, floor)
        out[:] = rate / n_arms
        return 1.0 - rate
    if rate >= 1.0:
        out[:] = 1.0 / n_arms
        return 0.0
    risk = math.log1p((n_arms - 1) * (1.0 - rate)) - math.log(rate)
    total = 1.0
    for arm in range(n_arms):
        out[arm] = 1.0 / math.expm1(min(budgets[arm], risk))
        total += out[arm]
    out /= total
    return 1.0 / total

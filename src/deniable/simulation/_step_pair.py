"""The step kernel's inner loop for two arms of one segment whose exploration no longer changes.

Nothing but what a C programmer would write: counts and the generator's state in registers, no branch
that depends on a draw, but for ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled

_S11, _S17, _S19, _S45 = (np.uint64(shift) for shift in (11, 17, 19, 45))
_UNIT = 2.0**-53


@compiled
def _advance(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """`_generator.next_word` on four variables: a uniform number and the next state."""
    unit = np.float64((s0 + s3) >> _S11) * _UNIT
    shifted = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    return unit, s0, s1, s2, (s3 << _S45) | (s3 >> _S19)


@compiled
def step_pair(
    exploring: Any, rates: Any, visitors: Any, shows: Any, clicks: Any, state: Any
) -> None:
    """Advance two arms, both shown before, by visitors of whom none changes the exploration.

    Args:
        exploring: exploration of the two arms, (2,).
        rates: click rates, (2,).
        visitors: how many.
        shows: counts so far, (2,), 1 or more; with the visitors below 3e9 each.
        clicks: counts so far, (2,).
        state: the generator.
    """
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    n0, n1, c0, c1 = shows[0], shows[1], clicks[0], clicks[1]
    r0, r1 = rates[0], rates[1]
    first = exploring[0]
    explored = exploring[0] + exploring[1]
    for _ in range(visitors):
        u, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
        mine, yours = c0 * n1, c1 * n0
        if mine == yours and u >= explored:
            v, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
            arm = 0 if v < 0.5 else 1
        else:
            greedy = 1 if mine < yours else 0
            random = 0 if u < first else 1
            arm = random if u < explored else greedy
        v, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
        hit = 1 if v < (r1 if arm == 1 else r0) else 0
        n1 += arm
        n0 += 1 - arm
        c1 += hit & arm
        c0 += hit & (1 - arm)
    shows[0], shows[1], clicks[0], clicks[1] = n0, n1, c0, c1
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3

"""Two arms, one segment, exploration that does not change: a block of visitors in a few numbers.

The same as a block of `_leap` (drawn, checked, split, walked through), but for the one case that most
experiments are, and without arrays: the leader has n shows and c clicks, the challenger k and d; in
a block `others` visitors see the challenger, who click `hits` times, and the rest the leader, who
click `wins` times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block_length import pair_length
from deniable.simulation._generator import uniform
from deniable.simulation._holding import almost_surely_below
from deniable.simulation._samplers import binomial, hypergeometric

_LEAF = 16  # sub-blocks of this size are walked through


@compiled
def take_block(
    longest: Any,
    wander: Any,
    own_rate: Any,
    other_rate: Any,
    leader: Any,
    shows: Any,
    clicks: Any,
    stack: Any,
    state: Any,
) -> Any:
    """Advance by one block, as far as the lead is kept; returns by how many visitors.

    Args:
        longest: visitors at most.
        wander: chance to see the challenger.
        own_rate: click rate of the leader.
        other_rate: click rate of the challenger.
        leader: the arm that leads, 0 or 1.
        shows: counts so far, (2,).
        clicks: counts so far, (2,).
        stack: room for parts of the block, (64, 4).
        state: the generator.
    """
    n, c, k, d = shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader]
    size = np.int64(pair_length(n, c, k, d, wander, own_rate, other_rate, np.float64(longest)))
    others = binomial(size, wander, state)
    wins = binomial(size - others, own_rate, state)
    hits = binomial(others, other_rate, state)
    done: Any = 0
    depth = 0
    leading = True
    while leading:
        mine = size - others
        # The leader after all its failures first, the challenger after all its clicks first.
        if c * max(k + hits, 1) > (d + hits) * (n + mine - wins) or almost_surely_below(
            c, n, wins, mine, d, k, hits, others
        ):
            n, c, k, d = n + mine, c + wins, k + others, d + hits
            done += size
        elif size <= _LEAF:
            passed, leading, n, c, k, d = _walk(size, others, wins, hits, n, c, k, d, state)
            done += passed
        else:
            # Keep the later half for later, and look at the earlier one.
            early = size // 2
            early_others = hypergeometric(others, mine, early, state)
            early_wins = hypergeometric(wins, mine - wins, early - early_others, state)
            early_hits = hypergeometric(hits, others - hits, early_others, state)
            stack[depth, 0] = size - early
            stack[depth, 1] = others - early_others
            stack[depth, 2] = wins - early_wins
            stack[depth, 3] = hits - early_hits
            depth += 1
            size, others, wins, hits = early, early_others, early_wins, early_hits
            continue
        if depth == 0:
            break
        depth -= 1
        size, others = stack[depth, 0], stack[depth, 1]
        wins, hits = stack[depth, 2], stack[depth, 3]
    shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader] = n, c, k, d
    return done


@compiled
def _walk(
    size: Any,
    others: Any,
    wins: Any,
    hits: Any,
    n: Any,
    c: Any,
    k: Any,
    d: Any,
    state: Any,
) -> Any:
    """Draw a small block's visitors one by one without replacement, until the lead is lost.

    Returns how many, whether the leader still leads, and the counts after them.
    """
    passed = 0
    leading = True
    while leading and passed < size:
        left = size - passed
        passed += 1
        if uniform(state) * left < others:
            hit = uniform(state) * others < hits
            others -= 1
            k += 1
            if hit:
                hits -= 1
                d += 1
        else:
            hit = uniform(state) * (left - others) < wins
            n += 1
            if hit:
                wins -= 1
                c += 1
        leading = c * max(k, 1) > d * n
    return passed, leading, n, c, k, d

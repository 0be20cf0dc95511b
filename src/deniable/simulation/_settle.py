"""A drawn block put into effect, as far as the greedy arms stay the same.

Totals that show that no greedy arm can have changed are taken whole. Others are split in two, and looked
at again; near the bottom visitors are drawn one by one. Where a greedy arm changes, the rest is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block import holds, split_block, walk_block

DEPTH = 64
_LEAF = 16  # sub-blocks of this size are walked through


@compiled
def settle_block(
    size: Any,
    n_undecided: Any,
    matters: Any,
    places: Any,
    undecided: Any,
    leaders: Any,
    ties: Any,
    shown: Any,
    won: Any,
    clocks: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> Any:
    """Advance through one block; False where a greedy arm has changed and the rest is dropped.

    Args:
        size: visitors of the block.
        n_undecided: how many of them have a place of their own; the others come in any order.
        matters: whether a change of the greedy arm would change what is shown.
        places: those visitors' places in the block, ascending.
        undecided: their segments, arms and clicks, (n, 3).
        leaders: the greedy arm of each segment, (J,).
        ties: how many arms share its rate, (J,).
        shown: in [0], shows of the other visitors; the rest is room for parts, (DEPTH, J, K).
        won: in [0], clicks of the other visitors, likewise.
        clocks: visitors so far, (1,).
        shows: counts so far, (J, K).
        clicks: counts so far, (J, K).
        state: the generator.
    """
    clock = clocks[0]
    sizes = np.empty(DEPTH, np.int64)
    block_shown = np.empty_like(shows)
    block_won = np.empty_like(shows)
    # A stack of sub-blocks, the earliest on top.
    sizes[0] = size
    depth = 1
    seen = 0  # undecided visitors that have passed
    while depth > 0:
        top = depth - 1
        here = sizes[top]
        reach = seen
        while reach < n_undecided and places[reach] < clocks[0] - clock + here:
            reach += 1
        block_shown[:] = shown[top]
        block_won[:] = won[top]
        for i in range(seen, reach):
            block_shown[undecided[i, 0], undecided[i, 1]] += 1
            block_won[undecided[i, 0], undecided[i, 1]] += undecided[i, 2]
        if not matters or holds(shows, clicks, leaders, ties, block_shown, block_won):
            shows += block_shown
            clicks += block_won
            clocks[0] += here
            seen = reach
            depth -= 1
        elif here <= _LEAF:
            if not walk_block(
                here,
                clock,
                clocks,
                shown[top],
                won[top],
                places,
                undecided,
                seen,
                reach,
                leaders,
                ties,
                shows,
                clicks,
                state,
            ):
                return False
            seen = reach
            depth -= 1
        else:
            first = here // 2
            inside = 0
            while seen + inside < reach and places[seen + inside] < clocks[0] - clock + first:
                inside += 1
            split_block(first - inside, shown[top], won[top], shown[depth], won[depth], state)
            sizes[top] = here - first
            sizes[depth] = first
            depth += 1
    return True

"""Arguments of the kernels, as named tuples of arrays and numbers.

Numba compiles a named tuple to its fields, so names cost nothing at run time, and mypy checks them.
All arrays are created by `run.py`, in Python, so that kernels never allocate.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
WordArray: TypeAlias = NDArray[np.uint64]

FIXED, DYNAMIC, ARM_DYNAMIC = 0, 1, 2
"""Kinds of exploration; see `exploration.py`."""

NEVER = 2**62
"""A clock, or a waiting time, that no run reaches."""

DEPTH = 64
"""Maximum number of times a block is halved: more than the binary digits of the longest one."""

UNDECIDED = 64
"""Maximum undecided visitors per block, which ends at the last one that fits."""


class Rule(NamedTuple):
    """An epsilon-greedy rule.

    Attributes:
        kind: FIXED, DYNAMIC or ARM_DYNAMIC.
        fixed: for FIXED, the exploration by arm and, last, the greedy arm's bonus, (K + 1,).
        floor: for DYNAMIC, the minimum exploration.
        budgets: for ARM_DYNAMIC, the budget by arm, (K,).
        turns: the clocks at which an arm's budget starts to bind, ascending; from the last on, the
            rule does not change.
    """

    kind: int
    fixed: FloatArray
    floor: float
    budgets: FloatArray
    turns: FloatArray


class World(NamedTuple):
    """Segments that share a clock or, in the step kernel, all segments.

    Attributes:
        rates: click rates, (J, K).
        arrival: cumulative shares of the segments, (J,).
        shows: counts so far, (J, K).
        clicks: counts so far, (J, K).
        clocks: visitors so far: (1,), or (J,) in the step kernel with clocks by segment.
        state: the generator.
    """

    rates: FloatArray
    arrival: FloatArray
    shows: IntArray
    clicks: IntArray
    clocks: IntArray
    state: WordArray


class Leaders(NamedTuple):
    """The greedy arm of each segment, and how many arms share its click rate, (J,) each."""

    arms: IntArray
    ties: IntArray


class Blocks(NamedTuple):
    """A block of visitors and the parts it was split into, as totals by segment and arm.

    Attributes:
        sizes: number of visitors in each part, the earliest last, (DEPTH,).
        shown: shows of each part, (DEPTH + 1, J, K); the last slot is for sums.
        won: clicks of each part, likewise.
        places: positions in the block of visitors whose order matters, ascending, (UNDECIDED,).
        undecided: those visitors' segments, arms and clicks, (UNDECIDED, 3).
    """

    sizes: IntArray
    shown: IntArray
    won: IntArray
    places: IntArray
    undecided: IntArray


class StepSpace(NamedTuple):
    """Scratch space for the step kernel, by clock.

    Attributes:
        exploring: exploration by arm when it was last computed, (C, K).
        sure_bonus: lower bound of the bonus at the current clock, (C,).
        refresh_at: the clock at which to recompute both, (C,).
    """

    exploring: FloatArray
    sure_bonus: FloatArray
    refresh_at: IntArray


class LeapSpace(NamedTuple):
    """Scratch space for the leap kernel.

    Attributes:
        leaders: the greedy arms.
        blocks: the current block.
        exploring: exploration by arm: sure, at the last clock, and their difference, (3, K).
        step: scratch space for the step kernel.
    """

    leaders: Leaders
    blocks: Blocks
    exploring: FloatArray
    step: StepSpace

"""The simulator's random numbers: xoshiro256+ on a state of four words, compiled by Numba.

A hand-written generator costs about a nanosecond a draw, half of NumPy's through Numba, and its state
is a plain array that a kernel owns. States come from a NumPy SeedSequence, one child for each
repetition, so that a repetition's numbers depend on the seed and its index alone.

Reference: Blackman and Vigna, Scrambled linear pseudorandom number generators (2021).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.policies._compile import compiled

_S11, _S17, _S19, _S23, _S41, _S45 = (np.uint64(shift) for shift in (11, 17, 19, 23, 41, 45))
_UNIT = 2.0**-53

State = NDArray[np.uint64]


def generator_state(seed: np.random.SeedSequence) -> State:
    """Four words for one repetition; a SeedSequence never yields the forbidden all-zero state."""
    words = np.asarray(seed.generate_state(4, np.uint64), dtype=np.uint64)
    return words if words.any() else np.array([1, 2, 3, 4], dtype=np.uint64)


@compiled
def next_word(state: Any) -> Any:
    """64 random bits; the lowest three are weak and are never used alone."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    word = s0 + s3
    shifted = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    state[1] = s1 ^ s2
    state[0] = s0 ^ s3
    state[2] = s2 ^ shifted
    state[3] = (s3 << _S45) | (s3 >> _S19)
    return word


@compiled
def scrambled_word(state: Any) -> Any:
    """64 random bits of which each is as good as any other (the ++ scrambler)."""
    s0, total = state[0], next_word(state)
    return ((total << _S23) | (total >> _S41)) + s0


@compiled
def uniform(state: Any) -> Any:
    """A float in [0, 1), a multiple of 2^-53."""
    return np.float64(next_word(state) >> _S11) * _UNIT


@compiled
def positive_uniform(state: Any) -> Any:
    """A float in (0, 1], for logarithms."""
    return (np.float64(next_word(state) >> _S11) + 1.0) * _UNIT

"""The greedy arm against fractions, and the holding of blocks against every order of the visitors."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable.simulation.kernels.leader import (
    find_leaders,
    is_above,
    keeps_leader,
    keeps_tie,
    log_fall_bound,
    sign_of_difference,
    tied_arm,
)

SIZES = st.integers(0, 10**12)


def _rate(clicks: int, shows: int) -> Fraction:
    return Fraction(clicks, shows) if shows else Fraction(0)


@settings(max_examples=500, deadline=None)
@given(SIZES, SIZES, st.floats(0, 1), st.floats(0, 1), st.integers(-2, 2))
@example(10**12, 10**12 - 1, 0.5, 0.5, 0)
def test_comparison_is_exact(shows: int, others: int, p: float, q: float, nudge: int) -> None:
    clicks = int(shows * p)
    other = min(others, max(0, int(others * (p if nudge else q)) + nudge))
    one, two = _rate(clicks, shows), _rate(other, others)
    want = (one > two) - (one < two)
    assert sign_of_difference(clicks, shows, other, others) == want
    assert is_above(clicks, shows, other, others) == (want > 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=6))
def test_leaders(counts: list[tuple[int, int]]) -> None:
    shows = np.array([max(pair) for pair in counts])
    clicks = np.array([min(pair) for pair in counts])
    rates = [_rate(int(c), int(n)) for c, n in zip(clicks, shows, strict=True)]
    best = [arm for arm, rate in enumerate(rates) if rate == max(rates)]
    leader, tied = find_leaders(shows[None], clicks[None], 0)
    assert (leader, tied) == (best[0], len(best))
    assert [tied_arm(shows[None], clicks[None], 0, leader, rank) for rank in range(tied)] == best


def _orders(shown: np.ndarray, won: np.ndarray) -> set[tuple[tuple[int, int], ...]]:
    visitors = [
        (arm, hit)
        for arm in range(shown.size)
        for hit in [1] * won[arm] + [0] * (shown[arm] - won[arm])
    ]
    return set(itertools.permutations(visitors))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_held_block_holds_in_every_order(data: st.DataObject) -> None:
    n_arms = data.draw(st.integers(2, 3))
    shows = np.array([data.draw(st.integers(0, 12)) for _ in range(n_arms)])
    clicks = np.array([data.draw(st.integers(0, int(n))) for n in shows])
    shown = np.array([data.draw(st.integers(0, 2)) for _ in range(n_arms)])
    won = np.array([data.draw(st.integers(0, int(n))) for n in shown])
    leader, tied = find_leaders(shows[None], clicks[None], 0)
    holds = keeps_leader if tied == 1 else keeps_tie
    if not holds(shows, clicks, leader, shown, won):
        return
    for order in _orders(shown, won):
        n, c = shows.copy(), clicks.copy()
        for arm, hit in order:
            n[arm] += 1
            c[arm] += hit
            assert find_leaders(n[None], c[None], 0) == (leader, tied)


def _falls(clicks: int, shows: int, won: int, shown: int, rate: float) -> float:
    """Probability, over all orders, that the path ever falls to the rate: by counting paths."""
    safe = np.zeros(won + 1)
    safe[0] = 1.0
    for i in range(1, shown + 1):
        for s in range(min(i, won), -1, -1):
            lost = i - s
            stay = safe[s] * max(0, shown - won - lost + 1) / (shown - i + 1) if lost > 0 else 0.0
            up = safe[s - 1] * (won - s + 1) / (shown - i + 1) if s > 0 else 0.0
            safe[s] = (stay + up) if clicks + s - rate * (shows + i) > 0 else 0.0
    return 1 - float(safe[won])


def _ungated(*arguments: float) -> float:
    """The bound where the kernel would not bother to work it out."""
    source = log_fall_bound.py_func  # type: ignore[attr-defined]
    world = {**source.__globals__, "BRIDGE_EXPONENT": 0.0}
    return float(type(source)(source.__code__, world, "bound")(*arguments))


def test_the_fall_bound_is_a_bound() -> None:
    rng = np.random.default_rng(1)
    telling = 0
    for _ in range(400):
        shown = int(rng.integers(2, 160))
        rate = float(rng.uniform(0.02, 0.98))
        won = int(rng.binomial(shown, rate))
        shows = int(rng.integers(1, 400))
        clicks = min(shows, int(rate * shows + rng.uniform(0, 2) * math.sqrt(shown) + 1))
        exact = _falls(clicks, shows, won, shown, rate)
        bound = _ungated(clicks, shows, won, shown, rate)
        assert exact <= math.exp(min(bound, 0.0)) * (1 + 1e-9) + 1e-12
        telling += 1e-9 < exact < math.exp(bound) < 0.5
        if not math.isinf(bound) and exact > 1e-9 and bound < -1:
            assert bound < math.log(exact) + 8, "within a factor of 3000 of the truth"
    assert telling > 40


def test_the_bound_lets_long_blocks_through_and_holds_back_near_ones() -> None:
    """Five and a half standard deviations off, and not three."""
    shown, won, shows = 10_000, 3_000, 40_000
    spread = math.sqrt(shown * 0.3 * 0.7)
    far = log_fall_bound(12_000 + int(5.5 * spread), shows, won, shown, 0.3)
    near = log_fall_bound(12_000 + int(3 * spread), shows, won, shown, 0.3)
    assert far < -41.5 < near

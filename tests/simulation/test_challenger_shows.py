"""The draws of a block that is counted in shows of the challenger, each against its distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.simulation.two_samples import NEVER

from deniable.simulation.kernels import challenger_shows
from deniable.simulation.kernels.random_numbers import generator_state, threshold
from deniable.simulation.kernels.state import DEPTH

DRAWS = 20_000


@pytest.mark.parametrize(("rank", "total"), [(1, 1), (1, 9), (4, 9), (17, 33), (40, 300)])
def test_an_order_statistic_is_beta(rank: int, total: int) -> None:
    state = generator_state(np.random.SeedSequence(1))
    drawn = [challenger_shows._order_statistic(rank, total, state) for _ in range(DRAWS)]
    assert stats.kstest(drawn, stats.beta(rank, total + 1 - rank).cdf).pvalue > NEVER
    # Power: the next rank is another distribution.
    assert stats.kstest(drawn, stats.beta(rank + 1, total + 1 - rank).cdf).pvalue < NEVER


@pytest.mark.parametrize(("place", "mine", "others"), [(1, 5, 3), (40, 60, 12), (60, 60, 12)])
def test_shows_before_a_fall_are_placed_evenly(place: int, mine: int, others: int) -> None:
    """How many of the challenger's shows come before the leader's n-th: negative hypergeometric."""
    state = generator_state(np.random.SeedSequence(2))
    drawn = [challenger_shows._shows_before(place, mine, others, state) for _ in range(DRAWS)]
    counts = np.bincount(drawn, minlength=others + 1)

    def p_value(place: int) -> float:
        law = stats.nhypergeom(mine + others, others, place).pmf(np.arange(others + 1))
        enough = law * DRAWS > 5
        wanted = np.append(law[enough], law[~enough].sum() + 1e-12) * DRAWS
        seen = np.append(counts[enough], counts[~enough].sum())
        off = float(((seen - wanted) ** 2 / np.maximum(wanted, 1)).sum())
        return float(stats.chi2.sf(off, wanted.size - 1))

    assert p_value(place) > NEVER
    assert p_value(place - 1 if place > 1 else place + 1) < NEVER


def test_the_challenger_stops_at_the_bar() -> None:
    """Against a walk, show by show, over the words that were drawn."""
    state = generator_state(np.random.SeedSequence(3))
    stack = np.zeros((DEPTH, 4), np.int64)
    limit = np.uint64(threshold(0.3))
    ends = 0
    for i in range(500):
        others, bar, below = i % 200, 0.28, 0.05 * (i % 90)
        shown, hits, ended = challenger_shows._until_bar(others, bar, below, limit, stack, state)
        words = [(int(row[2]) << 32) | int(row[3]) for row in stack]
        bits = [words[lane // 64] >> (lane % 64) & 1 for lane in range(others)]
        clicks = np.cumsum(bits)
        reached = np.flatnonzero(below + bar * np.arange(1, others + 1) <= clicks)
        stop = int(reached[0]) + 1 if reached.size else others
        assert (shown, ended) == (stop, reached.size > 0)
        assert hits == sum(bits[:stop]) == challenger_shows._first_hits(stop, stack)
        ends += ended
    assert 100 < ends < 400

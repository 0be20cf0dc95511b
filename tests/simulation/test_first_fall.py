"""The first fall of a path with given totals, against its exact distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.simulation.two_samples import NEVER

from deniable._compile import as_python
from deniable.simulation.kernels import first_fall
from deniable.simulation.kernels.random_numbers import (
    generator_state,
    hypergeometric,
    threshold,
)
from deniable.simulation.kernels.state import DEPTH

DRAWS, FEWER = 30_000, 4_000
GROUPS = 8
CASES = {
    "rarely": (9.3, 0.195, 300, 60),
    "ends low": (12.2, 0.195, 400, 69),
    "ends below the bar": (7.1, 0.195, 200, 30),
    "often": (3.013, 0.25, 90, 24),
    "low rate": (2.407, 0.02, 500, 12),
    "high rate": (4.237, 0.9, 160, 145),
    "in the middle": (8.7, 0.5, 250, 129),
    "climbs": (4.1, 0.2, 250, 62),
    "short": (1.7, 0.3, 20, 6),
}
"""Start above the bar, bar, shows and clicks."""

BOUNDED = ["rarely", "low rate", "high rate", "in the middle", "climbs"]
"""Cases that are not halved at once."""


def _law(ahead: float, rate: float, shown: int, won: int) -> Any:
    """P(the path first falls with show t, after s clicks | totals), by t and s."""
    chance = won / shown
    clicks = np.arange(won + 1)
    alive = np.zeros(won + 1)
    alive[0] = 1.0
    law = np.zeros((shown + 1, won + 1))
    for t in range(1, shown + 1):
        after = alive * (1 - chance)
        after[1:] += alive[:-1] * chance
        fallen = ahead + clicks - rate * t <= 0
        rest = stats.binom.pmf(won - clicks, shown - t, chance)
        law[t] = np.where(fallen, after * rest, 0.0)
        alive = np.where(fallen, 0.0, after)
    return law / stats.binom.pmf(won, shown, chance)


def _p_value(case: tuple[Any, ...], falls: Callable[..., Any], draws: int) -> float:
    """Of the drawn falls, by time and by clicks, against their distribution: chi-square."""
    law = _law(*case)
    law[0, 0] = 1 - law.sum()
    stack = np.zeros((DEPTH, 4), np.int64)
    state = generator_state(np.random.SeedSequence(3))
    drawn = np.zeros_like(law)
    for _ in range(draws):
        drawn[falls(*case, stack, state)] += 1
    found = []
    for axis in (0, 1):
        # Whether it falls is a group of its own; the others have about the same probability.
        chance, count = law.sum(axis=axis), drawn.sum(axis=axis)
        chance[0] -= law[0, 0]
        count[0] -= drawn[0, 0]
        group = np.minimum(np.cumsum(chance) / chance.sum() * GROUPS, GROUPS - 1).astype(int)
        wanted = draws * np.append(np.bincount(group, chance, GROUPS), law[0, 0])
        seen = np.append(np.bincount(group, count, GROUPS), drawn[0, 0])
        thin = wanted < 10
        wanted, seen = (np.append(x[~thin], x[thin].sum()) for x in (wanted, seen))
        off = float(((seen - wanted) ** 2 / np.maximum(wanted, 1.0)).sum())
        found.append(float(stats.chi2.sf(off, wanted.size)))
    return min(found)


@pytest.mark.parametrize("name", CASES)
def test_the_first_fall_has_its_distribution(name: str) -> None:
    assert _p_value(CASES[name], first_fall.first_fall, DRAWS) > NEVER


def _in_python(**parts: Any) -> Any:
    """The kernel as Python; `threshold` gives it a word, as Numba does."""
    digits: Any = {"threshold": lambda probability: np.uint64(threshold(probability))}
    tilted = as_python(first_fall.tilted_fall, **{**digits, **parts})
    return as_python(first_fall.first_fall, **{"tilted_fall": tilted, **parts})


def _one_more(good: int, bad: int, size: int, state: Any) -> int:
    got = int(hypergeometric(good, bad, size, state))
    return got + 1 if got < min(good, size) else got


def _low_bound(*case: Any) -> Any:
    bound, tilt, chance = first_fall.fall_bound(*case)
    return bound / 50, tilt, chance


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "every tilted fall is taken": ({"_log_probability": lambda *counts: 0.0}, "climbs"),
    "too low a bound": ({"fall_bound": _low_bound}, "high rate"),
    "halved off by one": ({"hypergeometric": _one_more}, "ends low"),
    "nothing falls on a walk": ({"_walk": lambda *path: (0, 0)}, "short"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    parts, name = FAULTS[fault]
    assert _p_value(CASES[name], _in_python(**parts), FEWER) < NEVER


@pytest.mark.parametrize("name", ["climbs", "high rate", "ends low", "short"])
def test_the_same_harness_passes_without_a_fault(name: str) -> None:
    assert _p_value(CASES[name], _in_python(), FEWER) > NEVER


@pytest.mark.parametrize("name", BOUNDED)
def test_no_fall_is_likelier_than_its_bound(name: str) -> None:
    """Or a tilted path would have to be taken with a probability above 1."""
    _, rate, shown, won = CASES[name]
    bound, tilt, chance = first_fall.fall_bound(*CASES[name])
    law = _law(*CASES[name])
    highest = -math.inf
    for t, s in np.argwhere(law > 0).tolist():
        ratio = first_fall._log_probability(shown - t, won - s, chance)
        ratio -= first_fall._log_probability(shown, won, chance)
        highest = max(highest, ratio + tilt * (s - rate * t))
    assert highest <= math.log(bound)
    # And it is not far above, or most tilted paths would be drawn in vain.
    assert law.sum() < bound < 10 * law.sum()


def test_the_log_of_a_probability() -> None:
    for shown, won, chance in ((300, 60, 0.21), (5, 5, 0.3), (5, 0, 0.3), (1, 1, 0.9), (2, 1, 0.5)):
        want = stats.binom.logpmf(won, shown, chance)
        assert first_fall._log_probability(shown, won, chance) == pytest.approx(want, abs=1e-12)

"""Discrete Laplace noise: its distribution, its exact ratio by enumeration, and a planted fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from hashlib import sha256
from itertools import count

import numpy as np
import pytest
from scipy.stats import chi2
from tests.rational import exp_bounds

from deniable.errors import InvalidArgumentError
from deniable.privacy import noise
from deniable.privacy.noise import discrete_laplace

DRAWS = 20_000
CERTAIN = 1e-9


def counter_mode(seed: bytes) -> Callable[[int], bytes]:
    """A fixed source of bytes: SHA-256 of the seed and a counter."""
    blocks = (sha256(seed + number.to_bytes(8, "big")).digest() for number in count())
    stream: Iterator[int] = (byte for block in blocks for byte in block)
    return lambda size: bytes(next(stream) for _ in range(size))


def p_value(drawn: list[int], numerator: int, denominator: int) -> float:
    """Chi-square of the draws against P(x) = (1 - r)/(1 + r) r^|x| with r = e^(-1/scale)."""
    ratio = np.exp(-denominator / numerator)
    edge = 0
    while len(drawn) * (1 - ratio) / (1 + ratio) * ratio ** (edge + 1) > 10:
        edge += 1
    inside = np.arange(-edge, edge + 1)
    probability = (1 - ratio) / (1 + ratio) * ratio ** np.abs(inside)
    tail = ratio ** (edge + 1) / (1 + ratio)  # P(X > edge)
    counts = Counter(min(max(x, -edge - 1), edge + 1) for x in drawn)
    observed = np.array([counts[x] for x in range(-edge - 1, edge + 2)])
    expected = len(drawn) * np.array([tail, *probability, tail])
    assert expected.sum() == pytest.approx(len(drawn), rel=1e-12)
    if tail * len(drawn) < 1e-3:  # nothing can be expected there, and nothing may be seen there
        assert not observed[[0, -1]].any()
        observed, expected = observed[1:-1], expected[1:-1]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, max(1, observed.size - 1)))


@pytest.mark.parametrize("scale", [(1, 2), (1, 1), (2, 1), (3, 2), (7, 5), (20, 1)])
def test_draws_have_the_exact_distribution(scale: tuple[int, int]) -> None:
    entropy = counter_mode(b"noise")
    drawn = [discrete_laplace(*scale, entropy=entropy) for _ in range(DRAWS)]
    assert p_value(drawn, *scale) > CERTAIN


def test_half_the_scale_is_caught() -> None:
    entropy = counter_mode(b"noise")
    drawn = [discrete_laplace(1, 1, entropy=entropy) for _ in range(DRAWS)]
    assert p_value(drawn, 2, 1) < CERTAIN
    drawn = [discrete_laplace(9, 5, entropy=entropy) for _ in range(DRAWS)]  # 10% off
    assert p_value(drawn, 2, 1) < CERTAIN


def test_zero_drawn_twice_as_often_is_caught() -> None:
    """The classical mistake: a sign for zero as well."""
    entropy = counter_mode(b"noise")
    sizes = [abs(discrete_laplace(2, 1, entropy=entropy)) for _ in range(DRAWS)]
    ratio = np.exp(-0.5)
    rng = np.random.default_rng(1)
    faulty = [
        0 if size and rng.random() < (1 - ratio) / (1 + ratio) / 2 else size for size in sizes
    ]
    signed = [int(size * rng.choice([-1, 1])) for size in faulty]
    assert p_value(signed, 2, 1) < CERTAIN


def test_scale_is_a_ratio() -> None:
    one, two = counter_mode(b"same"), counter_mode(b"same")
    assert [discrete_laplace(3, 2, entropy=one) for _ in range(200)] == [
        discrete_laplace(6, 4, entropy=two) for _ in range(200)
    ]


class _Spent(Exception):
    """The sampler asked for more choices than the enumeration follows."""


def enumerated(
    monkeypatch: pytest.MonkeyPatch, numerator: int, denominator: int, depth: int
) -> tuple[dict[int, Fraction], Fraction]:
    """Probability of each outcome over all ways of at most `depth` uniform choices, exactly.

    Returns also the probability of ways that are longer, which bounds what is missing everywhere.
    """
    found: dict[int, Fraction] = defaultdict(Fraction)
    longer = Fraction(0)
    waiting: list[tuple[tuple[int, ...], Fraction]] = [((), Fraction(1))]
    while waiting:
        way, chance = waiting.pop()
        place = iter(way)
        limits: list[int] = []

        def below(
            limit: int,
            _entropy: object,
            place: Iterator[int] = place,
            limits: list[int] = limits,
        ) -> int:
            if limit == 1:
                return 0
            chosen = next(place, None)
            if chosen is None:
                limits.append(limit)
                raise _Spent
            return chosen

        monkeypatch.setattr(noise, "_below", below)
        try:
            found[discrete_laplace(numerator, denominator)] += chance
        except _Spent:
            if len(way) == depth:
                longer += chance
            else:
                # With a scale of 1/n every choice is only compared with 1, or has two values:
                # 1 stands for all that are not 0.
                share = Fraction(1, limits[0])
                waiting += [((*way, 0), chance * share), ((*way, 1), chance * (1 - share))]
    return dict(found), longer


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 1), (1, 2)])
def test_exact_ratio_of_neighbours_by_enumeration(
    monkeypatch: pytest.MonkeyPatch, numerator: int, denominator: int
) -> None:
    """Every way through the sampler: P(x)/P(x + 1) is e^(1/scale) up to the ways not followed."""
    found, longer = enumerated(monkeypatch, numerator, denominator, 14)
    assert sum(found.values()) + longer == 1
    assert longer < Fraction(1, 15)
    low, high = exp_bounds(Fraction(denominator, numerator))
    for x in (0, 1):
        assert found[x] / (found[x + 1] + longer) <= high
        assert (found[x] + longer) / found[x + 1] >= low
    assert found[1] == found[-1]
    # Half the scale would need the ratio e^(2/scale), which these bounds exclude.
    assert (found[0] + longer) / found[1] < exp_bounds(Fraction(2 * denominator, numerator))[0]


def test_uniform_integers_are_uniform_and_never_too_large() -> None:
    """All byte strings of one length, each once: every value equally often."""
    for limit in (1, 2, 3, 5, 255, 256):
        size = ((limit - 1).bit_length() + 7) // 8
        drawn: Counter[int] = Counter()
        for value in range(256**size):
            first = [value.to_bytes(size, "little")]

            def once(wanted: int, first: list[bytes] = first) -> bytes:
                if not first:
                    raise _Spent
                return first.pop()[:wanted]

            try:
                drawn[noise._below(limit, once)] += 1
            except _Spent:
                continue
        assert set(drawn) == set(range(limit))
        assert len(set(drawn.values())) == 1


@pytest.mark.parametrize("bad", [(0, 1), (1, 0), (-1, 2)])
def test_scales_that_make_no_sense_are_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        discrete_laplace(*bad)

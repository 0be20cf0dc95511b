"""The surface: which part of what perfect information gains a strategy gains, without simulating.

For rates of a prior, the gain over random arms depends on arms K, segments J, heterogeneity h, budget g,
the signal n = T p d^2 / (1 - p), and weakly on log T (schedules) and log d (clipping, few clicks). The
surface is

    share = reach x logistic(N(coordinates))

where `reach` is known: what is left once everything was learned. It is one minus the random arms for
strategies with a schedule, the best private table for those without, and sqrt(v), v = 1 - h + h/J, for
one bandit for everybody; visitors before the first table see random arms in any case. Strategies
without a schedule are that bandit at budget 0; with any budget N is its network plus one of their own
(`Start`), which is not 0 at the smallest budgets: they leave fewer random arms behind. N is a small
network, fitted to runs of the simulator at random priors; ``python -m research surface`` writes
`surface.json`. So is the spread of the clicks lost, by polynomials: their 10% and 90% quantiles over the
prior, relative to the mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.expectations.curves import Curve, Polynomial, read_curve
from deniable.expectations.prior import highest_lift
from deniable.privacy.epochs import ENOUGH_BY_SEGMENT, LEAST_BY_ARM, LEAST_NEW
from deniable.strategies import STRATEGIES

POOLED, RANDOM, PERFECT, BEST_PRIVATE = "pooled", "random", "perfect", "best-private"
"""What strategies are compared with, and the table that is best with known rates."""

QUANTILES = (0.1, 0.9)
"""Of the clicks lost, over the prior: four experiments in five lie between."""

RATES = (0.002, 0.6)
"""Base rates that surfaces were fitted to, besides their coordinates."""

LEAST_CLICKS = 10
"""Expected clicks of an arm, at the least, were they shown alike."""

LEAST_ROOM = 3.0
"""How many standard deviations above the base rate clipping begins, at the least. With less, better arms
are alike, and segments' means are no longer normal."""

MOST_BEFORE = 0.2
"""The largest part of the visitors before the first table. With fewer tables, their dates matter."""

LEAST_SHOWS = 2
"""Visitors by cell, at least, before a strategy that learns from all segments makes its first table."""

COORDINATES = ("arms", "segments", "heterogeneity", "explored", "signal", "visitors", "lift")
"""Of what clicks vary by. Shares have some of them, and what happens before the first table."""


@dataclass(frozen=True)
class Question:
    """Experiments and what is known about them: arrays of one shape.

    Attributes:
        arms: K.
        visitors: T, of all segments together.
        segments: J.
        base_rate: p.
        lift: d.
        heterogeneity: h.
        budget: g.
    """

    arms: FloatArray
    visitors: FloatArray
    segments: FloatArray
    base_rate: FloatArray
    lift: FloatArray
    heterogeneity: FloatArray
    budget: FloatArray

    @classmethod
    def of(cls, **given: ArrayLike) -> Question:
        """The same from anything that broadcasts; values are taken as they are."""
        values = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in given.values()))
        return cls(**dict(zip(given, values, strict=True)))

    @property
    def signal(self) -> FloatArray:
        """N = T p d^2 / (1 - p): the visitors in units of what it takes to tell arms apart."""
        return self.visitors * self.base_rate * self.lift**2 / (1 - self.base_rate)

    @property
    def shared(self) -> FloatArray:
        """V = 1 - h + h/J: the part of the variance that the segments' mean keeps."""
        return 1 - self.heterogeneity + self.heterogeneity / self.segments

    @property
    def sides(self) -> FloatArray:
        """How many arms are the best of some segment, on average, if segments are unrelated."""
        return self.arms * -np.expm1(self.segments * np.log1p(-1 / self.arms))

    def part(self, where: NDArray[np.bool_]) -> Question:
        """The question at some places."""
        return Question(*(getattr(self, name)[where] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Domain:
    """Experiments that a surface is for, besides RATES and what `usual` asks.

    Attributes:
        arms: the most.
        segments: the fewest and the most.
        visitors: the same.
        lifts: the smallest and the largest.
        budget: the largest.
    """

    arms: int
    segments: tuple[int, int]
    visitors: tuple[float, float] = (1e3, 1e10)
    lifts: tuple[float, float] = (0.002, 0.5)
    budget: float = 8.0


def domain_of(name: str) -> Domain:
    """What the surface of this name covers.

    Strategies that learn from all segments assume that arms differ by some percent: with smaller lifts
    they are another function of the signal. Up to budget 6 is what all surfaces have in common: with a
    constant schedule, hardly anybody sees a random arm above it, so that a run stays with whatever its
    first table said.
    """
    if name == BEST_PRIVATE:
        return Domain(20, (2, 10))
    if learns_together(name):
        return Domain(20, (2, 10), visitors=(1e3, 2e8), lifts=(0.005, 0.5), budget=6.0)
    return Domain(50, (1, 20), budget=6.0 if name == "constant" else 8.0)


@dataclass(frozen=True)
class Entry:
    """The surface of one strategy.

    Attributes:
        share: of the gain; None where it is known (random arms gain nothing).
        spread: log of the 10% and the 90% quantile of the clicks lost, relative to their mean.
        strategy: its name.
    """

    strategy: str
    share: Curve | None
    spread: tuple[Polynomial, ...]

    def shares(self, asked: Question) -> FloatArray:
        """Of what perfect information gains, at each point."""
        if self.share is None:
            return np.zeros(asked.arms.shape)
        if self.strategy == BEST_PRIVATE:
            return _private_share(self.share, asked)
        begun = start(self.strategy, asked)
        score = begun.score + begun.weight * self.share(coordinates(self.strategy, asked))
        return np.asarray(reach(self.strategy, asked) / (1 + np.exp(-score)))

    def spreads(self, asked: Question) -> tuple[FloatArray, FloatArray]:
        """The two quantiles of the clicks lost, relative to the mean."""
        at = spread_coordinates(asked)
        low, high = (np.exp(one(at)) for one in self.spread)
        return np.minimum(low, 1.0), np.maximum(high, 1.0)

    def covers(self, asked: Question) -> NDArray[np.bool_]:
        """Where the surface was fitted; elsewhere it holds the value of its edge."""
        if self.share is None:
            return np.ones(asked.arms.shape, bool)
        return usual(self.strategy, asked) & self.share.inside(coordinates(self.strategy, asked))


def usual(strategy: str, asked: Question) -> NDArray[np.bool_]:
    """Whether an experiment has a base rate, visitors and a budget for which a surface holds."""
    domain = domain_of(strategy)
    good = np.ones(asked.arms.shape, bool)
    for value, (low, high) in (
        (asked.base_rate, RATES),
        (asked.visitors, domain.visitors),
        (asked.lift, domain.lifts),
        (asked.budget, (0.0, domain.budget)),
    ):
        good &= (value >= low) & (value <= high)
    good &= asked.visitors * asked.base_rate >= LEAST_CLICKS * asked.arms
    good &= has_room(asked)
    return good & (after_first(strategy, asked) >= 1 - MOST_BEFORE)


def has_room(asked: Question) -> NDArray[np.bool_]:
    """Whether hardly any rate is clipped at the top."""
    return np.asarray(highest_lift(asked.base_rate, asked.lift) >= LEAST_ROOM)


class Start(NamedTuple):
    """What a strategy's network is added to.

    Attributes:
        score: of one bandit for everybody, where a strategy is that at budget 0; else 0.
        weight: what the network is multiplied by.
    """

    score: FloatArray
    weight: FloatArray


def start(strategy: str, asked: Question) -> Start:
    """Where a strategy's surface begins at budget 0.

    >>> asked = Question.of(arms=2, visitors=1e4, segments=2, base_rate=0.1, lift=0.05,
    ...                     heterogeneity=0.5, budget=[0.0, 1.0])
    >>> start("joint", asked).weight.round(3).tolist(), start("dynamic", asked).weight.tolist()
    ([0.0, 1.0], [1.0, 1.0])
    """
    if not learns_together(strategy):
        return Start(np.zeros(asked.arms.shape), np.ones(asked.arms.shape))
    fitted = surface()[POOLED].share
    assert fitted is not None
    return Start(fitted(coordinates(POOLED, asked)), np.asarray(asked.budget > 0, np.float64))


def reach(strategy: str, asked: Question) -> FloatArray:
    """The share of the gain that is left once all was learned, and the first visitors were not lost."""
    found = limit(strategy, asked)
    if strategy == POOLED or learns_together(strategy):
        return found * after_first(strategy, asked)
    return found


def limit(strategy: str, asked: Question) -> FloatArray:
    """The share of the gain with known rates; with a schedule, its random arms all the same."""
    if strategy == POOLED:
        return np.sqrt(asked.shared)
    if strategy == BEST_PRIVATE or strategy not in STRATEGIES:
        return np.ones(asked.arms.shape)
    return 1 - all_explored(strategy, asked) if learns_apart(strategy) else best_private(asked)


def first_table(strategy: str, asked: Question) -> FloatArray:
    """Visitors of all segments before the first table: they all see random arms.

    >>> asked = Question.of(arms=[2, 50], visitors=1e4, segments=2, base_rate=0.1, lift=0.05,
    ...                     heterogeneity=0.5, budget=1.0)
    >>> first_table("constant", asked).tolist(), first_table("joint", asked).tolist()
    ([100.0, 120.0], [100.0, 240.0])
    """
    by_segment = np.minimum(LEAST_BY_ARM * asked.arms, ENOUGH_BY_SEGMENT)
    least = np.maximum(float(LEAST_NEW), by_segment * asked.segments)
    if learns_apart(strategy):
        return least
    return np.asarray(least * np.ceil(LEAST_SHOWS * asked.arms * asked.segments / least))


def after_first(strategy: str, asked: Question) -> FloatArray:
    """The share of the visitors who come after the first table."""
    return np.maximum(1 - first_table(strategy, asked) / asked.visitors, 0.0)


def all_explored(strategy: str, asked: Question) -> FloatArray:
    """The share of random arms of a strategy with a schedule, those before the first table included."""
    alone = asked.visitors / asked.segments
    first = np.minimum(first_table(strategy, asked) / asked.segments, alone)
    parts = [_random_arms(strategy, asked, clock) for clock in (alone, first)]
    return np.clip((parts[0] - parts[1] + first) / alone, 0.0, 1.0)


def _random_arms(strategy: str, asked: Question, clock: FloatArray) -> FloatArray:
    share = STRATEGIES[strategy].explored(asked.arms, clock, asked.budget)
    assert share is not None
    return share * clock


def best_private(asked: Question) -> FloatArray:
    """The share that the best private table gains with known rates.

    Between sqrt(v) at budget 0, the best arm on average for everybody, and all of it.

    >>> asked = Question.of(arms=2, visitors=1e4, segments=2, base_rate=0.1, lift=0.05,
    ...                     heterogeneity=[0.0, 0.5], budget=1.0)
    >>> best_private(asked)[0]
    np.float64(1.0)
    """
    return surface()[BEST_PRIVATE].shares(asked)


def _private_share(fitted: Curve, asked: Question) -> FloatArray:
    alone = np.sqrt(asked.shared)
    fit = fitted(coordinates(BEST_PRIVATE, asked))
    return np.asarray(alone - (1 - alone) * np.expm1(-private_scale(asked) * np.exp(fit)))


def private_scale(asked: Question) -> FloatArray:
    """What 1 - exp(-x), the best private table's part of what is beyond one row for all, is fitted in.

    A small budget g helps only where two arms are nearly equal, which is as rare: x begins like g^2. A
    large one leaves random arms: x grows like -log of their share.
    """
    explored = log_exploration(asked.sides, asked.budget)
    return -explored * asked.budget / (1 + asked.budget)


def coordinates(strategy: str, asked: Question) -> dict[str, FloatArray]:
    """Where the surface of a strategy is looked at."""
    plain = {
        "arms": np.log(asked.arms),
        "segments": np.log(asked.segments),
        "heterogeneity": asked.heterogeneity,
    }
    plain["first"] = np.log(first_table(strategy, asked))
    if strategy == POOLED:  # one segment with the lifts of the segments' mean
        return plain | _learning(asked.signal * asked.shared, asked.visitors,
                                 asked.lift * np.sqrt(asked.shared))  # fmt: skip
    if learns_apart(strategy):
        alone = asked.visitors / asked.segments
        last = STRATEGIES[strategy].explored_last(asked.arms, alone, asked.budget)
        assert last is not None
        return (
            plain
            | {"first": plain["first"] - plain["segments"]}
            | {"explored": np.log(last), "all explored": np.log(all_explored(strategy, asked))}
            | _learning(asked.signal / asked.segments, alone, asked.lift)
        )
    return (
        plain
        | {"explored": log_exploration(asked.sides, asked.budget), "budget": np.log1p(asked.budget)}
        | {
            # The joint rule has other constants with two arms. What segments have of their own begins to
            # matter when there is enough to be learned about it.
            "two": np.asarray(asked.arms == 2, np.float64),
            "own": np.log1p(asked.heterogeneity * asked.signal / asked.segments),
        }
        | _learning(asked.signal, asked.visitors, asked.lift)
    )


def spread_coordinates(asked: Question) -> dict[str, FloatArray]:
    """The same for what clicks vary by: always of the whole experiment."""
    return {
        "arms": np.log(asked.arms),
        "segments": np.log(asked.segments),
        "heterogeneity": asked.heterogeneity,
        "explored": log_exploration(asked.arms, asked.budget),
    } | _learning(asked.signal, asked.visitors, asked.lift)


def log_exploration(sides: FloatArray, budget: FloatArray) -> FloatArray:
    """log(m / (m - 1 + e^g)): 0 at budget 0, falling like -g where it is large."""
    return np.log(sides) - np.logaddexp(np.log(np.maximum(sides - 1, 1e-300)), budget)


def _learning(signal: FloatArray, visitors: FloatArray, lift: FloatArray) -> dict[str, FloatArray]:
    parts = {"signal": signal, "visitors": visitors, "lift": lift}
    # Tiny rates and lifts underflow.
    return {name: np.log(np.maximum(part, 1e-300)) for name, part in parts.items()}


def learns_apart(strategy: str) -> bool:
    """Whether every segment learns from its own visitors alone."""
    return strategy in STRATEGIES and STRATEGIES[strategy].explored(2, 100, 1.0) is not None


def learns_together(strategy: str) -> bool:
    """Whether a strategy learns from all segments together."""
    return strategy in STRATEGIES and not learns_apart(strategy)


def surface_name(strategy: str, n_segments: int) -> str:
    """Which surface holds: with one segment, whoever learns from all together is one bandit for all.

    >>> surface_name("joint", 1), surface_name("joint", 2), surface_name("constant", 1)
    ('pooled', 'joint', 'constant')
    """
    return POOLED if n_segments == 1 and learns_together(strategy) else strategy


@lru_cache(maxsize=1)
def surface() -> dict[str, Entry]:
    """The surface that comes with the package, by strategy."""
    return read_entries(_stored()["entries"])


@lru_cache(maxsize=8)
def worst_error(name: str) -> float:
    """How far a surface's shares were off at most, against direct simulation at random priors."""
    errors: JsonObject = _stored()["errors"]
    return float(errors[name]["worst"]) if name in errors else 1.0


def _stored() -> JsonObject:
    found: JsonObject = json.loads(_read_from[-1].read_text(encoding="utf-8"))
    return found


_read_from: list[Traversable] = [files("deniable.expectations").joinpath("surface.json")]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Inside, the surface is that of another file, read again after `forget`: to make one."""
    _read_from.append(path)
    forget()
    try:
        yield
    finally:
        _read_from.pop()
        forget()


def forget() -> None:
    """Read the file again when it is needed next."""
    surface.cache_clear()
    worst_error.cache_clear()


def read_entries(stored: JsonObject) -> dict[str, Entry]:
    """Entries from what a file holds."""
    return {
        name: Entry(
            name,
            None if entry["share"] is None else read_curve(entry["share"]),
            tuple(map(Polynomial.read, entry["spread"])),
        )
        for name, entry in stored.items()
    }

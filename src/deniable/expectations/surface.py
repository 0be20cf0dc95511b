"""The surface: which part of what perfect information gains a strategy gains, without simulating.

For rates of a prior, the gain over random arms depends on arms K, segments J, heterogeneity h, budget g,
the signal n = T p d^2 / (1 - p), and weakly on log T (schedules) and log d (clipping, few clicks). The
surface is

    share = reach x logistic(P(coordinates))

where `reach` is known: what is left once everything was learned. It is one minus the random arms for
strategies with a schedule, the best private table for those without, and sqrt(v), v = 1 - h + h/J, for
one bandit for everybody. Strategies without a schedule are that bandit at budget 0; for them P is its
polynomial plus sqrt(1 - e) times one of their own, e the random arms that the budget asks for (`Start`).
P is fitted to runs of the simulator at random priors by
``python -m deniable.studies.surface``, which writes `surface.json`. So is the spread of the clicks lost:
their 10% and 90% quantiles over the prior, relative to the mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable._blocks import BLOCK
from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.strategies import STRATEGIES

POOLED, RANDOM, PERFECT, BEST_PRIVATE = "pooled", "random", "perfect", "best-private"
"""What strategies are compared with, and the table that is best with known rates."""

QUANTILES = (0.1, 0.9)
"""Of the clicks lost, over the prior: four experiments in five lie between."""

ROUGH: dict[str, float] = {"constant": 6.0}
"""Budgets above which a surface misses by more than 2% of the gain, by up to 10% (docs/plan.md)."""

COORDINATES = ("arms", "segments", "heterogeneity", "explored", "signal", "visitors", "lift")


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
        """The number of groups that a table tells apart: min(J, K)."""
        return np.minimum(self.segments, self.arms)

    def part(self, where: NDArray[np.bool_]) -> Question:
        """The question at some places."""
        return Question(*(getattr(self, name)[where] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Polynomial:
    """A polynomial in some of the coordinates, scaled to [-1, 1], as products of Legendre polynomials.

    Attributes:
        names: of the coordinates.
        low: where each begins.
        high: where each ends; outside, the value at the edge holds.
        degrees: of each term in each coordinate, (terms, coordinates).
        weights: of the terms.
    """

    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    degrees: NDArray[np.int64]
    weights: FloatArray

    @classmethod
    def read(cls, stored: JsonObject) -> Polynomial:
        """From what `stored` returned."""
        return cls(
            tuple(stored["names"]),
            np.array(stored["low"], np.float64),
            np.array(stored["high"], np.float64),
            np.array(stored["degrees"], np.int64),
            np.array(stored["weights"], np.float64),
        )

    def stored(self) -> JsonObject:
        """Plain lists, for JSON."""
        return {
            "names": list(self.names),
            "low": [round(value, 6) for value in self.low.tolist()],
            "high": [round(value, 6) for value in self.high.tolist()],
            "degrees": self.degrees.tolist(),
            "weights": [float(f"{value:.6g}") for value in self.weights.tolist()],
        }

    def terms(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """Every term at every point, (points, terms)."""
        product = np.ones((coordinates[self.names[0]].size, len(self.degrees)))
        for place, name in enumerate(self.names):
            middle, half = (self.high + self.low)[place] / 2, (self.high - self.low)[place] / 2
            x = np.clip((coordinates[name].ravel() - middle) / half, -1, 1)
            powers = np.polynomial.legendre.legvander(x, int(self.degrees[:, place].max()))
            product *= powers[:, self.degrees[:, place]]
        return product

    def __call__(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """The value at every point, in the points' shape."""
        shape = coordinates[self.names[0]].shape
        flat = {name: coordinates[name].ravel() for name in self.names}
        size = flat[self.names[0]].size
        step = max(1, 8 * BLOCK // len(self.degrees))
        parts = [
            self.terms({name: flat[name][start : start + step] for name in self.names})
            @ self.weights
            for start in range(0, size, step)
        ]
        return np.concatenate(parts or [np.empty(0)]).reshape(shape)

    def inside(
        self, coordinates: Mapping[str, FloatArray], slack: float = 1e-6
    ) -> NDArray[np.bool_]:
        """Whether each point lies where the polynomial was fitted."""
        good = np.ones(coordinates[self.names[0]].shape, bool)
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            good &= (coordinates[name] >= low - slack) & (coordinates[name] <= high + slack)
        return good


@dataclass(frozen=True)
class Entry:
    """The surface of one strategy.

    Attributes:
        share: of the gain; None where it is known (random arms gain nothing).
        spread: log of the 10% and the 90% quantile of the clicks lost, relative to their mean.
        strategy: its name.
    """

    strategy: str
    share: Polynomial | None
    spread: tuple[Polynomial, ...]

    def shares(self, asked: Question) -> FloatArray:
        """Of what perfect information gains, at each point."""
        if self.share is None:
            return np.zeros(asked.arms.shape)
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
        return self.share.inside(coordinates(self.strategy, asked))


class Start(NamedTuple):
    """What a strategy's polynomial is added to.

    Attributes:
        score: of one bandit for everybody, where a strategy is that at budget 0; else 0.
        weight: what the polynomial is multiplied by.
    """

    score: FloatArray
    weight: FloatArray


def start(strategy: str, asked: Question) -> Start:
    """Where a strategy's surface begins at budget 0.

    >>> asked = Question.of(arms=2, visitors=1e4, segments=2, base_rate=0.1, lift=0.05,
    ...                     heterogeneity=0.5, budget=[0.0, 1.0])
    >>> start("joint", asked).weight.round(3).tolist(), start("dynamic", asked).weight.tolist()
    ([0.0, 0.68], [1.0, 1.0])
    """
    if not learns_together(strategy):
        return Start(np.zeros(asked.arms.shape), np.ones(asked.arms.shape))
    fitted = surface()[POOLED].share
    assert fitted is not None
    explored = log_exploration(asked.sides, asked.budget)
    return Start(fitted(coordinates(POOLED, asked)), np.sqrt(np.maximum(-np.expm1(explored), 0.0)))


def reach(strategy: str, asked: Question) -> FloatArray:
    """The share of the gain that is left once all was learned."""
    if strategy == POOLED:
        return np.sqrt(asked.shared)
    if strategy == BEST_PRIVATE or strategy not in STRATEGIES:
        return np.ones(asked.arms.shape)
    explored = STRATEGIES[strategy].explored(
        asked.arms, asked.visitors / asked.segments, asked.budget
    )
    return best_private(asked) if explored is None else 1 - explored


def best_private(asked: Question) -> FloatArray:
    """The share that the best private table gains with known rates.

    Between sqrt(v) at budget 0, the best arm on average for everybody, and all of it.

    >>> asked = Question.of(arms=2, visitors=1e4, segments=2, base_rate=0.1, lift=0.05,
    ...                     heterogeneity=[0.0, 0.5], budget=1.0)
    >>> best_private(asked)[0]
    np.float64(1.0)
    """
    fitted = surface()[BEST_PRIVATE].share
    assert fitted is not None
    alone = np.sqrt(asked.shared)
    at = coordinates(BEST_PRIVATE, asked)
    return alone + (1 - alone) * private_part(at["explored"], fitted(at))


def private_part(explored: FloatArray, fitted: FloatArray) -> FloatArray:
    """1 - exp(-x), x = -log(exploration) e^fitted: 0 at budget 0, and 1 without a limit."""
    return -np.expm1(explored * np.exp(fitted))


def coordinates(strategy: str, asked: Question) -> dict[str, FloatArray]:
    """Where the surface of a strategy is looked at."""
    plain = {
        "arms": np.log(asked.arms),
        "segments": np.log(asked.segments),
        "heterogeneity": asked.heterogeneity,
    }
    if strategy == POOLED:  # one segment with the lifts of the segments' mean
        return plain | _learning(asked.signal * asked.shared, asked.visitors,
                                 asked.lift * np.sqrt(asked.shared))  # fmt: skip
    if strategy in STRATEGIES:
        alone = asked.visitors / asked.segments
        explored = STRATEGIES[strategy].explored_last(asked.arms, alone, asked.budget)
        if explored is not None:
            learning = _learning(asked.signal / asked.segments, alone, asked.lift)
            return plain | {"explored": np.log(explored)} | learning
    return (
        plain
        | {"explored": log_exploration(asked.sides, asked.budget)}
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
    text = files("deniable.expectations").joinpath("surface.json").read_text(encoding="utf-8")
    return read_entries(json.loads(text)["entries"])


def read_entries(stored: JsonObject) -> dict[str, Entry]:
    """Entries from what a file holds."""
    return {
        name: Entry(
            name,
            None if entry["share"] is None else Polynomial.read(entry["share"]),
            tuple(map(Polynomial.read, entry["spread"])),
        )
        for name, entry in stored.items()
    }


def product_degrees(most: float, weights: Sequence[float], highest: int) -> NDArray[np.int64]:
    """Degrees of all terms whose weighted total is at most `most`, each up to `highest`."""
    found: list[tuple[int, ...]] = [()]
    for weight in weights:
        found = [
            (*left, degree)
            for left in found
            for degree in range(highest + 1)
            if sum(w * d for w, d in zip(weights, left, strict=False)) + weight * degree
            <= most + 1e-9
        ]
    return np.array(found, np.int64)

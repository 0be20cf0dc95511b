"""Your own strategies: a learner in plain Python, shown directly or through a privacy mechanism.

A learner is an object with two methods. The simulator asks it for an arm, shows an arm, and reports the
reward once it is known:

    class Counting:
        def __init__(self, n_arms, n_segments, horizon, rng):
            self.sums = [[0.0] * n_arms for _ in range(n_segments)]

        def choose(self, segment):                  # the arm that the learner wants to show
            return max(range(len(self.sums[segment])), key=self.sums[segment].__getitem__)

        def update(self, segment, arm, reward):     # the reward of a shown arm
            self.sums[segment][arm] += reward

`Custom(Counting)` shows its choices. With a budget they are shown through randomized response.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.exploration import exploration_from_risk
from deniable.strategies.kernel_rules import LearnerRule, shortest


class Learner(Protocol):
    """The interface that the simulator uses. One learner is created per repetition.

    >>> class Always:
    ...     def __init__(self, n_arms, n_segments, horizon, rng):
    ...         self.arm = n_arms - 1
    ...     def choose(self, segment):
    ...         return self.arm
    ...     def update(self, segment, arm, reward):
    ...         pass
    >>> Always(3, 2, 100, np.random.default_rng(1)).choose(segment=0)
    2
    """

    def choose(self, segment: int) -> int:
        """Return the index of the arm to show to a visitor of this segment."""

    def update(self, segment: int, arm: int, reward: float) -> None:
        """Learn the reward of a shown arm, which is not always the chosen one."""


MakeLearner: TypeAlias = Callable[[int, int, int, np.random.Generator], Learner]
"""A class or function of (n_arms, n_segments, horizon, rng), where rng is for this learner only."""


@dataclass(frozen=True)
class Custom:
    """A learner as a policy, run visitor by visitor.

    Attributes:
        learner: creates the learner; with several processes it must be importable, so not a lambda.
        name: name in results; by default the learner's own name.
        budget: the limit on every visitor's privacy risk, kept by randomized response; None shows
            its choices directly.

    >>> Custom(ThompsonSampling).label, Custom(ThompsonSampling, budget=1).label
    ('thompson', 'thompson-response(1)')
    """

    learner: MakeLearner
    name: str = ""
    budget: float | None = None

    def __post_init__(self) -> None:
        learner: object = self.learner
        if not callable(learner):
            allowed = "a class or function of (n_arms, n_segments, horizon, rng)"
            raise InvalidArgumentError("learner", learner, allowed)
        named = self.name or getattr(
            self.learner, "name", getattr(self.learner, "__name__", type(self.learner).__name__)
        )
        if not isinstance(named, str):
            raise InvalidArgumentError("name", named, "a name")
        object.__setattr__(self, "name", named)
        if self.budget is not None:
            object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """The name, and the budget if there is one."""
        if self.budget is None:
            return self.name
        return f"{self.name}-response({shortest(self.budget)})"

    @property
    def risk_cap(self) -> float:
        """The budget; infinite without one."""
        return math.inf if self.budget is None else self.budget

    def rule(self, rates: FloatArray, horizon: int) -> LearnerRule:
        """The learner, and how often its choice is replaced by a random arm."""
        n_segments, n_arms = rates.shape
        explored = 0.0
        if self.budget is not None:
            explored = float(exploration_from_risk(n_arms, self.budget))
        return LearnerRule(self.learner, n_arms, n_segments, horizon, explored)


class ThompsonSampling:
    """Thompson sampling with a Beta(1, 1) prior: shows an arm with the probability that it is best.

    Rewards are clicks, or numbers from 0 to 1, which count fractionally.

    >>> learner = ThompsonSampling(2, 1, 1000, np.random.default_rng(1))
    >>> for _ in range(50):
    ...     learner.update(0, 0, 0)
    ...     learner.update(0, 1, 1)
    >>> learner.choose(0)
    1
    """

    name = "thompson"

    def __init__(
        self, n_arms: int, n_segments: int, horizon: int, rng: np.random.Generator
    ) -> None:
        self._rng = rng
        self._won = np.ones((n_segments, n_arms))
        self._lost = np.ones((n_segments, n_arms))

    def choose(self, segment: int) -> int:
        """Return the best arm of one draw from the posterior."""
        return int(self._rng.beta(self._won[segment], self._lost[segment]).argmax())

    def update(self, segment: int, arm: int, reward: float) -> None:
        """Count the reward."""
        _check_unit(reward)
        self._won[segment, arm] += reward
        self._lost[segment, arm] += 1 - reward


class UpperConfidence:
    """UCB1: the arm with the highest mean + sqrt(2 log n / shows); each arm once at first.

    Rewards are clicks, or numbers from 0 to 1.

    >>> learner = UpperConfidence(2, 1, 1000, np.random.default_rng(1))
    >>> first = learner.choose(0)
    >>> learner.update(0, first, 1)
    >>> learner.choose(0) == first
    False
    """

    name = "ucb"

    def __init__(
        self, n_arms: int, n_segments: int, horizon: int, rng: np.random.Generator
    ) -> None:
        self._shows = np.zeros((n_segments, n_arms))
        self._sums = np.zeros((n_segments, n_arms))

    def choose(self, segment: int) -> int:
        """Return the arm with the highest upper bound; the first among equals."""
        return int(_upper(self._sums[segment], self._shows[segment]).argmax())

    def update(self, segment: int, arm: int, reward: float) -> None:
        """Count the reward."""
        _check_unit(reward)
        self._shows[segment, arm] += 1
        self._sums[segment, arm] += reward


def _check_unit(reward: float) -> None:
    if not 0 <= reward <= 1:
        allowed = "rewards from 0 to 1 for thompson and ucb: divide the values of clicks"
        raise InvalidArgumentError("values", reward, allowed)


def _upper(sums: FloatArray, shows: FloatArray) -> FloatArray:
    seen = np.maximum(shows, 1)
    bonus = np.sqrt(2 * math.log(max(float(shows.sum()), 1)) / seen)
    return np.asarray(np.where(shows > 0, sums / seen + bonus, np.inf))

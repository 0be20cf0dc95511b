"""Custom policies: a learner in plain Python, shown directly or through a privacy mechanism.

A learner is an object with two methods. The simulator asks it for an arm, shows an arm, and reports the
reward once it is known:

    class Counting:
        def __init__(self, n_arms, n_segments, horizon, rng):
            self.sums = [[0.0] * n_arms for _ in range(n_segments)]

        def choose(self, segment):                  # the arm that the learner wants to show
            return max(range(len(self.sums[segment])), key=self.sums[segment].__getitem__)

        def update(self, segment, arm, reward):     # the reward of a shown arm
            self.sums[segment][arm] += reward

`CustomPolicy(Counting)` shows its choices. With a budget they are shown through randomized response or,
with `through="gate"` and a third method `scores`, through the best table that keeps the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.base import LearnerRule, shortest
from deniable.privacy.exploration import exploration_from_risk

Through: TypeAlias = Literal["response", "gate"]
"""How the choices of a learner with a budget are shown."""


class Learner(Protocol):
    """The interface that the simulator uses. One learner is created per repetition.

    To be shown through the gate, it also needs ``scores() -> array of shape (segments, arms)``:
    what it expects of each arm, in any unit, higher is better.

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


class Scoring(Learner, Protocol):
    """A learner that can be shown through the gate."""

    def scores(self) -> FloatArray:
        """Return what it expects of each arm, (segments, arms)."""


MakeLearner: TypeAlias = Callable[[int, int, int, np.random.Generator], Learner]
"""A class or function of (n_arms, n_segments, horizon, rng), where rng is for this learner only."""


@dataclass(frozen=True)
class CustomPolicy:
    """A learner as a policy, run visitor by visitor.

    Attributes:
        learner: creates the learner; with several processes it must be importable, so not a lambda.
        name: name in results; by default the learner's own name.
        budget: the limit on every visitor's privacy risk; None shows its choices directly.
        through: "response" shows the chosen arm through randomized response. "gate" publishes tables
            as the service does, each the best that keeps the budget for the learner's scores.

    >>> CustomPolicy(ThompsonSampling).label, CustomPolicy(ThompsonSampling, budget=1).label
    ('thompson', 'thompson-response(1)')
    """

    learner: MakeLearner
    name: str = ""
    budget: float | None = None
    through: Through = "response"

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
        if self.through not in get_args(Through):
            raise InvalidArgumentError("through", self.through, " or ".join(get_args(Through)))
        if self.budget is not None:
            object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """The name, with how the budget is kept, and the budget."""
        if self.budget is None:
            return self.name
        return f"{self.name}-{self.through}({shortest(self.budget)})"

    @property
    def risk_cap(self) -> float:
        """The budget; infinite without one."""
        return math.inf if self.budget is None else self.budget

    def rule(self, rates: FloatArray, horizon: int) -> LearnerRule:
        """The learner, and how often its choice is replaced by a random arm."""
        n_arms, n_segments = rates.shape
        explored = 0.0
        if self.budget is not None and self.through == "response":
            explored = float(exploration_from_risk(n_arms, self.budget))
        gate = self.budget if self.through == "gate" else None
        return LearnerRule(self.learner, n_arms, n_segments, horizon, explored, gate)


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

    def scores(self) -> FloatArray:
        """Return one draw from the posterior."""
        return self._rng.beta(self._won, self._lost)


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

    def scores(self) -> FloatArray:
        """Return the upper bounds, capped at 1, the largest possible click rate."""
        bounds = [_upper(*counts) for counts in zip(self._sums, self._shows, strict=True)]
        return np.minimum(np.stack(bounds), 1.0)


def _check_unit(reward: float) -> None:
    if not 0 <= reward <= 1:
        allowed = "rewards from 0 to 1 for thompson and ucb: divide the values of clicks"
        raise InvalidArgumentError("values", reward, allowed)


def _upper(sums: FloatArray, shows: FloatArray) -> FloatArray:
    seen = np.maximum(shows, 1)
    bonus = np.sqrt(2 * math.log(max(float(shows.sum()), 1)) / seen)
    return np.asarray(np.where(shows > 0, sums / seen + bonus, np.inf))

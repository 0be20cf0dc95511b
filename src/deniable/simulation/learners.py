"""The step kernel for learners in Python: visitor by visitor, with rewards when they are known.

A visitor's behaviour is drawn before any arm is shown: the segment, one number that decides the
click for every arm, and one for the privacy mechanism. With common random numbers, learners
therefore meet identical visitors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from inspect import signature
from operator import index

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.base import LearnerRule
from deniable.policies.custom import Learner, Scoring
from deniable.privacy.epochs import due_at, epochs_of
from deniable.simulation.kernels.late_rewards import Worth
from deniable.simulation.kernels.run import Setting
from deniable.strategies.joint_lp import best_table

_BLOCK = 4096  # visitors drawn at once

Outcome = tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]
"""Shows, clicks and rewards at each checkpoint, (C, J, K) each."""


def run_learner(rule: LearnerRule, worth: Worth, setting: Setting) -> Outcome:
    """Run one repetition; a pure function of its arguments if the learner is."""
    world, own = np.random.SeedSequence(setting.state.tolist()).spawn(2)
    learner = _made(rule, np.random.default_rng(own))
    shape = (rule.n_segments, rule.n_arms)
    phases = setting.rates_until if setting.rates_until.size else setting.rates[None]
    points = setting.checkpoints.tolist()
    shows, clicks = np.zeros((2, len(points), *shape), np.int64)
    rewards = np.zeros((len(points), *shape))
    values, delays = worth.values.tolist(), worth.delays.tolist()
    arrival = setting.arrival.tolist()
    pending: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
    shown = _Shown(rule, learner)
    visitors = _visitors(world, rule.horizon, worth.spread)
    done = 0
    for i, point in enumerate(points):
        rates = phases[min(i, len(phases) - 1)].tolist()
        seen, clicked = ([[0] * shape[1] for _ in range(shape[0])] for _ in range(2))
        earned = [[0.0] * shape[1] for _ in range(shape[0])]
        while done < point:
            done += 1
            for known in pending.pop(done, ()):
                learner.update(*known)
            place, click, lot, late, size = next(visitors)
            segment = bisect_right(arrival, place) if len(arrival) > 1 else 0
            arm = shown.arm(segment, lot, done)
            reward = 0.0
            if click < rates[segment][arm]:
                clicked[segment][arm] += 1
                reward = values[segment][arm] * size
                earned[segment][arm] += reward
            seen[segment][arm] += 1
            due = done + 1 + (bisect_right(delays, late) if len(delays) > 1 else 0)
            pending[due].append((segment, arm, reward))
        shows[i], clicks[i], rewards[i] = seen, clicked, earned
    return shows.cumsum(axis=0), clicks.cumsum(axis=0), rewards.cumsum(axis=0)


def _made(rule: LearnerRule, rng: np.random.Generator) -> Learner:
    name = getattr(rule.learner, "__name__", type(rule.learner).__name__)
    given = (rule.n_arms, rule.n_segments, rule.horizon, rng)
    try:
        signature(rule.learner).bind(*given)
    except (TypeError, ValueError):
        allowed = "a class or function of (n_arms, n_segments, horizon, rng)"
        raise InvalidArgumentError("learner", name, allowed) from None
    learner: Learner = rule.learner(*given)
    needed = ("choose", "update") if rule.gate is None else ("scores", "update")
    for method in needed:
        if not callable(getattr(learner, method, None)):
            raise InvalidArgumentError("learner", name, f"a learner with {method}()")
    return learner


class _Shown:
    """How a learner's choice is shown: as is, replaced by a random arm, or drawn from a table."""

    def __init__(self, rule: LearnerRule, learner: Learner) -> None:
        self._rule, self._learner = rule, learner
        self._rows = [
            [(arm + 1) / rule.n_arms for arm in range(rule.n_arms)] for _ in range(rule.n_segments)
        ]
        self._visitors = np.zeros(rule.n_segments)
        self._epochs = epochs_of(rule.n_arms, rule.n_segments)
        self._due = due_at(0, self._epochs)

    def arm(self, segment: int, lot: float, visitor: int) -> int:
        """Return the arm for the visitor with this number; `lot` is uniform on [0, 1)."""
        rule = self._rule
        if rule.gate is not None:
            if visitor > self._due:
                self._publish(rule.gate, visitor - 1)
            self._visitors[segment] += 1
            return min(bisect_right(self._rows[segment], lot), rule.n_arms - 1)
        chosen = self._learner.choose(segment)
        try:
            arm = index(chosen)
        except TypeError:
            arm = -1
        if not 0 <= arm < rule.n_arms:
            allowed = f"choose() to return an arm from 0 to {rule.n_arms - 1}"
            raise InvalidArgumentError("learner", chosen, allowed)
        return int(lot / rule.explored * rule.n_arms) if lot < rule.explored else arm

    def _publish(self, budget: float, visitors: int) -> None:
        """Publish the next table: the best that keeps the budget, for the scores and shares so far."""
        learner: Scoring = self._learner  # type: ignore[assignment]
        scores = check.finite("scores", learner.scores())
        shape = (self._rule.n_segments, self._rule.n_arms)
        if scores.shape != shape:
            raise InvalidArgumentError("scores", scores.shape, f"an array of shape {shape}")
        lowest = scores.min()
        wanted = (scores - lowest) / ((scores.max() - lowest) or 1.0)
        table = best_table(wanted.T, self._visitors / visitors, budget).table
        self._rows = np.cumsum(table.T, axis=1).tolist()
        self._due = due_at(visitors, self._epochs)


def _visitors(
    seed: np.random.SeedSequence, count: int, spread: float
) -> Iterator[tuple[float, float, float, float, float]]:
    """Draw uniform numbers for segment, click, mechanism and delay, and the size of a reward, mean 1."""
    rng = np.random.default_rng(seed)
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        numbers = rng.random((size, 4)).tolist()
        sizes = [1.0] * size
        if spread > 0:
            sizes = rng.lognormal(-(spread**2) / 2, spread, size).tolist()
        for row, worth in zip(numbers, sizes, strict=True):
            yield (*row, worth)

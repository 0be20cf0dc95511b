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

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.simulation.kernels.late_rewards import Worth
from deniable.simulation.kernels.run import Setting
from deniable.strategies.custom import Learner
from deniable.strategies.kernel_rules import LearnerRule

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
            arm = _shown_arm(rule, learner.choose(segment), lot)
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
    for method in ("choose", "update"):
        if not callable(getattr(learner, method, None)):
            raise InvalidArgumentError("learner", name, f"a learner with {method}()")
    return learner


def _shown_arm(rule: LearnerRule, chosen: object, lot: float) -> int:
    """Return the chosen arm, or a random one as often as the rule says; `lot` is uniform on [0, 1)."""
    try:
        arm = index(chosen)  # type: ignore[arg-type]
    except TypeError:
        arm = -1
    if not 0 <= arm < rule.n_arms:
        allowed = f"choose() to return an arm from 0 to {rule.n_arms - 1}"
        raise InvalidArgumentError("learner", chosen, allowed)
    return int(lot / rule.explored * rule.n_arms) if lot < rule.explored else arm


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

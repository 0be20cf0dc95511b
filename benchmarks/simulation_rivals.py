"""The step kernel against epsilon-greedy of River, MABWiser, SMPyBandits and Vowpal Wabbit.

Each plays two arms with a constant exploration, visitor by visitor: choose, see the click, learn.
They are the optional extra `bench`; one that is not installed is named, loudly.
"""

from __future__ import annotations

import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from benchmarks.simulation import kernel_seconds
from benchmarks.timing import row
from deniable.policies.greedy import ConstantPolicy
from deniable.simulation.environment import Environment

RATES = (0.324, 0.295)
EXPLORATION = 0.0948517
os.environ.setdefault("NOTQDM", "True")


def main() -> bool:
    """Print every row; True where all limits hold."""
    mine = kernel_seconds(Environment(RATES, 10**6), ConstantPolicy(3), "step", 5) / 10**6
    held = []
    for name, play, visitors, limit in (
        ("river", _river, 20_000, 100),
        ("mabwiser", _mabwiser, 300, 1000),
        ("SMPyBandits", _smpybandits, 5_000, 1000),
        ("vowpalwabbit", _vowpal, 3_000, 1000),
    ):
        if find_spec(name) is None:
            print(f"SKIP  {name} IS NOT INSTALLED: pip install 'deniable[bench]'")
            continue
        try:
            theirs = _seconds(play, visitors) / visitors
        except (ImportError, AttributeError) as error:
            print(f"SKIP  {name} IS INSTALLED BUT DOES NOT RUN HERE: {error}")
            continue
        what = f"{name} / step, per visitor ({theirs * 1e6:.3g} us)"
        held.append(row(what, theirs / mine, "x", limit, at_least=True))
    return all(held)


def _seconds(play: Callable[[int], object], visitors: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        play(50)
        start = time.thread_time()
        play(visitors)
        return time.thread_time() - start


def _clicked(arm: int) -> int:
    return 1 if random.random() < RATES[arm] else 0


def _river(visitors: int) -> None:
    bandit: Any = import_module("river.bandit")

    policy = bandit.EpsilonGreedy(epsilon=EXPLORATION, seed=1)
    for _ in range(visitors):
        arm = policy.pull([0, 1])
        policy.update(arm, _clicked(arm))


def _mabwiser(visitors: int) -> None:
    mab: Any = import_module("mabwiser.mab")

    policy = mab.MAB([0, 1], mab.LearningPolicy.EpsilonGreedy(EXPLORATION), seed=1)
    policy.fit([0, 1], [0, 0])
    for _ in range(visitors):
        arm = policy.predict()
        policy.partial_fit([arm], [_clicked(arm)])


def _smpybandits(visitors: int) -> None:
    # Its packages import all of it, down to names that SciPy has dropped: load the one policy.
    spec: Any = sys.modules.get("SMPyBandits") or find_spec("SMPyBandits")
    paths = getattr(spec, "__path__", None) or spec.submodule_search_locations
    root = next(iter(paths))
    for name in ("SMPyBandits", "SMPyBandits.Policies"):
        package: Any = sys.modules.setdefault(name, ModuleType(name))
        package.__path__ = [os.path.join(root, *name.split(".")[1:])]
    chosen: Any = import_module("SMPyBandits.Policies.EpsilonGreedy")
    policy = chosen.EpsilonGreedy(2, epsilon=EXPLORATION)
    policy.startGame()
    for _ in range(visitors):
        arm = policy.choice()
        policy.getReward(arm, _clicked(arm))


def _vowpal(visitors: int) -> None:
    vowpal: Any = import_module("vowpalwabbit")
    policy = vowpal.Workspace(f"--cb_explore 2 --epsilon {EXPLORATION} --quiet --random_seed 1")
    for _ in range(visitors):
        chances = policy.predict("| page")
        arm = 0 if random.random() < chances[0] else 1
        policy.learn(f"{arm + 1}:{-_clicked(arm)}:{chances[arm]} | page")
    policy.finish()

"""The experiments of the study of labels: three kinds of firms, by seeds that were fixed beforehand.

Two kinds follow the specification: arms differ by .1 of the base rate for everybody and by .2 by segment
("segments differ"), or the other way round ("segments alike"). The third, "held out", was written before
any learner had run on it: everything is drawn, from the base rate to the sizes of segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deniable import Environment, Mask
from deniable.datasets import asos
from deniable.expectations.prior import Prior
from deniable.masks.limit import best_groups
from research.joint import segmented

EXPERIMENTS = 78
"""Experiments of a firm."""

SEEDS = {"segments differ": 3_901, "segments alike": 3_902, "held out": 3_903, "checks": 3_904}
_ARMS = (2, 8)


@dataclass(frozen=True)
class World:
    """One experiment.

    Attributes:
        environment: its click rates by segment.
        heterogeneity: h of its prior, from which labels are designed.
        prior: what its click rates were drawn from; None for real data.
    """

    environment: Environment
    heterogeneity: float
    prior: Prior | None = None

    @property
    def gain(self) -> float:
        """Clicks that perfect information gains over random arms."""
        page = self.environment
        return float(page.horizon * (page.best_reward - page.rates.mean(axis=1) @ page.shares))

    def on_labels(self, budget: float) -> Environment:
        """Return the experiment as seen through the labels that a plan would design."""
        page = self.environment
        groups = {
            f"g{number}": [page.segments[place] for place in group]
            for number, group in enumerate(best_groups(page.shares, budget, self.heterogeneity))
        }
        mask = Mask(
            segments=page.segments,
            budget=budget,
            key=bytes(32),  # labels are drawn from their channel
            name=f"label-{budget:g}".replace(".", "-"),
            groups=groups,
        )
        return page.masked(mask)


def firm(kind: str, number: int) -> Iterator[World]:
    """Yield the experiments of one firm.

    >>> [world.environment.n_segments for world in firm("segments alike", 0)][:3]
    [4, 4, 4]
    """
    rng = np.random.default_rng([SEEDS[kind], number])
    own = {"segments differ": 0.8, "segments alike": 0.2}
    for place in range(EXPERIMENTS):
        name = f"{kind} {number}.{place}"
        if kind in own:
            prior = Prior(0.05, math.sqrt(0.05), own[kind])
            rates = prior.draw(int(rng.integers(_ARMS[0], _ARMS[1] + 1)), 4, 1, rng)[0]
            yield World(Environment(rates, 100_000, name=name), prior.heterogeneity, prior)
        else:
            yield _any_world(name, rng)


def _any_world(name: str, rng: np.random.Generator) -> World:
    base, lift, visitors = np.exp(rng.uniform(np.log([0.02, 0.05, 3e4]), np.log([0.3, 0.3, 1e6])))
    prior = Prior(float(base), float(lift), float(rng.uniform(0.2, 0.9)))
    n_arms, n_segments = int(rng.integers(2, 11)), int(rng.integers(2, 9))
    shares = rng.dirichlet(np.full(n_segments, 4.0))
    rates = prior.draw(n_arms, n_segments, 1, rng)[0]
    page = Environment(rates, int(visitors), shares, name=name)
    return World(page, prior.heterogeneity, prior)


def settings(count: int = 20) -> list[tuple[Prior, int, int, int, float]]:
    """Return random settings to check what a plan expects: prior, arms, segments, visitors, budget."""
    rng = np.random.default_rng(SEEDS["checks"])
    made = []
    for _ in range(count):
        base, lift, visitors = np.exp(
            rng.uniform(np.log([0.02, 0.05, 3e4]), np.log([0.3, 0.3, 1e6]))
        )
        prior = Prior(float(base), float(lift), float(rng.uniform(0.2, 0.9)))
        arms, segments = int(rng.integers(2, 11)), int(rng.integers(2, 9))
        made.append((prior, arms, segments, int(visitors), round(float(rng.uniform(0.5, 4.0)), 2)))
    return made


def asos_worlds(file: Path, seed: int) -> list[World]:
    """Return ASOS's experiments with 10,000 visitors or more, in three segments of a stated prior.

    The data has no segments: a segment's rate of an arm is the arm's rate times 1 + SPREAD z, so nearly
    all differences between arms are by segment. No prior is more favourable for tailoring.
    """
    rng = np.random.default_rng([seed, 14])
    return [
        World(Environment(segmented(np.array(each.rates), rng), each.visitors, name=each.name), 0.9)
        for each in asos(file)
        if each.visitors >= 10_000
    ]

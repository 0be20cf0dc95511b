"""The definitions, visitor by visitor in plain Python: an oracle that shares no code with the layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.inference.state import VisitorBatch


@dataclass
class Visitor:
    """One row of a log."""

    batch: int
    arm: int
    reward: float
    row: list[float]


def log_of_one_segment(
    rng: np.random.Generator, sizes: list[int], n_arms: int, binary: bool = False
) -> list[Visitor]:
    """Visitors of one segment, with another random table for each batch."""
    log = []
    for batch, size in enumerate(sizes):
        row = rng.dirichlet(np.full(n_arms, 2.0)).tolist()
        for _ in range(size):
            arm = int(rng.choice(n_arms, p=row))
            value = float(rng.random() < 0.2 + 0.1 * arm)
            reward = value if binary else value * float(rng.random())
            log.append(Visitor(batch, arm, reward, row))
    return log


def batches_of(log: list[Visitor], n_arms: int) -> list[VisitorBatch]:
    """The same log as counts."""
    result = []
    for number in range(1 + max(visitor.batch for visitor in log)):
        mine = [visitor for visitor in log if visitor.batch == number]
        shows, rewards, squares = np.zeros((3, 1, n_arms))
        for visitor in mine:
            shows[0, visitor.arm] += 1
            rewards[0, visitor.arm] += visitor.reward
            squares[0, visitor.arm] += visitor.reward**2
        result.append(VisitorBatch([mine[0].row], shows, rewards, squares))
    return result


def guess(log: list[Visitor], before: int, arm: int, rate: float) -> float:
    """The rate of an arm, from visitors of earlier batches only."""
    past = [visitor for visitor in log if visitor.batch < before]
    mean = (rate + math.fsum(v.reward for v in past)) / (1 + len(past))
    own = [v.reward for v in past if v.arm == arm]
    return (5 * mean + math.fsum(own)) / (5 + len(own))


def pair_scores(
    log: list[Visitor], a: int, b: int, rate: float, floor: float = 0.001
) -> tuple[list[float], list[float], list[float]]:
    """Weights, scores and centres of "b minus a", visitor by visitor."""
    weights, scores, centres = [], [], []
    cache: dict[tuple[int, int], float] = {}
    for v in log:
        pa, pb = v.row[a], v.row[b]
        if min(pa, pb) < floor:
            continue
        for arm in (a, b):
            if (v.batch, arm) not in cache:
                cache[v.batch, arm] = guess(log, v.batch, arm, rate)
        ma, mb = cache[v.batch, a], cache[v.batch, b]
        score = mb - ma
        if v.arm == b:
            score += (v.reward - mb) / pb
        if v.arm == a:
            score -= (v.reward - ma) / pa
        weights.append(1 / (1 / pa + 1 / pb))
        scores.append(score)
        centres.append(mb - ma)
    return weights, scores, centres

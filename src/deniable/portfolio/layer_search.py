"""Searches which experiments share a layer: merges layers one by one and moves experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import KNOTS, IntArray, build_curves, expected_table
from deniable.portfolio.problem import Knowledge, Portfolio

STEPS = 20
"""Shares are multiples of 1/20, so a layer holds at most 20 experiments."""
IMPOSSIBLE = 1e18
"""The loss of an experiment below its minimum budget: more than clicks can be worth, but finite."""
_CAPS = 64  # steps of the firm budget between layers while layers are searched for
_PASSES = 2

Group = tuple[int, ...]
Found = dict[int, tuple[list[Group], float]]
"""Number of layers -> the layers and their loss."""


@dataclass(frozen=True)
class LayerProblem:
    """Total loss of each experiment by share and cap: shape (experiments, STEPS + 1, knots)."""

    portfolio: Portfolio
    regime: str
    random: FloatArray
    loss: FloatArray

    @classmethod
    def of(cls, portfolio: Portfolio, regime: str) -> LayerProblem:
        """Tabulate every experiment at every share."""
        size = portfolio.size
        random = expected_table(portfolio, "random", np.arange(size))[:, 0]
        parts = np.arange(1, STEPS + 1) / STEPS
        wide = reduced(portfolio, np.repeat(np.arange(size), STEPS), np.tile(parts, size))
        curves = build_curves(wide, regime)
        index = np.arange(curves.experiment.size)
        least = np.full((wide.size, KNOTS.size), np.inf)
        for place, knot in enumerate(KNOTS):
            at = curves.regret(index, np.full(index.size, knot))
            np.minimum.at(least[:, place], curves.experiment, at)
        least[wide.low[:, None] - 1e-12 > KNOTS] = IMPOSSIBLE
        loss = np.full((size, STEPS + 1, KNOTS.size), np.inf)
        loss[:, 1:] = least.reshape(size, STEPS, -1) + ((1 - parts) * random[:, None])[:, :, None]
        return cls(portfolio, regime, random, loss)

    def layer(self, group: Group) -> FloatArray:
        """Return the smallest loss of a layer by the sum of its shares and its cap."""
        total: FloatArray = self.loss[group[0]]
        for member in group[1:]:
            total = _merged(total, self.loss[member])
        return total

    def shares(self, group: Group, cap: float) -> list[int]:
        """Return the best shares under a cap, in steps."""
        at = [np.array([np.interp(cap, KNOTS, row) for row in self.loss[e]]) for e in group]
        tails = [np.where(np.arange(STEPS + 1) == 0, 0.0, np.inf)]
        for own in reversed(at):
            tails.append(_merged(tails[-1][:, None], own[:, None])[:, 0])
        left, found = STEPS, []
        for own, tail in zip(at, reversed(tails[:-1]), strict=True):
            sums = own[: left + 1] + tail[left::-1]
            found.append(int(np.argmin(sums)))
            left -= found[-1]
        return found


def reduced(portfolio: Portfolio, rows: IntArray, shares: FloatArray) -> Portfolio:
    """Return some of the experiments, each with a share of its visitors; rows may repeat."""
    known = portfolio.known
    assert known is not None
    visitors = np.maximum(np.rint(portfolio.visitors[rows] * shares), 1).astype(np.int64)
    return replace(
        portfolio,
        ids=tuple(f"{portfolio.ids[row]} {number}" for number, row in enumerate(rows)),
        arms=portfolio.arms[rows],
        visitors=visitors,
        segments=portfolio.segments[rows],
        strategies=tuple(portfolio.strategies[row] for row in rows),
        min_nano=portfolio.min_nano[rows],
        max_nano=portfolio.max_nano[rows],
        committed=portfolio.committed[rows],
        groups=tuple(portfolio.groups[row] for row in rows),
        value=portfolio.worth[rows],
        known=Knowledge(
            known.base_rate[rows],
            known.lift[rows],
            known.heterogeneity[rows],
            tuple(known.shares[row] for row in rows),
        ),
    )


def _merged(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the smallest sum over all divisions of the shares; infinite if there are too few."""
    total = np.full(np.broadcast_shapes(first.shape, second.shape), np.inf)
    for steps in range(STEPS + 1):
        if np.isfinite(second[steps]).any():
            reach = first[: STEPS + 1 - steps] + second[steps]
            total[steps:] = np.minimum(total[steps:], reach)
    return total


def designs(problem: LayerProblem, part: Group, budget: float, meets: int | None) -> Found:
    """Return the best layers found for each number of layers, for experiments that share visitors."""
    groups: list[Group] = [(row,) for row in part]
    tables = {group: problem.layer(group) for group in groups}
    pairs: dict[tuple[Group, Group], FloatArray] = {}
    found = {len(groups): (groups, _loss([tables[g][-1] for g in groups], budget, meets))}
    while len(groups) > 1:
        cap = budget / min(len(groups) - 1, meets or len(groups))
        least, chosen = np.inf, None
        for pair in combinations(groups, 2):
            if len(pair[0]) + len(pair[1]) > STEPS:
                continue
            if pair not in pairs:
                pairs[pair] = _merged(tables[pair[0]], tables[pair[1]])
            more = [pairs[pair][-1], tables[pair[0]][-1], tables[pair[1]][-1]]
            both, one, other = (float(np.interp(cap, KNOTS, row)) for row in more)
            if both - one - other < least:
                least, chosen = both - one - other, pair
        if chosen is None:
            break
        joined = chosen[0] + chosen[1]
        tables[joined] = pairs[chosen]
        groups = [group for group in groups if group not in chosen] + [joined]
        found[len(groups)] = _moved(problem, groups, tables, budget, meets)
    return found


def _moved(
    problem: LayerProblem,
    groups: list[Group],
    tables: dict[Group, FloatArray],
    budget: float,
    meets: int | None,
) -> tuple[list[Group], float]:
    """Move experiments to other layers while that helps."""

    def table(group: Group) -> FloatArray:
        if group not in tables:
            tables[group] = problem.layer(group)
        return tables[group]

    best = _loss([table(group)[-1] for group in groups], budget, meets)
    for _ in range(_PASSES):
        before = best
        for row in [row for group in groups for row in group]:
            home = next(i for i, group in enumerate(groups) if row in group)
            for away in range(len(groups)):
                if away == home or len(groups[home]) == 1 or len(groups[away]) == STEPS:
                    continue
                tried = list(groups)
                tried[home] = tuple(other for other in groups[home] if other != row)
                tried[away] = tuple(sorted((*groups[away], row)))
                loss = _loss([table(group)[-1] for group in tried], budget, meets)
                if loss < best * (1 - 1e-12):
                    groups, best = tried, loss
                    break
        if best >= before:
            break
    return groups, best


def _loss(layers: Sequence[FloatArray], budget: float, meets: int | None) -> float:
    """Return the smallest total over divisions of the budget between layers, in steps."""
    caps = np.linspace(0, budget, _CAPS + 1)
    split = np.zeros(_CAPS + 1)
    for table in layers:
        own = np.interp(caps, KNOTS, table)
        after = np.full(_CAPS + 1, np.inf)
        for step in range(_CAPS + 1):
            after[step:] = np.minimum(after[step:], split[: _CAPS + 1 - step] + own[step])
        split = after
    total = float(split[-1])
    if meets is not None and meets < len(layers):
        # A visitor meets so few experiments that every layer may have this part of the budget.
        total = min(total, sum(float(np.interp(budget / meets, KNOTS, t)) for t in layers))
    return total


def nearest_number(own: Found, count: int) -> tuple[list[Group], float]:
    """Return a part's layers for this number of layers, or the nearest available number."""
    nearest = min(own, key=lambda number: (abs(number - min(count, max(own))), number))
    return own[nearest]

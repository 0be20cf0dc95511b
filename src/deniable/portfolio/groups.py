"""Groups: experiments that share a cap, because a visitor enters at most one of them.

A group costs its largest budget, so every member may use any budget up to the group's cap. The
group's loss is the sum over members of their smallest bound at or below the cap, which is a
function of the cap. It is divided into cells in which each member either follows one curve or rests
at a budget that more cap does not improve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import Curves, IntArray
from deniable.portfolio.pieces import Cells

_GRID = 129
_HALVINGS = 45


@dataclass(frozen=True)
class _Member:
    """The behaviour of a member as the group's cap grows.

    Attributes:
        edges: caps at which its behaviour changes, including the group's ends.
        follows: the curve between two edges, -1 where it rests.
        rests_at: its loss where it rests, 0 elsewhere.
    """

    edges: FloatArray
    follows: IntArray
    rests_at: FloatArray


def cells_of_group(curves: Curves, rows: IntArray, unit: int) -> Cells:
    """Return the cells of one group.

    Args:
        curves: all curves.
        rows: rows of the members in the portfolio.
        unit: the group's unit.
    """
    mine = np.flatnonzero(np.isin(curves.experiment, rows))
    low = float(curves.low[mine].max())
    high = max(low, float(curves.high[mine].max()))
    members = [
        _trace(curves, mine[curves.experiment[mine] == row], low, high) for row in np.unique(rows)
    ]
    edges = np.unique(np.concatenate([member.edges for member in members]))
    keep = np.append(True, np.diff(edges) > 1e-12)
    edges = edges[keep]
    left, right = (edges[:-1], edges[1:]) if edges.size > 1 else (edges, edges)
    middle = (left + right) / 2
    offset = np.zeros(left.size)
    terms: list[list[int]] = [[] for _ in range(left.size)]
    for member in members:
        stretch = np.clip(np.searchsorted(member.edges, middle) - 1, 0, member.follows.size - 1)
        offset += member.rests_at[stretch]
        for cell, curve in enumerate(member.follows[stretch]):
            if curve >= 0:
                terms[cell].append(int(curve))
    counts = np.array([len(found) for found in terms], dtype=np.int64)
    stop = np.cumsum(counts)
    flat = np.array([curve for found in terms for curve in found], dtype=np.int64)
    return Cells(np.full(left.size, unit), left, right, offset, stop - counts, stop, flat)


def _trace(curves: Curves, own: IntArray, low: float, high: float) -> _Member:
    """Follow one member's smallest loss from the group's smallest cap to its largest."""
    grid = _grid(curves, own, low, high)
    loss = _held(curves, own, grid)
    floor = float(loss[:, 0].min())
    edges, follows, rests = [], [], []
    for node in range(grid.size - 1):
        steps, floor = _gap(curves, own, grid[node : node + 2], loss[:, node : node + 2], floor)
        if grid[node] >= low:
            for at, who, level in steps:
                edges.append(at)
                follows.append(-1 if who is None else int(own[who]))
                rests.append(level if who is None else 0.0)
    if not edges:  # the cap is fixed
        return _Member(np.array([low]), np.array([-1]), np.array([floor]))
    return _Member(np.array([*edges, high]), np.array(follows), np.array(rests))


def _grid(curves: Curves, own: IntArray, low: float, high: float) -> FloatArray:
    start = float(curves.low[own].min())
    ends = np.concatenate([curves.kinks()[own].ravel(), curves.high[own], [low]])
    nodes = np.unique(np.concatenate([ends[~np.isnan(ends)], np.linspace(start, high, _GRID)]))
    return np.asarray(nodes[(nodes >= start) & (nodes <= high)])


def _held(curves: Curves, own: IntArray, budget: FloatArray) -> FloatArray:
    """Return bounds of a member's curves, each constant beyond its end; shape (curves, budgets)."""
    held = np.minimum(budget, curves.high[own][:, None])
    return curves.regret(np.repeat(own, budget.size), held.ravel()).reshape(held.shape)


_Steps = list[tuple[float, int | None, float]]


def _gap(
    curves: Curves, own: IntArray, ends: FloatArray, loss: FloatArray, floor: float
) -> tuple[_Steps, float]:
    """Return the behaviour of a member between two grid nodes, and its smallest loss at the second.

    Returns:
        Steps (from, curve or None at rest, level at rest) and the new floor.
    """
    left, right = float(ends[0]), float(ends[1])
    first, last = int(loss[:, 0].argmin()), int(loss[:, 1].argmin())
    # At the left end, the member is on its curve if the curve is at the floor and not at its end.
    on_curve = loss[first, 0] <= floor and curves.high[own[first]] > left
    improves = loss[last, 1] < floor
    new_floor = min(floor, float(loss[last, 1]))
    if on_curve and improves and first == last:
        return [(left, first, 0.0)], new_floor

    def at(who: int, budget: float) -> float:
        return float(_held(curves, own[[who]], np.array([budget]))[0, 0])

    if improves:  # from rest or another curve to the curve that is lowest at the right end
        turn = _turn(left, right, lambda x: at(last, x) >= (at(first, x) if on_curve else floor))
        return [(left, first if on_curve else None, floor), (turn, last, 0.0)], new_floor
    falling = on_curve and _gain(curves, own[first], left + 1e-9 * (right - left)) > 0
    if not falling:
        return [(left, None, floor)], new_floor
    turn = _turn(left, right, lambda x: _gain(curves, own[first], x) > 0)  # its lowest point
    lowest = at(first, turn)
    return [(left, first, 0.0), (turn, None, lowest)], min(new_floor, lowest)


def _gain(curves: Curves, curve: int, budget: float) -> float:
    return float(curves.gain(np.array([curve]), np.array([budget]))[0])


def _turn(left: float, right: float, before: Callable[[float], bool]) -> float:
    """Return the budget at which `before` becomes false, by bisection."""
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        left, right = (middle, right) if before(middle) else (left, middle)
    return right

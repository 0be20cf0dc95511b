"""Pieces: ranges of budget on which a unit's loss is convex, or concave.

A unit is what the firm pays for once: a single experiment, or a group. A convex piece has its minimum
where its gain equals the price, a concave one at an end, so the global minimum is the best of a few
candidates. Inflections are found where the sampled gain turns, and refined. A missed turn would be
smaller than the spacing of the samples, and tests compare with dense grids.

A group is experiments that share a cap, because a visitor enters at most one of them. It costs its
largest budget, so every member may use any budget up to the cap. The group's loss, a function of the
cap, sums the members' smallest bounds at or below it. It is divided into cells in which each member
follows one curve, or rests at a budget that a larger cap does not improve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import BoolArray, Curves, IntArray, TableCurves
from deniable.portfolio.initial_price import SampledLosses

Formula = Callable[[IntArray, FloatArray], FloatArray]

SAMPLES = 33
"""Number of gains sampled in each cell to find its inflections."""

_INSIDE = 1e-8  # gains may jump at an end, so they are evaluated this share of the width inside
_ZOOMS, _ZOOM_POINTS = 6, 10  # to 1e-4 of the samples' spacing: an inflection errs in third order


@dataclass(frozen=True)
class Cells:
    """Ranges [left, right] of a unit on which one sum of curves applies.

    The loss is `offset` plus the regret of the curves term_curve[start:stop] of the cell.
    """

    unit: IntArray
    left: FloatArray
    right: FloatArray
    offset: FloatArray
    start: IntArray
    stop: IntArray
    term_curve: IntArray

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.unit.size


class Losses:
    """Evaluates cells: the loss, or its gain (minus the slope), at given budgets.

    Losses are relative to the smallest budget: a small saving is not the difference of large sums.

    Attributes:
        curves, cells: what is evaluated.
        base: loss of each unit at its smallest budget.
        budget, sampled_gain: budgets inside each cell and the gain there, shape (cells, SAMPLES).
    """

    def __init__(self, curves: Curves, cells: Cells) -> None:
        """Sample the gain of every cell; what is cut and solved later starts from the samples."""
        self.curves, self.cells = curves, cells
        self._single = bool((cells.stop - cells.start == 1).all())
        self.base = self._at_least_budget()
        samples = 2 if isinstance(curves, TableCurves) else SAMPLES
        spread = np.clip((1 - np.cos(np.linspace(0, np.pi, samples))) / 2, _INSIDE, 1 - _INSIDE)
        self.budget = cells.left[:, None] + (cells.right - cells.left)[:, None] * spread
        each = np.repeat(np.arange(cells.size), samples)
        self.sampled_gain = self.gain(each, self.budget.ravel()).reshape(self.budget.shape)

    def value(self, cell: IntArray, budget: FloatArray) -> FloatArray:
        """Return the loss in each cell at its budget, minus the unit's loss at its smallest budget."""
        return self._whole(cell, budget) - self.base[self.cells.unit[cell]]

    def gain(self, cell: IntArray, budget: FloatArray) -> FloatArray:
        """Return what one more nat saves in each cell at its budget."""
        return self._sum(self.curves.gain, cell, budget)

    def _at_least_budget(self) -> FloatArray:
        cells = self.cells
        units = int(cells.unit.max()) + 1
        least, base = np.full(units, np.inf), np.full(units, np.inf)
        np.minimum.at(least, cells.unit, cells.left)
        first = np.flatnonzero(cells.left <= least[cells.unit])
        np.minimum.at(base, cells.unit[first], self._whole(first, cells.left[first]))
        return base

    def _whole(self, cell: IntArray, budget: FloatArray) -> FloatArray:
        return self.cells.offset[cell] + self._sum(self.curves.regret, cell, budget)

    def _sum(self, formula: Formula, cell: IntArray, budget: FloatArray) -> FloatArray:
        cells = self.cells
        if self._single:
            return formula(cells.term_curve[cells.start[cell]], budget)
        counts = cells.stop[cell] - cells.start[cell]
        row = np.repeat(np.arange(cell.size), counts)
        within = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
        terms = formula(cells.term_curve[cells.start[cell][row] + within], budget[row])
        return np.bincount(row, weights=terms, minlength=cell.size).astype(np.float64)


@dataclass(frozen=True)
class Pieces:
    """Convex and concave pieces, sorted by unit.

    Attributes:
        unit, cell: the unit, and the cell that evaluates the piece.
        left, right: its ends in nats.
        convex: whether it is convex.
        left_value, right_value: the loss at its ends.
        left_gain, right_gain: the gain just inside its ends.
        first: index of each unit's first piece.
    """

    unit: IntArray
    cell: IntArray
    left: FloatArray
    right: FloatArray
    convex: BoolArray
    left_value: FloatArray
    right_value: FloatArray
    left_gain: FloatArray
    right_gain: FloatArray
    first: IntArray

    @property
    def size(self) -> int:
        """Number of pieces."""
        return self.unit.size

    @cached_property
    def counts(self) -> IntArray:
        """Number of pieces of each unit; needed at every price."""
        return np.diff(np.append(self.first, self.size))

    def chosen(self, which: BoolArray | IntArray) -> Pieces:
        """Return some of the pieces, in order."""
        unit = self.unit[which]
        return Pieces(
            *(unit, self.cell[which], self.left[which], self.right[which], self.convex[which]),
            *(self.left_value[which], self.right_value[which]),
            *(self.left_gain[which], self.right_gain[which]),
            np.flatnonzero(np.append(True, unit[1:] != unit[:-1])),
        )


def cells_of_loners(curves: Curves, chosen: IntArray, unit: IntArray) -> Cells:
    """Return cells of single curves, cut at their kinks; for tables only where the gain falls.

    Args:
        curves: all curves.
        chosen: the curves to cut.
        unit: the unit of each chosen curve.
    """
    edges = np.concatenate(
        [curves.low[chosen, None], curves.kinks()[chosen], curves.high[chosen, None]], axis=1
    )
    edges = np.where(np.isnan(edges), edges[:, :1], edges)
    edges = np.sort(np.clip(edges, edges[:, :1], edges[:, -1:]), axis=1)
    if isinstance(curves, TableCurves):
        edges = _joined(curves, chosen, edges)
    row, column = np.nonzero(edges[:, 1:] - edges[:, :-1] > 1e-12)
    points = np.nonzero(edges[:, -1] - edges[:, 0] <= 1e-12)[0]  # a single possible budget
    row, column = np.append(row, points), np.append(column, np.zeros_like(points))
    right = np.where(np.arange(row.size) < row.size - points.size, edges[row, column + 1], 0.0)
    right[row.size - points.size :] = edges[points, 0]
    index = np.arange(row.size)
    return Cells(
        unit[row], edges[row, column], right, np.zeros(row.size), index, index + 1, chosen[row]
    )


def _joined(curves: TableCurves, chosen: IntArray, edges: FloatArray) -> FloatArray:
    """Remove edges at which the gain rises: the loss is concave there, so they are never optimal."""
    inner = edges[:, 1:-1]
    each = np.repeat(chosen, inner.shape[1])
    shift = 1e-9  # smaller than any distance between knots
    before = curves.gain(each, np.maximum(inner - shift, 0.0).ravel()).reshape(inner.shape)
    after = curves.gain(each, inner.ravel()).reshape(inner.shape)
    kept = np.where(after > before, edges[:, :1], inner)
    return np.sort(np.concatenate([edges[:, :1], kept, edges[:, -1:]], axis=1), axis=1)


def join_cells(parts: list[Cells]) -> Cells:
    """Concatenate cells."""
    shift = np.cumsum([0, *(part.term_curve.size for part in parts)])
    pairs = list(zip(parts, shift, strict=False))
    return Cells(
        np.concatenate([part.unit for part in parts]),
        np.concatenate([part.left for part in parts]),
        np.concatenate([part.right for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.start + by for part, by in pairs]),
        np.concatenate([part.stop + by for part, by in pairs]),
        np.concatenate([part.term_curve for part in parts]),
    )


def cut_into_pieces(losses: Losses) -> tuple[Pieces, SampledLosses]:
    """Return the pieces of all cells, and the losses at the samples used for cutting."""
    cells = losses.cells
    cell = np.arange(cells.size)
    left, right = cells.left, cells.right
    budget, gain = losses.budget, losses.sampled_gain
    if isinstance(losses.curves, TableCurves):  # cells are linear or concave
        pieces = make_pieces(losses, cell, left, right, gain[:, -1] <= gain[:, 0])
        return pieces, SampledLosses.of(cells.unit, left, losses.value(cell, left), budget, gain)
    rising = _rising(gain)
    row, turn = np.nonzero(rising[:, 1:] != rising[:, :-1])
    cut = _refine(losses, cell[row], budget[row, turn], budget[row, turn + 2], rising[row, turn])
    pieces = _assemble(losses, cell, left, right, row, cut, rising)
    return pieces, SampledLosses.of(cells.unit, left, losses.value(cell, left), budget, gain)


def make_pieces(
    losses: Losses, cell: IntArray, left: FloatArray, right: FloatArray, convex: BoolArray
) -> Pieces:
    """Build pieces from their ends, computing values and gains and sorting by unit."""
    order = np.lexsort((left, cell, losses.cells.unit[cell]))
    cell, left, right, convex = cell[order], left[order], right[order], convex[order]
    inside = _INSIDE * (right - left)
    both = np.concatenate([cell, cell])
    value = losses.value(both, np.concatenate([left, right]))
    gain = losses.gain(both, np.concatenate([left + inside, right - inside]))
    unit = losses.cells.unit[cell]
    half = cell.size
    first = np.flatnonzero(np.append(True, unit[1:] != unit[:-1]))
    return Pieces(
        *(unit, cell, left, right, convex),
        *(value[:half], value[half:], gain[:half], gain[half:], first),
    )


def clip_pieces(
    losses: Losses,
    pieces: Pieces,
    units: IntArray,
    low: FloatArray,
    high: FloatArray,
    allowed: BoolArray | None = None,
) -> tuple[Pieces, IntArray]:
    """Return the pieces of some units within narrower ends, and the index of each in the original.

    Args:
        losses: evaluates the pieces.
        pieces: all pieces.
        units: the requested units, in order.
        low: the narrower left end of each unit.
        high: the narrower right end.
        allowed: a mask of the pieces that may be used; all by default.
    """
    counts = pieces.counts[units]
    which = np.repeat(np.arange(units.size), counts)
    within = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
    index = pieces.first[units][which] + within
    left = np.clip(pieces.left[index], low[which], high[which])
    right = np.clip(pieces.right[index], low[which], high[which])
    # A piece outside the ends has shrunk to a point at one of them, which may not belong to it.
    touches = (pieces.left[index] <= high[which]) & (pieces.right[index] >= low[which])
    if allowed is not None:
        touches &= allowed[index]
    index, left, right = index[touches], left[touches], right[touches]
    clipped = make_pieces(losses, pieces.cell[index], left, right, pieces.convex[index])
    return clipped, index


def _rising(gain: FloatArray) -> BoolArray:
    """Whether the gain rises (the loss is concave) between samples; noise is smoothed over."""
    step = np.diff(gain, axis=1)
    noise = 1e-11 * np.abs(gain).max(axis=1, keepdims=True)
    clear = np.abs(step) > noise
    index = np.where(clear, np.arange(step.shape[1]), 0)
    last_clear = np.maximum.accumulate(index, axis=1)
    first_clear = np.argmax(clear, axis=1)[:, None]
    last_clear = np.where(np.arange(step.shape[1]) < first_clear, first_clear, last_clear)
    return np.take_along_axis(step > noise, last_clear, axis=1)


def _refine(
    losses: Losses, cell: IntArray, left: FloatArray, right: FloatArray, peak: BoolArray
) -> FloatArray:
    """Find the gain's maximum (where it stops rising) or minimum between two samples, by zooming in."""
    sign = np.where(peak, 1.0, -1.0)[:, None]
    low, high = left, right
    rows = np.arange(cell.size)
    for _ in range(_ZOOMS if cell.size else 0):
        x = np.linspace(low, high, _ZOOM_POINTS, axis=1)
        gain = losses.gain(np.repeat(cell, _ZOOM_POINTS), x.ravel()).reshape(x.shape)
        top = np.clip((sign * gain).argmax(axis=1), 1, _ZOOM_POINTS - 2)
        low, high = x[rows, top - 1], x[rows, top + 1]
    return (low + high) / 2


def _assemble(
    losses: Losses,
    cell: IntArray,
    left: FloatArray,
    right: FloatArray,
    row: IntArray,
    cut: FloatArray,
    rising: BoolArray,
) -> Pieces:
    # Edges of every cell in order: its left end, then its cuts. A piece extends to the next edge.
    index = np.concatenate([np.arange(cell.size), row])
    edge = np.concatenate([left, cut])
    order = np.lexsort((edge, index))
    index, edge = index[order], edge[order]
    last = np.append(index[1:] != index[:-1], True)
    end = np.where(last, right[index], np.append(edge[1:], 0.0))
    number = np.arange(index.size) - np.flatnonzero(np.append(True, index[1:] != index[:-1]))[index]
    concave = rising[index, 0] ^ (number % 2 == 1)  # shapes alternate from cut to cut
    return make_pieces(losses, cell[index], edge, end, ~concave)


# -- cells of a group ------------------------------------------------------------------------------

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

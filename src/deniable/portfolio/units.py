"""Units: what the firm divides its budget among, each with its loss as a function of the budget.

A unit is one experiment, or a layer whose experiments share no visitor and so cost only their
largest budget. A unit's loss at a budget is the least that its experiments can reach with it: each
takes its best allowed strategy, and leaves unspent what would not help. So it never rises.

`Cells` tabulates the losses. Between two budgets of the table it stores the least and the most that
a nat saves there, so that the table bounds the loss from below everywhere, not only at its budgets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.portfolio.curves import Curves, IntArray
from deniable.portfolio.problem import NanoArray, Portfolio

CELLS = 64
"""Cells of equal width with which a unit is tabulated at first."""
_REST_SAMPLES = 257
_HALVINGS = 50
_INSIDE = 2e-9
"""Nats: gains are evaluated just inside of a cell, because they may jump at its ends. Curves end at
the nano-nat after their best budget.
"""


@dataclass(frozen=True)
class Cells:
    """Stretches of budgets, sorted by unit and budget, and the loss of the unit on them.

    Attributes:
        unit: index of the unit.
        left, right: the ends, in nats.
        at_left, at_right: the loss at the ends, relative to that at the unit's least budget.
        least, most: bounds of what a nat saves anywhere in between, from 0 to infinity.
    """

    unit: IntArray
    left: FloatArray
    right: FloatArray
    at_left: FloatArray
    at_right: FloatArray
    least: FloatArray
    most: FloatArray

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.unit.size

    @property
    def first(self) -> IntArray:
        """Index of the first cell of every unit."""
        return np.flatnonzero(np.append(True, np.diff(self.unit) != 0))

    @property
    def slope(self) -> FloatArray:
        """What a nat saves on average."""
        return np.asarray((self.at_left - self.at_right) / (self.right - self.left))

    def lowest(self, price: float) -> FloatArray:
        """Return a lower bound of loss + price * budget on every cell.

        The loss lies above a line from the left end that falls by `most`, and above a line from the
        right end that climbs by `least`; the bound is where they meet, or at an end.
        """
        width = self.right - self.left
        at_left = self.at_left + price * self.left
        at_right = self.at_right + price * self.right
        falls, climbs = np.maximum(self.most - price, 0.0), np.maximum(price - self.least, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (at_left - at_right + climbs * width) / (falls + climbs)
            inside = at_right - climbs * (width - np.clip(meet, 0.0, width))
        interior = (falls > 0) & (climbs > 0)
        return np.where(interior, inside, np.minimum(at_left, at_right))

    def at_ends(self, price: float) -> FloatArray:
        """Return the least loss + price * budget at the ends of every cell."""
        return np.minimum(self.at_left + price * self.left, self.at_right + price * self.right)

    def chosen(self, rows: IntArray) -> Cells:
        """Return some cells; `rows` must ascend."""
        return Cells(*(getattr(self, part.name)[rows] for part in fields(self)))

    def replaced(self, rows: IntArray, by: Cells) -> Cells:
        """Return all cells with others in place of those at `rows`."""
        kept = np.delete(np.arange(self.size), rows)
        columns = [
            np.concatenate([getattr(self, part.name)[kept], getattr(by, part.name)])
            for part in fields(self)
        ]
        order = np.lexsort((columns[1], columns[0]))
        return Cells(*(column[order] for column in columns))


class Units:
    """The units of a portfolio: single experiments in order, then layers.

    Attributes:
        low, high: the least budget of each, and the most that helps.
        base: loss at the least budget.
    """

    def __init__(self, portfolio: Portfolio, curves: Curves) -> None:
        """Find each unit's curves, and where a curve that rises had better rest."""
        self.portfolio, self.curves = portfolio, curves
        self.rows = [*portfolio.loners.reshape(-1, 1), *portfolio.members]
        of_experiment = np.empty(portfolio.size, dtype=np.int64)
        for unit, rows in enumerate(self.rows):
            of_experiment[rows] = unit
        of_curve = of_experiment[curves.experiment]
        self._curve = np.lexsort((curves.experiment, of_curve))
        self._experiment = curves.experiment[self._curve]
        self._count = np.bincount(of_curve, minlength=len(self.rows))
        self._start = np.cumsum(self._count) - self._count
        self._rest, self._rest_loss = self._rests()
        self._plain = bool((self._count == 1).all() and not self._rest.size)
        self.low = np.array([portfolio.low[rows].max() for rows in self.rows])
        high = np.maximum.reduceat(curves.high[self._curve], self._start)
        self.high = np.maximum(self.low, high)
        self.base = self.loss(np.arange(self.size), self.low)

    @property
    def size(self) -> int:
        """Number of units."""
        return len(self.rows)

    def loss(self, unit: IntArray, budget: FloatArray) -> FloatArray:
        """Return the least loss of each unit with at most its budget."""
        query, curve = self._expanded(unit)
        loss, _ = self._held(curve, budget[query])
        return self._summed(query, curve, loss)[0]

    def gain(self, unit: IntArray, budget: FloatArray) -> FloatArray:
        """Return what a nat saves at each unit's budget, between the ends of cells."""
        query, curve = self._expanded(unit)
        if self._plain:
            inside = budget < self.curves.high[curve]
            return np.where(inside, np.maximum(self.curves.gain(curve, budget), 0.0), 0.0)
        loss, used = self._held(curve, budget[query])
        rests = (used < budget[query]) | (used >= self.curves.high[curve])
        gain = np.where(rests, 0.0, self.curves.gain(curve, used))
        return np.maximum(self._summed(query, curve, loss, gain)[1], 0.0)

    @cached_property
    def least_cost(self) -> int:
        """Cost of all least budgets, in nano-nats."""
        return self.portfolio.cost(self.portfolio.min_nano)

    @cached_property
    def useful_cost(self) -> int:
        """Cost of all that helps, in nano-nats."""
        most = np.rint(self.high * NANO).astype(np.int64)
        return self.portfolio.cost(self.per_experiment(most)[0])

    @cached_property
    def table(self) -> Cells:
        """The cells of all units whose budget is not fixed."""
        curves = self.curves
        marks = np.concatenate(
            [curves.kinks(), curves.high[:, None], self._rest], axis=1
        )[self._curve]  # fmt: skip
        units, nodes = [], []
        for unit in np.flatnonzero(self.high > self.low):
            low, high = self.low[unit], self.high[unit]
            own = marks[self._start[unit] : self._start[unit] + self._count[unit]].ravel()
            own = own[(own > low) & (own < high)]
            points = np.unique(np.concatenate([np.linspace(low, high, CELLS + 1), own]))
            units.append(np.full(points.size - 1, unit))
            nodes.append(points)
        if not units:
            return self.measure(*(np.empty(0, dtype=kind) for kind in (np.int64, float, float)))
        left = np.concatenate([points[:-1] for points in nodes])
        right = np.concatenate([points[1:] for points in nodes])
        return self.measure(np.concatenate(units), left, right)

    def measure(self, unit: IntArray, left: FloatArray, right: FloatArray) -> Cells:
        """Return cells with these ends.

        Whether the loss is convex or concave is read from the gains at both ends and in the middle;
        a cell may hold one change from one to the other, at which the bounds are cautious.
        """
        base = self.base[unit]
        at_right = self.loss(unit, right) - base
        joined = (unit[1:] == unit[:-1]) & (left[1:] == right[:-1])
        starts = np.flatnonzero(np.append(True, ~joined)[: unit.size])
        at_left = np.concatenate([[0.0], at_right])[: unit.size]
        at_left[starts] = self.loss(unit[starts], left[starts]) - base[starts]
        inset = np.minimum(np.maximum(_INSIDE, 1e-6 * (right - left)), (right - left) / 4)
        inside = np.stack([left + inset, (left + right) / 2, right - inset], axis=1)
        gain = self.gain(np.repeat(unit, inside.shape[1]), inside.ravel()).reshape(inside.shape)
        before, middle, after = gain.T
        noise = 1e-12 * gain.max(axis=1, initial=0.0)
        falls = (middle <= before + noise) & (after <= middle + noise)
        rises = (middle >= before - noise) & (after >= middle - noise)
        peak = (middle > before + noise) & (after < middle - noise)
        slope = (at_left - at_right) / np.where(right > left, right - left, 1.0)
        # Convex: gains fall from end to end. Concave: the loss lies above its chord. A peak of the
        # gain is bounded from below by its ends only, and a trough from above.
        least = np.select([rises, falls, peak], [slope, after, np.minimum(before, after)], 0.0)
        most = np.select([rises, falls, peak], [slope, before, np.inf], np.maximum(before, after))
        # The saving of a whole cell lies between its bounds, whatever rounding says.
        least, most = np.minimum(least, slope), np.maximum(most, slope)
        return Cells(unit, left, right, at_left, at_right, np.maximum(least, 0.0), most)

    def split(self, cells: Cells, rows: IntArray, parts: int | IntArray) -> Cells:
        """Return all cells with those at `rows` cut into equal parts."""
        counts = np.broadcast_to(parts, rows.shape)
        cell = np.repeat(rows, counts)
        number = np.arange(cell.size) - np.repeat(np.cumsum(counts) - counts, counts)
        width = ((cells.right - cells.left)[rows] / counts).repeat(counts)
        left = cells.left[cell] + number * width
        inner = cells.left[cell] + (number + 1) * width
        right = np.where(number + 1 == counts.repeat(counts), cells.right[cell], inner)
        return cells.replaced(rows, self.measure(cells.unit[cell], left, right))

    def clipped(self, cells: Cells, most: FloatArray) -> Cells:
        """Return the cells up to a largest budget of each unit."""
        end = most[cells.unit]
        kept = cells.chosen(np.flatnonzero(cells.right <= end))
        cut = np.flatnonzero((cells.left < end) & (cells.right > end))
        if not cut.size:
            return kept
        ends = self.measure(cells.unit[cut], cells.left[cut], end[cut])
        return kept.replaced(np.empty(0, dtype=np.int64), ends)

    def per_experiment(self, caps: NanoArray) -> tuple[NanoArray, IntArray]:
        """Return each experiment's budget in nano-nats and its curve, from the units' budgets."""
        query, curve = self._expanded(np.arange(self.size))
        loss, used = self._held(curve, caps[query] / NANO)
        _, winner = self._least(query, curve, loss)
        experiment = self.curves.experiment[curve[winner]]
        least = self.portfolio.min_nano[experiment]
        whole = np.minimum(np.rint(used[winner] * NANO).astype(np.int64), caps[query[winner]])
        budgets, chosen = np.empty((2, self.portfolio.size), dtype=np.int64)
        budgets[experiment] = np.maximum(whole, least)
        chosen[experiment] = curve[winner]
        return budgets, chosen

    def _expanded(self, unit: IntArray) -> tuple[IntArray, IntArray]:
        """Return all pairs of a query (an entry of `unit`) and a curve of its unit."""
        counts = self._count[unit]
        query = np.repeat(np.arange(unit.size), counts)
        number = np.arange(query.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return query, self._curve[self._start[unit][query] + number]

    def _held(self, curve: IntArray, budget: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least loss of each curve with at most its budget, and what it uses of it."""
        used = np.minimum(budget, self.curves.high[curve])
        loss = self.curves.regret(curve, used)
        for rest, rest_loss in zip(self._rest.T, self._rest_loss.T, strict=True):
            better = (rest[curve] <= used) & (rest_loss[curve] <= loss)
            used, loss = (
                np.where(better, mine[curve], own)
                for mine, own in ((rest, used), (rest_loss, loss))
            )
        return loss, used

    def _least(
        self, query: IntArray, curve: IntArray, loss: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Return the first pair of each query's experiment, and the pair with the least loss."""
        experiment = self.curves.experiment[curve]
        new = (np.diff(query) != 0) | (np.diff(experiment) != 0)
        start = np.flatnonzero(np.append(True, new))[: query.size]
        if start.size == query.size:
            return start, start
        group = np.repeat(np.arange(start.size), np.diff(np.append(start, query.size)))
        return start, np.lexsort((loss, group))[start]

    def _summed(
        self, query: IntArray, curve: IntArray, loss: FloatArray, *more: FloatArray
    ) -> list[FloatArray]:
        """Sum values over the experiments of each query, each with its best curve."""
        _, winner = self._least(query, curve, loss)
        owner = query[winner]
        first = np.flatnonzero(np.append(True, np.diff(owner) != 0))[: owner.size]
        if first.size == owner.size:
            return [values[winner] for values in (loss, *more)]
        return [np.add.reduceat(values[winner], first) for values in (loss, *more)]

    def _rests(self) -> tuple[FloatArray, FloatArray]:
        """Return budgets at which a curve starts to rise, and the losses there, padded with NaN.

        With more budget than that, an experiment had better leave some unspent.
        """
        curves, count = self.curves, self.curves.experiment.size
        share = np.linspace(0, 1, _REST_SAMPLES)[:-1]
        share[0] = 1e-6
        grid = curves.low[:, None] + (curves.high - curves.low)[:, None] * share
        index = np.repeat(np.arange(count), share.size)
        gain = curves.gain(index, grid.ravel()).reshape(grid.shape)
        curve, place = np.nonzero((gain[:, :-1] > 0) & (gain[:, 1:] < 0))
        low, high = grid[curve, place], grid[curve, place + 1]
        for _ in range(_HALVINGS if curve.size else 0):
            middle = (low + high) / 2
            falls = curves.gain(curve, middle) > 0
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        rising = np.flatnonzero((gain[:, 0] < 0) & (curves.high > curves.low))  # from the first
        curve, low = np.append(curve, rising), np.append(low, curves.low[rising])
        order = np.argsort(curve, kind="stable")
        curve, low = curve[order], low[order]
        number = np.arange(curve.size) - np.searchsorted(curve, curve)
        rest, loss = np.full((2, count, int(number.max(initial=-1)) + 1), np.nan)
        rest[curve, number] = low
        loss[curve, number] = curves.regret(curve, low)
        return rest, loss

"""A rough solution on sampled budgets, to find a starting price for the search.

Losses between samples are sums of the sampled gains. Nothing is proven here, but a good first price
saves most of the exact responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray

if TYPE_CHECKING:
    from deniable.portfolio.pieces import Pieces

_HALVINGS = 26


@dataclass(frozen=True)
class SampledLosses:
    """Sampled budgets of each cell and the loss there, shape (cells, samples); cells by unit."""

    unit: IntArray
    budget: FloatArray
    loss: FloatArray

    @classmethod
    def of(
        cls,
        unit: IntArray,
        left: FloatArray,
        at_left: FloatArray,
        budget: FloatArray,
        gain: FloatArray,
    ) -> SampledLosses:
        """Build it from sampled gains by the trapezoidal rule, with the loss at each cell's left end."""
        budget = np.concatenate([left[:, None], budget[:, 1:]], axis=1)
        fall = np.diff(budget, axis=1) * (gain[:, 1:] + gain[:, :-1]) / 2
        loss = at_left[:, None] - np.concatenate(
            [np.zeros((unit.size, 1)), np.cumsum(fall, axis=1)], axis=1
        )
        order = np.argsort(unit, kind="stable")
        return cls(unit[order], budget[order], loss[order])

    def up_to(self, high: FloatArray, pieces: Pieces) -> SampledLosses:
        """Return the samples of units with narrower ends, including the ends of their pieces."""
        within = self.budget <= high[self.unit][:, None]
        ends = np.stack([pieces.left, pieces.right], axis=1)
        losses = np.stack([pieces.left_value, pieces.right_value], axis=1)
        wide = np.zeros(self.budget.shape[1], dtype=np.int64)
        wide[-1] = 1  # repeat the left end to the number of samples, then the right end
        unit = np.concatenate([self.unit, pieces.unit])
        order = np.argsort(unit, kind="stable")
        return SampledLosses(
            unit[order],
            np.concatenate([self.budget, ends[:, wide]])[order],
            np.concatenate([np.where(within, self.loss, np.inf), losses[:, wide]])[order],
        )

    def initial_price(self, available: float) -> float:
        """Return the approximate price at which demand equals the budget; 0 if everything fits."""
        first = np.flatnonzero(np.append(True, np.diff(self.unit) != 0))
        counts = np.diff(np.append(first, self.unit.size))

        def demand(price: float) -> float:
            value = self.loss + price * self.budget
            column = value.argmin(axis=1)
            rows = np.arange(self.unit.size)
            least = value[rows, column]
            winner = least <= np.repeat(np.minimum.reduceat(least, first), counts)
            budget = np.where(winner, self.budget[rows, column], np.inf)
            return float(np.minimum.reduceat(budget, first).sum())

        if demand(0.0) <= available:
            return 0.0
        high = 1.0
        while demand(high) > available * (1 + 1e-12) and high < 1e100:
            high *= 64
        low = high / 64 if high > 1 else 1e-12
        for _ in range(_HALVINGS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if demand(middle) > available else (low, middle)
        return high

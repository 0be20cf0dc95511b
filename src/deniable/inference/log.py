"""Converts the rows of an exported log to batches for `update`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference.state import VisitorBatch

LEAST_BATCH = 100


def batches_from_log(
    tables: ArrayLike,
    *,
    table: ArrayLike,
    segment: ArrayLike,
    arm: ArrayLike,
    reward: ArrayLike,
    growth: float = 0.2,
) -> list[VisitorBatch]:
    """Group consecutive rows served by one table into batches.

    A batch also ends when it reaches `growth` times the number of earlier rows, but has at least
    100 rows. As required, the ends depend only on tables and row numbers.

    Args:
        tables: probabilities of all tables, (tables, J, K).
        table: index of the table that served each row, in the order of the decisions.
        segment: index of each row's segment.
        arm: index of the shown arm.
        reward: settled reward in [0, 1].
        growth: largest batch as a share of the earlier rows.

    >>> batches = batches_from_log([[[0.5, 0.5]], [[0.8, 0.2]]], table=[0, 0, 0, 1],
    ...                            segment=[0, 0, 0, 0], arm=[0, 1, 1, 0], reward=[0, 1, 0, 1])
    >>> [(batch.shows.tolist(), batch.rewards.tolist()) for batch in batches]
    [([[1.0, 2.0]], [[0.0, 1.0]]), ([[1.0, 0.0]], [[1.0, 0.0]])]
    """
    rows = check.probability("tables", tables)
    if rows.ndim != 3:
        raise InvalidArgumentError("tables", rows.shape, "shape (tables, J, K)")
    n_tables, n_segments, n_arms = rows.shape
    which = _numbers("table", table, n_tables)
    where = _numbers("segment", segment, n_segments)
    shown = _numbers("arm", arm, n_arms)
    value = check.probability("reward", reward)
    if len({array.shape for array in (which, where, shown, value)}) > 1 or which.ndim != 1:
        raise InvalidArgumentError("reward", value.shape, "columns of one length")
    cell = where * n_arms + shown
    batches = []
    changes = [*(np.flatnonzero(np.diff(which)) + 1).tolist(), which.size]
    start = 0
    for change in changes:
        while start < change:
            end = min(change, start + max(LEAST_BATCH, int(growth * start)))
            at = slice(start, end)

            def summed(weights: FloatArray | None, at: slice = at) -> FloatArray:
                found = np.bincount(cell[at], weights, minlength=n_segments * n_arms)
                return found.reshape(n_segments, n_arms).astype(np.float64)

            mine = value[at]
            served = rows[which[start]]
            batches.append(VisitorBatch(served, summed(None), summed(mine), summed(mine * mine)))
            start = end
    return batches


def _numbers(argument: str, values: ArrayLike, end: int) -> NDArray[np.int64]:
    numbers = check.count(argument, values, 0)
    if (numbers >= end).any():
        raise InvalidArgumentError(argument, float(numbers.max()), f"numbers from 0 to {end - 1}")
    return numbers.astype(np.int64)

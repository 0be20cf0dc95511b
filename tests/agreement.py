"""Grids that reach the extremes, and one way to compare floats with 50-digit numbers.

The tolerance of 1e-13 is the tests' default; where a formula is worse conditioned, the test says so and
why. `agree` fails on NaN and infinity, so that it also proves finiteness.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from tests.oracle import mpf

ARMS = (2, 3, 5, 20, 100, 1000, 10_000)
BUDGETS = (1e-9, 1e-6, 1e-3, 0.05, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 300, 600, 700)
HORIZONS = (1, 2, 3, 10, 100, 10**4, 10**6, 10**9, 10**12)
SEGMENTS = (1, 2, 5, 20, 1000)

TINY = 5e-324
"""The smallest float above 0: a probability below it may come out as 0."""


def grid(*axes: Iterable[float]) -> list[tuple[Any, ...]]:
    """Every combination, as rows."""
    return list(product(*axes))


def columns(rows: list[tuple[Any, ...]]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """The rows' columns as arrays of floats."""
    return [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]


def errors(got: ArrayLike, want: Iterable[Any], scale: Iterable[Any] | None = None) -> list[float]:
    """|got - want| / scale, with the wanted value as the scale unless one is given."""
    wanted = list(want)
    found = np.ravel(np.asarray(got, dtype=np.float64)).tolist()
    assert len(found) == len(wanted)
    units = wanted if scale is None else list(scale)
    return [_error(g, w, u) for g, w, u in zip(found, wanted, units, strict=True)]


def _error(got: float, want: Any, unit: Any) -> float:
    if not np.isfinite(got):
        return float("inf")
    difference = abs(mpf(got) - want)
    return 0.0 if difference <= TINY else float(difference / abs(unit)) if unit else float("inf")


def agree(
    rows: list[tuple[Any, ...]],
    got: ArrayLike,
    want: Iterable[Any],
    tolerance: float = 1e-13,
    scale: Iterable[Any] | None = None,
) -> None:
    """Fail with the worst row unless every number is within the tolerance of its 50-digit twin."""
    found = errors(got, want, scale)
    worst = max(range(len(found)), key=found.__getitem__)
    assert found[worst] <= tolerance, f"off by {found[worst]:.2e} at {rows[worst]}"

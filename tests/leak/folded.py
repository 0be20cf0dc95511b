"""Sums of visitors by fold, drawn from known click rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deniable.analysis.worth import FOLDS, Folds


def folds_of(
    rng: np.random.Generator, rates: Any, visitors: int, shares: Sequence[float] | None = None
) -> Folds:
    """A log of an A/B/n test: arms equally often in every segment."""
    n_segments, n_arms = rates.shape
    weights = np.full(n_segments, 1 / n_segments) if shares is None else np.asarray(shares)
    chances = np.repeat(weights / n_arms / FOLDS, n_arms * FOLDS)
    shown = rng.multinomial(visitors, chances).reshape(n_segments, n_arms, FOLDS)
    clicks = rng.binomial(shown, rates[:, :, None])
    first = [np.moveaxis(part, 2, 0).astype(float) for part in (shown, clicks)]
    return Folds.estimated(first[0], first[1], first[1])


def log_of(
    fold: Any, segment: Any, arm: Any, reward: Any, drawn: Any, shape: tuple[int, int]
) -> Folds:
    """The sums of rows, one by one."""
    parts = np.zeros((8, FOLDS, *shape))
    for k, s, a, y, p in zip(fold, segment, arm, reward, drawn, strict=True):
        parts[:, k, s, a] += [1, y, y * y, 1 / p, y / p, 1 / p**2, y / p**2, y * y / p**2]
    return Folds(*parts)

"""The experiment that a plan is about, and what is expected of a strategy in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import Floats
from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import Expected, expected_loss
from deniable.expectations.prior import SEGMENTS, Prior
from deniable.strategies.base import Strategy


@dataclass(frozen=True)
class PlannedExperiment:
    """A validated experiment; hashable, for caching.

    Attributes:
        n_arms: K.
        horizon: T.
        n_segments: J.
        shares: shares of the segments; None for equal ones.
    """

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        n_arms: int,
        horizon: int,
        n_segments: int | None,
        shares: Sequence[float] | None,
    ) -> PlannedExperiment:
        """Validate the arguments, or raise InvalidArgumentError."""
        arms = check.whole("n_arms", n_arms, 2)
        visitors = check.whole("horizon", horizon, 1)
        segments = None if n_segments is None else check.whole("n_segments", n_segments, 1)
        if shares is None:
            return cls(arms, visitors, SEGMENTS if segments is None else segments)
        parts = check.probability("shares", shares)
        if parts.ndim != 1 or not np.isclose(parts.sum(), 1, rtol=0, atol=1e-9):
            raise InvalidArgumentError("shares", shares, "a share for each segment, adding up to 1")
        if segments not in (None, parts.size):
            raise InvalidArgumentError("shares", shares, f"{segments} shares, one for each segment")
        return cls(arms, visitors, parts.size, tuple(map(float, parts)))

    @property
    def equal_sizes(self) -> bool:
        """Whether all segments have the same size."""
        shares = self.shares
        return shares is None or np.allclose(shares, 1 / len(shares), rtol=1e-6, atol=0)

    @property
    def largest(self) -> int:
        """Visitors of the largest segment, at least one."""
        share = 1 / self.n_segments if self.shares is None else max(self.shares)
        return max(1, int(self.horizon * share))

    def regret(self, strategy: type[Strategy], budget: ArrayLike) -> Floats:
        """Return the strategy's bound."""
        return strategy.regret(
            self.n_arms, self.horizon, budget, self.n_segments, shares=self.shares
        )

    def expected(self, rate_prior: Prior, strategy: str, budgets: ArrayLike = 0.0) -> Expected:
        """Return the expected clicks of a strategy or rival, given a prior of the click rates."""
        return expected_loss(
            strategy,
            self.n_arms,
            self.horizon,
            self.n_segments,
            base_rate=rate_prior.base_rate,
            lift=rate_prior.lift,
            heterogeneity=rate_prior.heterogeneity,
            budgets=budgets,
            shares=self.shares,
        )

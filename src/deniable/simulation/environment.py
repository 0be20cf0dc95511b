"""An experiment's truth: click rates by arm and segment, who arrives, and how many."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.datasets.experiment import ExperimentData
from deniable.errors import InvalidArgumentError

LONGEST_HORIZON = 10**12


@dataclass(frozen=True, eq=False, init=False)
class Environment:
    """Bernoulli rewards that do not change over time.

    Attributes:
        rates: click rate of each arm (row) in each segment (column), (K, J).
        shares: probability that a visitor belongs to each segment, (J,).
        horizon: T, the visitors of the experiment.
        name: what it is called in results.
        arms: names of the arms.
        segments: names of the segments.

    >>> page = Environment([0.324, 0.295], horizon=10_000)
    >>> page.n_arms, page.n_segments, page.best_rate
    (2, 1, 0.324)
    """

    rates: FloatArray
    shares: FloatArray
    horizon: int
    name: str = "experiment"
    arms: tuple[str, ...] = field(default=())
    segments: tuple[str, ...] = field(default=())

    def __init__(
        self,
        rates: ArrayLike,
        horizon: int,
        shares: ArrayLike | None = None,
        *,
        name: str = "experiment",
        arms: tuple[str, ...] | None = None,
        segments: tuple[str, ...] | None = None,
    ) -> None:
        """Rates of shape (K,) mean one segment; shares default to equal ones."""
        table = check.probability("rates", rates)
        if table.ndim == 1:
            table = table[:, None]
        if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 1:
            raise InvalidArgumentError("rates", rates, "click rates of 2 or more arms, by segment")
        n_arms, n_segments = table.shape
        parts = np.full(n_segments, 1 / n_segments) if shares is None else _shares(shares)
        if parts.shape != (n_segments,):
            raise InvalidArgumentError(
                "shares", shares, f"one share for each of {n_segments} segments"
            )
        values: dict[str, object] = {
            "rates": _frozen(table),
            "shares": _frozen(parts),
            "horizon": check.whole("horizon", horizon, 1, LONGEST_HORIZON),
            "name": name,
            "arms": _names("arms", arms, n_arms),
            "segments": _names("segments", segments, n_segments),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @classmethod
    def of(cls, data: ExperimentData) -> Environment:
        """The environment in which an experiment's observed rates are the truth."""
        return cls(data.rates, data.visitors, name=data.name)

    @property
    def n_arms(self) -> int:
        """K."""
        return int(self.rates.shape[0])

    @property
    def n_segments(self) -> int:
        """J."""
        return int(self.rates.shape[1])

    @property
    def best_rate(self) -> float:
        """Clicks per visitor with perfect information."""
        return float(self.rates.max(axis=0) @ self.shares)

    @property
    def gaps(self) -> FloatArray:
        """Clicks lost by showing each arm, against the segment's best: (K, J)."""
        return np.asarray(self.rates.max(axis=0) - self.rates)


def _shares(shares: ArrayLike) -> FloatArray:
    parts = check.probability("shares", shares)
    if parts.ndim != 1 or abs(parts.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, "probabilities that sum to 1")
    return np.asarray(parts / parts.sum())


def _frozen(array: FloatArray) -> FloatArray:
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _names(argument: str, given: tuple[str, ...] | None, size: int) -> tuple[str, ...]:
    if given is None:
        return tuple(str(i) for i in range(size))
    names = tuple(str(name) for name in check.distinct(argument, given, size))
    if len(names) != size:
        raise InvalidArgumentError(argument, given, f"{size} names")
    return names

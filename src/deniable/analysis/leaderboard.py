"""The leaderboard of an experiment, from its counters alone: arms compared, clicks won and lost.

Visitors of different segments see the arms in different proportions, so an arm's plain click rate
flatters whichever arm is shown to eager segments. Arms are compared as if everybody had been shown
each of them: rates are taken by segment and weighted by the segments' visitors. That is also what
promoting an arm does. Rates are Beta posteriors; the prior is worth two visitors at the experiment's
average rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deniable._validation import FloatArray
from deniable.analysis.small_cells import visible_segments
from deniable.storage.records import Cell, Experiment

PRIOR_VISITORS = 2.0
DRAWS = 4_000
MOST_CELLS = 300
"""Cells of segments and arms that are drawn one by one."""


@dataclass(frozen=True)
class LeaderboardRow:
    """One arm against the others.

    Attributes:
        arm: its key.
        label: its name for people.
        active: whether it is on.
        shows: how often it was shown.
        clicks: clicks among them.
        rate: its click rate if everybody had been shown it, as estimated.
        low: 95% of the belief about that rate is above this...
        high: ...and below this.
        best_chance: probability that its rate is the largest of the arms that are on.
    """

    arm: str
    label: str
    active: bool
    shows: int
    clicks: int
    rate: float
    low: float
    high: float
    best_chance: float


class Leaderboard:
    """The counters of one experiment as arrays: a row for each segment, the last for unlisted ones.

    Args:
        experiment: whose.
        cells: as `counts` gives them, in declared order.
    """

    def __init__(self, experiment: Experiment, cells: Sequence[Cell]) -> None:
        self.experiment = experiment
        shape = (len(experiment.rows) + 1, len(experiment.arms))
        self.shows: FloatArray = np.array([c.shows for c in cells], dtype=float).reshape(shape)
        self.clicks: FloatArray = np.array([c.clicks for c in cells], dtype=float).reshape(shape)
        self._on = np.array([arm.active for arm in experiment.arms])

    @cached_property
    def visitors(self) -> int:
        """Everybody who was decided for."""
        return int(self.shows.sum())

    @cached_property
    def total_clicks(self) -> int:
        """All clicks."""
        return int(self.clicks.sum())

    @property
    def click_rate(self) -> float | None:
        """Clicks per visitor; None before the first."""
        return self.total_clicks / self.visitors if self.visitors else None

    @cached_property
    def visible(self) -> list[int]:
        """Positions of the segments whose figures may be shown."""
        return visible_segments(self.shows, self._on.tolist())

    @property
    def lost(self) -> float:
        """Estimated clicks lost so far against showing each segment its best arm from the start."""
        rates = self._rates()
        best = rates[:, self._on].max(axis=1, keepdims=True)
        return float((self.shows * np.maximum(best - rates, 0)).sum())

    @property
    def lost_at_random(self) -> float:
        """The same, had every visitor been shown a random arm."""
        rates = self._rates()[:, self._on]
        return float((self.shows.sum(axis=1) * (rates.max(axis=1) - rates.mean(axis=1))).sum())

    @property
    def random_clicks(self) -> float:
        """Estimated clicks that showing random arms to the same visitors would have brought."""
        rates = self._rates()[:, self._on]
        return float((self.shows.sum(axis=1) * rates.mean(axis=1)).sum())

    @property
    def gain_over_random(self) -> float | None:
        """Clicks won over random arms, as a share of theirs; None while there is too little."""
        if self.visitors < 100 or self.total_clicks < 10:
            return None
        return self.total_clicks / self.random_clicks - 1

    def rows(self) -> list[LeaderboardRow]:
        """The arms, best first."""
        posterior = self._drawn_rates()
        low, high = (_quantile(posterior, share) for share in (0.025, 0.975))
        contending = np.where(self._on, posterior, -1.0)
        winners = np.bincount(contending.argmax(axis=1), minlength=len(self._on)) / len(posterior)
        rates = posterior.mean(axis=0)
        found = [
            LeaderboardRow(
                arm.key,
                arm.label,
                arm.active,
                int(self.shows[:, i].sum()),
                int(self.clicks[:, i].sum()),
                float(rates[i]),
                float(low[i]),
                float(high[i]),
                float(winners[i]),
            )
            for i, arm in enumerate(self.experiment.arms)
        ]
        return sorted(found, key=lambda one: (-one.active, -one.best_chance, -one.rate))

    def _prior(self) -> tuple[float, float]:
        average = (self.total_clicks + 1) / (self.visitors + 2)
        return PRIOR_VISITORS * average, PRIOR_VISITORS * (1 - average)

    def _rates(self) -> FloatArray:
        """The posterior mean of every cell."""
        won, lost = self._prior()
        rates: FloatArray = (self.clicks + won) / (self.shows + won + lost)
        return rates

    def _drawn_rates(self) -> FloatArray:
        """Draws of each arm's rate over all visitors, shape (draws, K)."""
        weights = self.shows.sum(axis=1)
        if not weights.any():
            weights = np.append(np.ones(len(weights) - 1), 0.0)
        seen = weights > 0
        share = weights[seen] / weights.sum()
        won, lost = self._prior()
        successes = self.clicks[seen] + won
        failures = np.maximum(self.shows - self.clicks, 0)[seen] + lost
        # Seeded: a page that is loaded twice shows the same figures. Nothing here decides anything.
        rng = np.random.default_rng(2)
        if successes.size <= MOST_CELLS:
            cells = rng.beta(successes, failures, (DRAWS, *successes.shape))
            return np.asarray(np.einsum("s,dsk->dk", share, cells))
        # A sum over many segments is close to normal, and its two moments are exact.
        total = successes + failures
        mean = share @ (successes / total)
        variance = share**2 @ (successes * failures / (total**2 * (total + 1)))
        drawn = rng.normal(mean, np.sqrt(variance), (DRAWS, len(mean)))
        return np.asarray(np.clip(drawn, 0, 1))


def _quantile(drawn: FloatArray, share: float) -> FloatArray:
    """As np.quantile over the first axis, which imports masked arrays: the first page would wait.

    >>> _quantile(np.array([[4.0], [1.0], [2.0]]), 0.75).tolist()
    [3.0]
    """
    ordered = np.sort(drawn, axis=0)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return np.asarray(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

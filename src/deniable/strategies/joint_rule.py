"""The joint strategy: from counts to the next table, as pure functions that an auditor can replay.

`joint_model` says what counts tell about click rates, and `joint_kernel` makes the table of it. A floor
of ``keep`` times the dynamic strategy's exploration leaves every arm estimable; it vanishes with time.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_kernel import Counts, Setup, Tuning, write_joint
from deniable.strategies.joint_lp import lowest_ratio, workspace
from deniable.strategies.rules import LARGEST

TUNING = Tuning(
    samples=8.0,
    curiosity=0.6,
    own_curiosity=0.35,
    keep=0.05,
    doubt_rising=2.0,
    doubt=2.0,
    wary_draws=0.0,
    dynamic_part=1.0,
    lean=0.0,
    whole_clock=0.0,
)
"""Chosen on the tuning settings of research/joint.md."""

MOST_ARMS = 20
"""The constants for few arms were chosen with up to this many; those of TUNING did better with the 80
items of Open Bandit.
"""

FULL_DOUBT = 0.3
"""Doubt is full where the budget lets the dynamic strategy exploit this much or more: randomized
response shows the best arm with this probability beyond chance. Below, little can be lost by it."""

KEEP = TUNING.keep

Kind = Literal["joint", "pooled"]


def joint_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    keep: float = KEEP,
) -> FloatArray:
    """The next table, P(arm | segment) as (J, K).

    Args:
        shows: visitors by segment and shown arm so far, (J, K).
        clicks: clicks among them, (J, K).
        horizon: T, the visitors expected in all; None, or fewer than there were, for open-ended.
        budget: g.
        keep: the floor's part of the dynamic strategy's exploration.

    >>> shows = [[5000, 5000], [5000, 5000]]
    >>> joint_table(shows, [[1620, 1475], [1475, 1620]], 10**6, 1).round(2).tolist()
    [[0.73, 0.27], [0.27, 0.73]]
    >>> joint_table(shows, [[1620, 1475], [1620, 1475]], 10**6, 1).round(2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    counts = _counts(shows, clicks)
    return _maker("joint", counts, horizon, budget, keep).joint(counts).T


def pooled_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    *,
    keep: float = KEEP,
) -> FloatArray:
    """The next table of one bandit for everybody: the same row for every segment, risk 0.

    >>> shows, clicks = [[500, 500], [500, 500]], [[60, 50], [70, 40]]
    >>> pooled_table(shows, clicks, 10_000).round(2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    counts = _counts(shows, clicks)
    return _maker("pooled", counts, horizon, 0, keep).pooled(counts).T


def first_epoch(n_arms: int, n_segments: int) -> int:
    """Visitors, at least, that everything is learned from; before, all arms are equally likely.

    >>> first_epoch(8, 5)
    80
    """
    return max(2 * n_arms * n_segments, 16)


class TableMaker:
    """Makes one experiment's tables from counts that were checked: for the simulator.

    Counts inside, and the tables of `joint` and `pooled`, have arms first, as the kernel needs.
    """

    def __init__(
        self,
        kind: Kind,
        n_arms: int,
        n_segments: int,
        horizon: float,
        budget: float,
        tuning: Tuning = TUNING,
    ) -> None:
        self.budget = budget
        self._kind = kind
        one_row = kind == "pooled" or not budget
        if n_segments > 1 and not one_row:
            tuning = _tuned(tuning, n_arms, n_segments)
        weakest = lowest_ratio(budget, n_arms)
        exploited = (1 - weakest[0]) / (1 + (n_arms - 1) * weakest[0])
        z = min(1.0, float(exploited) / FULL_DOUBT)
        self._setup = Setup(
            float(horizon),
            weakest,
            tuning._replace(doubt_rising=tuning.doubt_rising * z**2, doubt=tuning.doubt * z**2),
            workspace(n_arms, 1 if one_row else n_segments),
        )

    def next_table(self, shows: ArrayLike, clicks: ArrayLike) -> FloatArray:
        """The next table, (J, K)."""
        counts = _arms_first(np.asarray(shows), np.asarray(clicks))
        n_arms, n_segments = counts.shows.shape
        if counts.shows.sum() < first_epoch(n_arms, n_segments):
            return np.full((n_segments, n_arms), 1 / n_arms)
        return (self.pooled(counts) if self._kind == "pooled" else self.joint(counts)).T

    def joint(self, counts: Counts) -> FloatArray:
        """The joint rule's table; at budget 0, where all have the same row, that of one bandit."""
        if not self.budget and counts.shows.shape[1] > 1:
            return self.pooled(counts)
        table = np.empty(counts.shows.shape)
        write_joint(counts, self._setup, table)
        return table

    def pooled(self, counts: Counts) -> FloatArray:
        """The joint rule for all segments merged into one."""
        seen = counts.shows.sum(axis=1, keepdims=True)
        clicks = counts.clicks.sum(axis=1, keepdims=True)
        row = self.joint(Counts(seen, clicks))
        return np.repeat(row, counts.shows.shape[1], axis=1)


def _tuned(tuning: Tuning, n_arms: int, n_segments: int) -> Tuning:
    """The constants for so many arms and segments."""
    if 2 < n_arms <= MOST_ARMS:
        # With many arms the dynamic table spends most of its visitors on arms that nobody needs.
        return tuning._replace(
            own_curiosity=0.5,
            wary_draws=4.0,
            dynamic_part=2 / n_arms,
            lean=1.0,
            whole_clock=1.0,
        )
    if n_arms == 2:
        # That many segments agree is hardly ever chance.
        return tuning._replace(doubt=2 * tuning.doubt / n_segments, lean=1.0, whole_clock=1.0)
    return tuning


def _maker(
    kind: Kind,
    counts: Counts,
    horizon: float | None,
    budget: float,
    keep: float,
) -> TableMaker:
    told = 0.0 if horizon is None else float(check.whole("horizon", horizon, 1))
    risk = check.single("budget", check.nonnegative("budget", budget))
    floor = check.single("keep", check.probability("keep", keep))
    n_arms, n_segments = counts.shows.shape
    return TableMaker(kind, n_arms, n_segments, told, risk, TUNING._replace(keep=floor))


def _counts(shows: ArrayLike, clicks: ArrayLike) -> Counts:
    seen = check.nonnegative("shows", shows)
    clicked = check.nonnegative("clicks", clicks)
    if seen.ndim != 2 or not 1 <= seen.shape[0] <= LARGEST or not 2 <= seen.shape[1] <= LARGEST:
        allowed = f"1 to {LARGEST} segments by 2 to {LARGEST} arms"
        raise InvalidArgumentError("shows", seen.shape, allowed)
    if clicked.shape != seen.shape or (clicked > seen).any():
        raise InvalidArgumentError("clicks", clicked.shape, "at most as many clicks as shows")
    return _arms_first(seen, clicked)


def _arms_first(shows: FloatArray, clicks: FloatArray) -> Counts:
    """Return the counts as the kernel, which prices one arm after the other, needs them."""
    return Counts(*(np.ascontiguousarray(part.T, np.float64) for part in (shows, clicks)))

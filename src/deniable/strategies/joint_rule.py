"""The joint strategy: from counts to the next table, as pure functions that an auditor can replay.

`joint_model` says what counts tell about click rates, `joint_kernel` makes the table of it, and
`joint_across` the tables that keep the promise across time too. A floor of ``keep`` times the dynamic
strategy's exploration leaves every arm estimable; it vanishes with time.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_across import floors_now, write_inside, write_lottery
from deniable.strategies.joint_kernel import Counts, Setup, Tuning, write_joint
from deniable.strategies.joint_lp import lowest_ratio, workspace
from deniable.strategies.rules import LARGEST

TUNING = Tuning(
    samples=8.0,
    curiosity=0.3,
    own_curiosity=0.7,
    keep=0.05,
    doubt_rising=2.0,
    doubt=2.0,
    wary_draws=0.0,
    dynamic_part=1.0,
    lean=0.0,
    whole_clock=0.0,
)
"""Chosen on the tuning settings of docs/joint.md."""

RULE = 3
"""Number of the rule, stored with every table. Rule 1 made tables for any number of arms as all rules
do for more than MOST_ARMS; rule 2 changed those of 3 to MOST_ARMS arms, rule 3 those of two.
"""

MOST_ARMS = 20
"""Rules 2 and 3 were chosen and judged with up to this many arms. Rule 1 did better with the 80 items of
Open Bandit.
"""

FULL_DOUBT = 0.3
"""Doubt is full where the budget lets the dynamic strategy exploit this much or more: randomized
response shows the best arm with this probability beyond chance. Below, little can be lost by it."""

KEEP = TUNING.keep

Kind = Literal["joint", "across-time", "pooled"]


def joint_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
    floors: ArrayLike | None = None,
    rule: int | None = None,
) -> FloatArray:
    """The next table, P(arm | segment) as (K, J).

    Args:
        shows: visitors by shown arm and segment so far, (K, J).
        clicks: clicks among them, (K, J).
        horizon: T, the visitors expected in all; None, or fewer than there were, for open-ended.
        budget: g.
        keep: the floor's part of the dynamic strategy's exploration; not used with `floors`.
        noise: variance that a trace budget adds to each cell's click rate, (K, J).
        floors: the promise across time: every entry of arm a lies in [l_a, e^g l_a], (K,).
        rule: number of the rule; None for the current one, 1 for earlier tables.

    >>> shows = [[5000, 5000], [5000, 5000]]
    >>> joint_table(shows, [[1620, 1475], [1475, 1620]], 10**6, 1).round(2).tolist()
    [[0.73, 0.27], [0.27, 0.73]]
    >>> joint_table(shows, [[1620, 1620], [1475, 1475]], 10**6, 1).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    counts = _counts(shows, clicks, noise)
    kind: Kind = "joint" if floors is None else "across-time"
    maker = _maker(kind, counts, horizon, budget, keep, RULE if rule is None else rule)
    if floors is None:
        return maker.joint(counts)
    return maker.inside(counts, _floors(floors, len(counts.shows), maker.budget))


def pooled_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
) -> FloatArray:
    """The next table of one bandit for everybody: the same column for every segment, risk 0.

    >>> shows, clicks = [[500, 500], [500, 500]], [[60, 70], [50, 40]]
    >>> pooled_table(shows, clicks, 10_000).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    counts = _counts(shows, clicks, noise)
    return _maker("pooled", counts, horizon, 0, keep).pooled(counts)


def lottery_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
) -> FloatArray:
    """Across time, the next table before the switch: the same column for every segment.

    >>> lottery_table([[50, 50], [50, 50]], [[10, 3], [4, 6]], 1000, 1).round(2).tolist()
    [[0.93, 0.93], [0.07, 0.07]]
    """
    counts = _counts(shows, clicks, noise)
    return _maker("across-time", counts, horizon, budget, keep).lottery(counts)


def switch_floors(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    noise: ArrayLike | None = None,
) -> FloatArray | None:
    """Across time, the floors l_a for life if the counts say that it is time to switch; else None.

    An arm with floor 0 is never shown again.

    >>> shows = [[500, 500], [500, 500]]
    >>> switch_floors(shows, [[50, 30], [30, 50]], 10_000, 1).round(2).tolist()
    [0.27, 0.27]
    >>> switch_floors(shows, [[41, 39], [39, 41]], 10_000_000, 1) is None
    True
    """
    counts = _counts(shows, clicks, noise)
    return _maker("across-time", counts, horizon, budget, KEEP).switch(counts)


def first_epoch(n_arms: int, n_segments: int) -> int:
    """Visitors, at least, that everything is learned from; before, all arms are equally likely.

    >>> first_epoch(8, 5)
    80
    """
    return max(2 * n_arms * n_segments, 16)


class TableMaker:
    """Makes one experiment's tables from counts that were checked: for the simulator.

    Shows, clicks and the variance that noise adds to click rates are (K, J), contiguous floats.
    """

    def __init__(
        self,
        kind: Kind,
        n_arms: int,
        n_segments: int,
        horizon: float,
        budget: float,
        tuning: Tuning = TUNING,
        rule: int = RULE,
    ) -> None:
        self.budget = budget
        self._kind = kind
        one_row = kind == "pooled" or (kind == "joint" and not budget)
        if kind == "joint" and n_segments > 1 and not one_row:
            tuning = _tuned(tuning, rule, n_arms, n_segments)
        weakest = lowest_ratio(budget, n_arms)
        exploited = (1 - weakest[0]) / (1 + (n_arms - 1) * weakest[0])
        z = min(1.0, float(exploited) / FULL_DOUBT)
        self._setup = Setup(
            float(horizon),
            weakest,
            tuning._replace(doubt_rising=tuning.doubt_rising * z**2, doubt=tuning.doubt * z**2),
            workspace(n_arms, 1 if one_row else n_segments),
        )
        self._floors: FloatArray | None = None

    def next_table(self, shows: FloatArray, clicks: FloatArray, noise: FloatArray) -> FloatArray:
        """The next table; across time, the switch is remembered."""
        counts = Counts(shows, clicks, noise)
        if shows.sum() < first_epoch(*shows.shape):
            return np.full(shows.shape, 1 / len(shows))
        if self._kind == "pooled":
            return self.pooled(counts)
        if self._kind == "joint":
            return self.joint(counts)
        if self._floors is None:
            self._floors = self.switch(counts)
        return self.lottery(counts) if self._floors is None else self.inside(counts, self._floors)

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
        extra = (counts.noise * counts.shows**2).sum(axis=1, keepdims=True)
        clicks = counts.clicks.sum(axis=1, keepdims=True)
        row = self.joint(Counts(seen, clicks, extra / np.maximum(seen, 1) ** 2))
        return np.repeat(row, counts.shows.shape[1], axis=1)

    def lottery(self, counts: Counts) -> FloatArray:
        """Across time before the switch: one row for everybody."""
        table = np.empty(counts.shows.shape)
        write_lottery(counts, self._setup, table)
        return table

    def switch(self, counts: Counts) -> FloatArray | None:
        """Across time, the floors for life if it is time for them."""
        floors = np.empty(len(counts.shows))
        return floors if floors_now(counts, self._setup, floors) else None

    def inside(self, counts: Counts, floors: FloatArray) -> FloatArray:
        """Across time after the switch: a table inside the band."""
        table = np.empty(counts.shows.shape)
        write_inside(counts, self._setup, floors, table)
        return table


def _tuned(tuning: Tuning, rule: int, n_arms: int, n_segments: int) -> Tuning:
    """The constants of a rule for so many arms and segments."""
    if rule > 1 and 2 < n_arms <= MOST_ARMS:
        # With many arms the dynamic table spends most of its visitors on arms that nobody needs.
        return tuning._replace(
            own_curiosity=1.0,
            wary_draws=4.0,
            dynamic_part=2 / n_arms,
            lean=1.0,
            whole_clock=1.0,
        )
    if rule > 2 and n_arms == 2:
        # That many segments agree is hardly ever chance.
        return tuning._replace(doubt=2 * tuning.doubt / n_segments, lean=1.0, whole_clock=1.0)
    return tuning


def _maker(
    kind: Kind,
    counts: Counts,
    horizon: float | None,
    budget: float,
    keep: float,
    rule: int = RULE,
) -> TableMaker:
    told = 0.0 if horizon is None else float(check.whole("horizon", horizon, 1))
    risk = check.single("budget", check.nonnegative("budget", budget))
    floor = check.single("keep", check.probability("keep", keep))
    n_arms, n_segments = counts.shows.shape
    return TableMaker(kind, n_arms, n_segments, told, risk, TUNING._replace(keep=floor), rule)


def _counts(shows: ArrayLike, clicks: ArrayLike, noise: ArrayLike | None) -> Counts:
    seen = check.nonnegative("shows", shows)
    clicked = check.nonnegative("clicks", clicks)
    if seen.ndim != 2 or not 1 <= seen.shape[1] <= LARGEST or not 2 <= seen.shape[0] <= LARGEST:
        allowed = f"2 to {LARGEST} arms by 1 to {LARGEST} segments"
        raise InvalidArgumentError("shows", seen.shape, allowed)
    if clicked.shape != seen.shape or (clicked > seen).any():
        raise InvalidArgumentError("clicks", clicked.shape, "at most as many clicks as shows")
    extra = check.nonnegative("noise", np.zeros(seen.shape) if noise is None else noise)
    if extra.shape != seen.shape:
        raise InvalidArgumentError("noise", extra.shape, f"an array of shape {seen.shape}")
    return Counts(*(np.ascontiguousarray(each) for each in (seen, clicked, extra)))


def _floors(floors: ArrayLike, n_arms: int, budget: float) -> FloatArray:
    band = check.probability("floors", floors)
    total = float(band.sum())
    fits = total <= 1 + 1e-9 and total * math.exp(min(budget, 700)) >= 1 - 1e-9
    if band.shape != (n_arms,) or not fits:
        allowed = f"{n_arms} floors with sum l <= 1 <= e^budget sum l"
        raise InvalidArgumentError("floors", floors, allowed)
    return band

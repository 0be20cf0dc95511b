"""The joint strategy: from counts to the next table, as a pure function that an auditor can replay.

Clicks are modelled as ``rate(a, s) = base_s (1 + arm_a + own_as)``: a base rate of the segment, what all
segments share about an arm, and what is the segment's own. The spreads of the two last are not known;
a grid of them is weighted by how well each explains the counts (empirical Bayes), so that segments that
behave alike are pooled and segments that differ are not. From that posterior the rule draws rates with
fixed, counted pseudo-random numbers, finds the best private table for each draw, and serves their mean.

Draws are pulled towards the posterior mean as the horizon comes nearer: deviations are multiplied by
``curiosity sqrt(log(T / t))``, at most 1. So it is Thompson sampling, cooled down. The paper's dynamic
table is served instead as long as the new one's gain over it, by the same posterior, is below z standard
deviations: it explores all arms of all segments, which tells worlds apart. A mean of tables that keep
the budget keeps it too. A floor of ``keep`` times the dynamic strategy's exploration leaves every arm
estimable; it vanishes with time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_kernel import write_joint, write_pooled
from deniable.strategies.joint_lp import LARGEST, lowest_ratio, workspace

CURIOSITY = 0.3
OWN_CURIOSITY = 0.7
"""What draws of a segment's own part are multiplied with besides: it is worth less to know."""

DOUBT = (0.5, 0.5)
"""The dynamic table is left where the gain exceeds z standard deviations, z^2 = .5 log(T/t) + .5."""

KEEP = 0.05
SAMPLES = 32
GROWTH = 0.25
"""An epoch is this part of all visitors before it."""


def joint_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
    floors: ArrayLike | None = None,
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

    >>> shows = [[5000, 5000], [5000, 5000]]
    >>> joint_table(shows, [[1620, 1475], [1475, 1620]], 10**6, 1).round(2).tolist()
    [[0.73, 0.27], [0.27, 0.73]]
    >>> joint_table(shows, [[1620, 1620], [1475, 1475]], 10**6, 1).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    seen, clicked, extra = _counts(shows, clicks, noise)
    table = np.empty_like(seen)
    risk = check.single("budget", check.nonnegative("budget", budget))
    band = np.zeros(0) if floors is None else _floors(floors, len(seen), risk)
    space = workspace(*seen.shape)
    weakest = lowest_ratio(risk, len(seen))
    settings = tuning(keep)
    write_joint(seen, clicked, extra, _horizon(horizon), weakest, band, settings, space, table)
    return table


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
    seen, clicked, extra = _counts(shows, clicks, noise)
    table = np.empty_like(seen)
    write_pooled(seen, clicked, extra, _horizon(horizon), tuning(keep), table)
    return table


def band_floors(table: ArrayLike) -> FloatArray:
    """Floors l_a for the promise across time: each arm's least entry over the segments of a table.

    A table that keeps budget g lies in [l_a, e^g l_a]. Make it with `keep=0`: an arm with floor 0 is
    never shown again.

    >>> band_floors([[0.7, 0.3], [0.3, 0.7], [0, 0]]).tolist()
    [0.3, 0.3, 0.0]
    """
    entries = check.probability("table", table)
    if entries.ndim != 2 or (abs(entries.sum(axis=0) - 1) > 1e-9).any():
        raise InvalidArgumentError("table", entries.shape, "columns that sum to 1")
    least = entries.min(axis=1)
    return np.asarray(np.where(entries.max(axis=1) < 2.0**-32, 0.0, least))


def tuning(keep: float = KEEP) -> FloatArray:
    """The rule's settings as the kernels take them."""
    floor = check.single("keep", check.probability("keep", keep))
    return np.array([SAMPLES, CURIOSITY, OWN_CURIOSITY, floor, *DOUBT])


def first_epoch(n_arms: int, n_segments: int) -> int:
    """Visitors of the first epoch, in which all arms are equally likely.

    >>> first_epoch(8, 5)
    80
    """
    return max(2 * n_arms * n_segments, 16)


def _counts(
    shows: ArrayLike, clicks: ArrayLike, noise: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
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
    return np.ascontiguousarray(seen), np.ascontiguousarray(clicked), np.ascontiguousarray(extra)


def _floors(floors: ArrayLike, n_arms: int, budget: float) -> FloatArray:
    band = check.probability("floors", floors)
    total = float(band.sum())
    fits = total <= 1 + 1e-9 and total * math.exp(min(budget, 700)) >= 1 - 1e-9
    if band.shape != (n_arms,) or not fits:
        allowed = f"{n_arms} floors with sum l <= 1 <= e^budget sum l"
        raise InvalidArgumentError("floors", floors, allowed)
    return band


def _horizon(horizon: float | None) -> float:
    return 0.0 if horizon is None else float(check.whole("horizon", horizon, 1))

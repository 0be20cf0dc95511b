"""What an experiment gains on private labels, without simulating.

A label mixes segments, so arms differ less between labels than between segments: with click rates of the
prior, labels are again segments of such a prior, with a smaller lift and a smaller heterogeneity. A
bandit on labels needs no bound. It gains what a strategy with a large budget gains there, as a part of
what the best arm of each label would gain (`masks.limit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import float_info
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.expectations.expected import expected_loss
from deniable.expectations.prior import HETEROGENEITY, LIFT
from deniable.expectations.surface import PERFECT, RANDOM
from deniable.masks.limit import best_groups, group_channel, label_limit, labels_alike

WITHOUT_LIMIT = 6.0
"""The largest budget that the surface covers: the joint strategy's bound hardly matters there."""


@dataclass(frozen=True, eq=False)
class ExpectedOnLabels:
    """What experiments gain on labels, at one budget; arrays of one shape, or one number each.

    Attributes:
        budget: G, spent once for all experiments that read the label.
        n_labels: m, the best number of labels for this budget.
        limit: gain over random arms with known click rates, as a share of what perfect information
            gains.
        share: the same, expected of a bandit that learns them.
        clicks: expected, of all visitors.
        lost: expected clicks lost against perfect information.
        on_surface: whether the surface was fitted there; elsewhere its edge is taken.
    """

    budget: float
    n_labels: int
    limit: float
    share: FloatArray
    clicks: FloatArray
    lost: FloatArray
    on_surface: NDArray[np.bool_]


def expected_on_labels(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: int = 2,
    *,
    base_rate: ArrayLike,
    lift: ArrayLike = LIFT,
    heterogeneity: float = HETEROGENEITY,
    budget: float,
    shares: ArrayLike | None = None,
) -> ExpectedOnLabels:
    """Return what experiments gain on labels that cost a budget; approximate.

    Arms, horizon, base rate and lift broadcast.

    Args:
        n_arms: K.
        horizon: T, visitors of this experiment.
        n_segments: J.
        base_rate: p.
        lift: d, standard deviation of the arms' rates relative to the base rate.
        heterogeneity: h, the part of that variance which differs by segment.
        budget: G, in nats.
        shares: of the visitors by segment; equal by default.

    >>> prior = {"base_rate": 0.05, "lift": 0.05**0.5, "heterogeneity": 0.8}
    >>> told = expected_on_labels(5, 100_000, 4, **prior, budget=3)
    >>> round(float(told.share), 2), round(told.limit, 2), told.n_labels
    (0.73, 0.9, 4)
    """
    nats = check.single("budget", check.nonnegative("budget", budget))
    sizes = (
        np.full(n_segments, 1 / n_segments)
        if shares is None
        else check.probability("shares", shares)
    )
    groups = best_groups(sizes, nats, heterogeneity)
    channel = group_channel(groups, nats)
    limit = label_limit(channel, sizes, heterogeneity)
    size: dict[str, Any] = {"n_arms": n_arms, "horizon": horizon, "base_rate": base_rate}
    share, on_surface = reached_by_rows(
        size,
        lift,
        limit,
        n_rows=len(groups),
        heterogeneity=1 - labels_alike(channel, sizes, heterogeneity),
        shares=sizes @ channel,
    )
    lost = (1 - share) * expected_loss(RANDOM, **size, lift=lift).lost
    perfect = expected_loss(PERFECT, **size, lift=lift).clicks
    return ExpectedOnLabels(nats, len(groups), limit, share, perfect - lost, lost, on_surface)


def reached_by_rows(
    size: dict[str, Any],
    lift: ArrayLike,
    limit: float,
    *,
    n_rows: int,
    heterogeneity: float,
    shares: ArrayLike | None = None,
    budgets: ArrayLike = WITHOUT_LIMIT,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the share of perfect information that a bandit gains, and whether the surface covers it.

    Args:
        size: `n_arms`, `horizon` and `base_rate`.
        lift: d, between the arms of a visitor.
        limit: the standard deviation of what the rows show of it, relative to d.
        n_rows: what the bandit tells apart: labels, contexts or segments.
        heterogeneity: the part of the variance between rows which they do not share.
        shares: of the visitors by row; equal by default.
        budgets: in nats; by default so much that it hardly matters.
    """
    rows: dict[str, Any] = {
        **size,
        "n_segments": n_rows,
        "lift": np.asarray(lift) * limit,
        "heterogeneity": heterogeneity,
        "shares": shares,
    }
    found = expected_loss("joint", **rows, budgets=budgets)
    possible = np.maximum(expected_loss(RANDOM, **rows).lost, float_info.min)
    return limit * (1 - found.lost / possible), found.on_surface

"""What an experiment gains on contexts, without simulating.

Visitors differ by context, which trackers know anyway, and by segment. Of the arms' differences, the
variance 1 - c - h is common to everybody, c differs by context and h by segment. Who tells one kind of
group apart sees the other kind only on average over its n groups of equal size: its part shrinks to 1/n
and is common. So either world is again one of the prior, with a smaller lift and another heterogeneity,
for which the surface of expected gains was fitted. A bandit on contexts needs no bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from deniable import _validation as check
from deniable.errors import InvalidArgumentError
from deniable.expectations.labels import reached_by_rows
from deniable.expectations.prior import HETEROGENEITY, LIFT


class ExpectedOnContexts(NamedTuple):
    """What one experiment gains over random arms, as shares of what perfect information gains.

    Attributes:
        share: with a bandit for each context, pooled as far as they are alike; risk 0.
        limit: the same if click rates were known.
        segments: with the joint strategy on segments, at each of the budgets asked for.
        on_surface: whether all of it is within what the surface was fitted to.
    """

    share: float
    limit: float
    segments: tuple[float, ...]
    on_surface: bool


def expected_on_contexts(
    n_arms: int,
    horizon: int,
    n_segments: int,
    n_contexts: int,
    *,
    base_rate: float,
    lift: float = LIFT,
    heterogeneity: float = HETEROGENEITY,
    by_context: float,
    budgets: tuple[float, ...] = (),
) -> ExpectedOnContexts:
    """Return what an experiment gains on contexts, and on segments; approximate.

    Args:
        n_arms: K.
        horizon: T, visitors of this experiment.
        n_segments: J, of equal size.
        n_contexts: C, of equal size.
        base_rate: p.
        lift: d, standard deviation of the arms' rates relative to the base rate.
        heterogeneity: h, the part of that variance which differs by segment.
        by_context: c, the part of it which differs by context; c + h is at most 1.
        budgets: budgets in nats at which to say what segments gain.

    >>> prior = {"base_rate": 0.05, "lift": 0.2, "heterogeneity": 0.3, "by_context": 0.3}
    >>> told = expected_on_contexts(6, 10**6, 3, 4, **prior, budgets=(1.0,))
    >>> round(told.share, 2), round(told.limit, 2), round(told.segments[0], 2)
    (0.84, 0.89, 0.75)
    """
    own = check.single("heterogeneity", check.probability("heterogeneity", heterogeneity))
    known = check.single("by_context", check.probability("by_context", by_context))
    if own + known > 1 + 1e-9:
        allowed = f"at most {1 - own:.4g}: what differs by segment differs by no context"
        raise InvalidArgumentError("by_context", by_context, allowed)
    size = {"n_arms": n_arms, "horizon": horizon, "base_rate": base_rate}

    alike = 1 - own + own / n_segments
    share, covered = reached_by_rows(
        size, lift, math.sqrt(alike), n_rows=n_contexts, heterogeneity=known / alike
    )
    mixed = 1 - known + known / n_contexts
    private, all_covered = reached_by_rows(
        size,
        lift,
        math.sqrt(mixed),
        n_rows=n_segments,
        heterogeneity=own / mixed,
        budgets=budgets,
    )
    return ExpectedOnContexts(
        share=float(share),
        limit=math.sqrt(alike),
        segments=tuple(private.tolist()),
        on_surface=bool(covered) and bool(all_covered.all()),
    )

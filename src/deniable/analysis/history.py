"""Over time: an experiment's totals and lost clicks, and what the firm had committed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.segment_risk import regret_bound
from deniable.errors import NANO
from deniable.storage import times
from deniable.storage.account import Balance
from deniable.storage.counts import Sample

CURVE_POINTS = 40
"""Points of the curve of the bound."""


@dataclass(frozen=True)
class HistoryPoint:
    """An experiment at one moment, over all segments.

    Attributes:
        time: when.
        visitors: decided for until then.
        shows: how often each arm was shown, by key.
        clicks: clicks among them.
        clicks_lost: as estimated then.
        regret_bound: the theory's bound on the expected loss after so many visitors.
    """

    time: datetime
    visitors: int
    shows: dict[str, int]
    clicks: dict[str, int]
    clicks_lost: float
    regret_bound: float


def sample_now(board: Leaderboard, moment: datetime) -> Sample:
    """The totals of an experiment now."""
    shows = tuple(int(n) for n in board.shows.sum(axis=0))
    clicks = tuple(int(n) for n in board.clicks.sum(axis=0))
    return Sample(moment, shows, clicks, board.lost)


def experiment_history(
    board: Leaderboard, samples: Sequence[Sample], now: datetime
) -> tuple[HistoryPoint, ...]:
    """From the start until now, oldest first; after a stop, until then.

    Args:
        board: the present counters.
        samples: what was stored, oldest first.
        now: the present.
    """
    experiment = board.experiment
    names = [arm.key for arm in experiment.arms]
    taken = [*samples, sample_now(board, now)]
    if experiment.started_at:
        nobody = (0,) * len(names)
        taken.insert(0, Sample(experiment.started_at, nobody, nobody, 0.0))
    end = experiment.stopped_at
    return tuple(
        HistoryPoint(
            time=min(one.taken_at, end) if end else one.taken_at,
            visitors=sum(one.shows),
            shows=dict(zip(names, one.shows, strict=True)),
            clicks=dict(zip(names, one.clicks, strict=True)),
            clicks_lost=one.lost,
            regret_bound=regret_bound(experiment, sum(one.shows)),
        )
        for one in taken
    )


class RegretCurves(NamedTuple):
    """Clicks lost by visitors: as estimated, had arms been random, and the theory's bound."""

    lost: list[tuple[int, float]]
    at_random: list[tuple[int, float]]
    bound: list[tuple[int, float]]


def regret_curves(board: Leaderboard, history: Sequence[HistoryPoint]) -> RegretCurves:
    """Return the three curves of an experiment with visitors, each from its start to now."""
    visitors = board.visitors
    # Round numbers, so that most of the curve stays the same as visitors come.
    rounded = {int(float(f"{visitors * i / CURVE_POINTS:.2g}")) for i in range(CURVE_POINTS)}
    steps = sorted({n for n in rounded if 0 < n < visitors} | {1, visitors})
    each = board.lost_at_random / visitors
    return RegretCurves(
        lost=[(0, 0.0), *((one.visitors, one.clicks_lost) for one in history if one.visitors)],
        at_random=[(n, each * n) for n in (0, *steps)],
        bound=[(n, regret_bound(board.experiment, n)) for n in steps],
    )


# -- the firm's budget -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SpendingPoint:
    """What counted against the firm's budget from a moment on, in nats."""

    time: datetime
    committed: float
    budget: float


def spending_history(
    balances: Sequence[Balance], most: int, now: datetime | None = None
) -> list[SpendingPoint]:
    """Committed and available nats over time, until now.

    Args:
        balances: oldest first.
        most: points. Of more, each stretch of time has its highest and its last: the peak and the
            present are always told.
        now: the present.
    """
    points = [
        SpendingPoint(
            times.as_datetime(one.since), one.committed_nano / NANO, one.budget_nano / NANO
        )
        for one in _thinned(balances, most)
    ]
    if points:
        points.append(
            SpendingPoint(now or datetime.now(UTC), points[-1].committed, points[-1].budget)
        )
    return points


def committed_at(balances: Sequence[Balance], moments: Sequence[datetime]) -> list[float]:
    """Nats that counted at each moment; 0 before the first balance."""
    since = [balance.since for balance in balances]
    places = [bisect_right(since, times.as_stored(moment)) for moment in moments]
    return [balances[place - 1].committed_nano / NANO if place else 0.0 for place in places]


def _thinned(balances: Sequence[Balance], most: int) -> Sequence[Balance]:
    if len(balances) <= most:
        return balances
    start, stretches = balances[0].since, most // 2 - 1
    length = (balances[-1].since - start) // stretches + 1
    kept = {0: balances[0]}
    for _, some in groupby(enumerate(balances), lambda one: (one[1].since - start) // length):
        stretch = list(some)
        kept |= [max(stretch, key=lambda one: one[1].committed_nano), stretch[-1]]
    return [kept[place] for place in sorted(kept)]

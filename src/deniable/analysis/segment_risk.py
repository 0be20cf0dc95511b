"""What the table in force risks for each segment, the cap on it, and when the cap is reached.

Only segments that the small-cell rule allows are told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np

from deniable.analysis.leaderboard import Leaderboard
from deniable.errors import NANO
from deniable.privacy.tables import Row, Table, decoded_table
from deniable.storage.records import Experiment, PublishedTable
from deniable.strategies import STRATEGIES, TABLE_RULES


@dataclass(frozen=True)
class SegmentRisk:
    """One segment's place on its way to the cap.

    Attributes:
        segment: its name.
        visitors: so far, which is the segment's clock.
        risk: of its row of the table in force, in nats.
        cap: the budget.
        common_share: how often that visitor gets an arm that does not depend on the segment.
        binds_at: the clock at which the risk reaches the cap; None if no clock says that.
        reached: whether the cap is reached.
        expected: when it will be at the pace so far; None where it has been, or cannot be told.
        when: the same in words.
    """

    segment: str
    visitors: int
    risk: float
    cap: float
    common_share: float
    binds_at: float | None
    reached: bool
    expected: datetime | None
    when: str


def common_share(board: Leaderboard, published: PublishedTable | None) -> float:
    """The share of the next visitors whose arm does not depend on the segment, as the table says.

    A row is a mixture of that of unlisted segments and something that depends on the segment; the
    largest possible part of the former is the smallest ratio of their entries.
    """
    experiment = board.experiment
    if experiment.status != "running" or published is None:
        return 1.0
    table = decoded_table(published.rows, len(experiment.arms))
    visitors = board.shows.sum(axis=1)
    shares = np.array([*(_shared_part(row, table.unlisted) for row in table.rows), 1.0])
    weights = visitors if visitors.sum() else np.append(np.ones(len(visitors) - 1), 0.0)
    return float((shares * weights).sum() / weights.sum())


def row_risk(row: Row, unlisted: Row) -> float:
    """How far the best and the worst arm of a row are from that of unlisted segments, in nats apart."""
    ratios = [entry / nothing for entry, nothing in zip(row, unlisted, strict=True) if nothing]
    return math.log(max(ratios) / min(ratios))


def widest(row: Row, table: Table) -> float:
    """How far a row is from any other row in any arm, in nats."""
    columns = zip(*table.rows, table.unlisted, strict=True)
    shown = [(part, column) for part, column in zip(row, columns, strict=True) if part]
    return max(math.log(max(max(all_) / part, part / min(all_))) for part, all_ in shown)


def _shared_part(row: Row, unlisted: Row) -> float:
    return min(entry / nothing for entry, nothing in zip(row, unlisted, strict=True) if nothing)


def binds_at(experiment: Experiment) -> float | None:
    """The number of a segment's visitor from which the cap limits the table; None: no clock says so.

    Budgets by arm have one bonus, 1/(1 + C) with C = sum of 1/(e^b - 1): the equal budget with the
    same bonus is log(1 + K/C).
    """
    if experiment.strategy not in STRATEGIES:
        return None
    odds = [math.expm1(experiment.budgets[arm] / NANO) for arm in experiment.active]
    alike = math.log1p(len(odds) / sum(1 / one for one in odds)) if min(odds) else 0.0
    return STRATEGIES[experiment.strategy](alike).binds_at(len(odds))


def segment_risks(
    board: Leaderboard, published: PublishedTable, now: datetime | None = None
) -> list[SegmentRisk]:
    """The segments that may be told apart, as the table in force serves them; none without a bound."""
    if not TABLE_RULES[board.experiment.strategy].bounded:
        return []
    table = decoded_table(published.rows, len(board.experiment.arms))
    names = board.experiment.rows
    return [
        _risk(board, names[i], int(board.shows[i].sum()), table.rows[i], table, now)
        for i in board.visible
    ]


def regret_bound(experiment: Experiment, visitors: int) -> float:
    """The theory's bound on expected clicks lost after this many visitors, never more than all.

    It is all of them for a strategy without a bound.
    """
    if visitors < 3 or experiment.strategy not in STRATEGIES:
        return float(visitors)
    arms, segments = len(experiment.active_arms), len(experiment.rows)
    return _bound(experiment.strategy, arms, visitors, experiment.budget, segments)


@lru_cache(maxsize=8_192)
def _bound(strategy: str, arms: int, visitors: int, budget: float, segments: int) -> float:
    """Kept: a page that is looked at asks for the same curve every two seconds."""
    bound = STRATEGIES[strategy].regret(arms, visitors, budget, segments)
    return min(float(visitors), float(bound))


def _risk(
    board: Leaderboard, name: str, visitors: int, row: Row, table: Table, now: datetime | None
) -> SegmentRisk:
    experiment, now = board.experiment, now or datetime.now(UTC)
    symmetric = TABLE_RULES[experiment.strategy].band(experiment.budgets) is not None
    binds = binds_at(experiment)
    reached = binds is not None and visitors + 1 >= binds
    expected = None
    waits = binds is not None and 10 <= visitors < binds - 1
    if binds is not None and waits and experiment.status == "running" and experiment.started_at:
        so_far = now - experiment.started_at
        factor = (binds - 1 - visitors) / visitors
        if factor * so_far.total_seconds() < 100 * 366 * 86_400:
            expected = now + so_far * factor
    return SegmentRisk(
        segment=name,
        visitors=visitors,
        risk=row_risk(row, table.unlisted) if symmetric else widest(row, table),
        cap=experiment.budget,
        common_share=_shared_part(row, table.unlisted),
        binds_at=binds,
        reached=reached,
        expected=expected,
        when=_when(binds, reached, None if expected is None else expected - now),
    )


def _when(binds: float | None, reached: bool, wait: timedelta | None) -> str:
    """The moment a segment's budget binds, in words."""
    if binds is None:
        return "whenever it learns something"
    if binds <= 1:
        return "from the first visitor"
    if reached:
        return f"since visitor {binds:,.0f}"
    words = f"at visitor {binds:,.0f}" if binds < 1e15 else "practically never"
    return words if wait is None else f"{words}, at this pace {_away(wait)}"


def _away(wait: timedelta) -> str:
    seconds = wait.total_seconds()
    for unit, size in (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"in about {seconds / size:,.0f} {unit}s"
    return "within two minutes"

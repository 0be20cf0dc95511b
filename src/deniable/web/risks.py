"""The risk of the next visitor of each segment, the cap on it, and when the cap is reached.

A segment is told apart only where each of its arms was shown to enough visitors; where a single
segment would stay hidden, the next smallest is hidden with it, so that no difference tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from deniable.errors import NANO
from deniable.service.runtime import active_budgets
from deniable.storage.records import Experiment
from deniable.strategies.arm_budgets import ArmConstantStrategy, ArmDynamicStrategy
from deniable.strategies.base import Spending
from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy
from deniable.theory.regret import constant_regret, dynamic_regret
from deniable.web.standing import Standing

SMALLEST_CELL = 30
"""Visitors of one segment who were shown one arm; figures on fewer are not told."""


@dataclass(frozen=True)
class SegmentRisk:
    """One segment's place on its way to the cap.

    Attributes:
        segment: its name; None where all share one clock.
        visitors: so far, which is the segment's clock.
        risk: of its next visitor, in nats.
        cap: the budget.
        random_share: how often that visitor gets a random arm.
        binds_at: the clock at which the risk reaches the cap.
        expected: when that will be at the pace so far; None where it has been, or cannot be told.
    """

    segment: str | None
    visitors: int
    risk: float
    cap: float
    random_share: float
    binds_at: float
    expected: datetime | None

    @property
    def bound(self) -> bool:
        """Whether the cap is reached."""
        return self.visitors + 1 >= self.binds_at


def strategy_of(experiment: Experiment) -> Spending:
    """The strategy by which an experiment spends its budget, over the arms that are on."""
    budgets = [budget / NANO for budget in active_budgets(experiment)]
    dynamic = experiment.strategy == "dynamic"
    if experiment.arm_specific:
        return ArmDynamicStrategy(budgets) if dynamic else ArmConstantStrategy(budgets)
    kind = DynamicStrategy if dynamic else ConstantStrategy
    return kind(len(budgets), experiment.budget)


def random_share(standing: Standing) -> float:
    """The probability that the next visitor gets a random arm, over the segments seen so far."""
    experiment = standing.experiment
    if experiment.status != "running" or experiment.exhausted or experiment.budget_nano == 0:
        return 1.0
    strategy = strategy_of(experiment)
    clocks = standing.shows.sum(axis=1)
    if strategy.clock_kind == "experiment":
        return float(strategy.exploration(int(clocks.sum()) + 1))
    shares = np.asarray(strategy.exploration(clocks + 1))
    if not experiment.arm_specific:
        shares[-1] = 1.0  # visitors of no listed segment
    weights = clocks if clocks.sum() else np.append(np.ones(len(clocks) - 1), 0.0)
    return float((shares * weights).sum() / weights.sum())


def told_segments(standing: Standing) -> list[int]:
    """Positions of the segments whose figures may be shown."""
    active = [arm.active for arm in standing.experiment.arms]
    smallest = standing.shows[:-1, active].min(axis=1)
    told = [i for i in range(len(smallest)) if smallest[i] >= SMALLEST_CELL]
    unlisted = 0 < standing.shows[-1].sum() < SMALLEST_CELL  # visitors of no listed segment
    if told and len(smallest) - len(told) + unlisted == 1:
        told.remove(min(told, key=lambda i: float(standing.shows[i].sum())))
    return told


def segment_risks(standing: Standing, now: datetime | None = None) -> list[SegmentRisk]:
    """The segments that may be told apart; one row for all where they share a clock."""
    strategy = strategy_of(standing.experiment)
    if strategy.clock_kind == "experiment":
        return [_risk(strategy, standing, None, standing.visitors, now)]
    names = standing.experiment.segments
    return [
        _risk(strategy, standing, names[i], int(standing.shows[i].sum()), now)
        for i in told_segments(standing)
    ]


def regret_bound(experiment: Experiment, visitors: int) -> float:
    """The theory's bound on expected clicks lost after this many visitors, never more than all."""
    if visitors < 3:
        return float(visitors)
    bound = dynamic_regret if experiment.strategy == "dynamic" else constant_regret
    arms, segments = len(experiment.active_arms), len(experiment.segments)
    return min(float(visitors), float(bound(arms, visitors, experiment.budget, segments)))


def _risk(
    strategy: Spending, standing: Standing, name: str | None, clock: int, now: datetime | None
) -> SegmentRisk:
    experiment = standing.experiment
    binds_at = strategy.binds_at
    expected = None
    if experiment.status == "running" and experiment.started_at and 10 <= clock < binds_at - 1:
        so_far = (now or datetime.now(UTC)) - experiment.started_at
        factor = (binds_at - 1 - clock) / clock
        if factor * so_far.total_seconds() < 100 * 366 * 86_400:
            expected = (now or datetime.now(UTC)) + so_far * factor
    return SegmentRisk(
        segment=name,
        visitors=clock,
        risk=float(strategy.risk(clock + 1)),
        cap=experiment.budget,
        random_share=float(strategy.exploration(clock + 1)),
        binds_at=binds_at,
        expected=expected,
    )


def waiting_words(risk: SegmentRisk, now: datetime | None = None) -> str:
    """The moment a segment's budget binds, in words."""
    if risk.binds_at <= 1:
        return "from the first visitor"
    if risk.bound:
        return f"since its visitor {risk.binds_at:,.0f}"
    words = f"at its visitor {risk.binds_at:,.0f}" if risk.binds_at < 1e15 else "practically never"
    if risk.expected is None:
        return words
    return f"{words}, at this pace {_away(risk.expected - (now or datetime.now(UTC)))}"


def _away(wait: timedelta) -> str:
    seconds = wait.total_seconds()
    for unit, size in (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"in about {seconds / size:,.0f} {unit}s"
    return "within two minutes"

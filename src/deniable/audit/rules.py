"""Rules that every single decision must follow, whatever was drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable.audit.decisions import DecisionLog
from deniable.errors import NANO
from deniable.privacy.schedule import dynamic_risk

if TYPE_CHECKING:
    from deniable.audit.promise import Promise


@dataclass(frozen=True)
class RuleBreaks:
    """How many decisions, or visitors, break each rule.

    Attributes:
        decisions: how many were looked at.
        visitors: how many different ones.
        several_arms: visitors who were shown more than one arm: each further one is a second spend.
        above_budget: decisions with a risk above the budget.
        above_schedule: decisions with a risk above what the schedule allows at their clock.
        switched_off: decisions that showed an arm of no such version.
        largest_risk_nano: the largest risk that anybody was given.
    """

    decisions: int
    visitors: int
    several_arms: int
    above_budget: int
    above_schedule: int
    switched_off: int
    largest_risk_nano: int


def find_breaks(promise: Promise, log: DecisionLog) -> RuleBreaks:
    """Count what is broken; all zeros is what a sound experiment has."""
    pairs = np.unique(np.stack([log.visitor, log.shown], axis=1), axis=0)
    visitors, arms = np.unique(pairs[:, 0], return_counts=True)
    schedule, off = 0, 0
    for version, shown in promise.versions.items():
        mine = log.version == version
        off += int((~np.isin(log.shown[mine], shown)).sum())
        if promise.dynamic and mine.any():
            # One nano-nat of room: the schedule's own rounding is down, this formula's is to nearest.
            allowed = np.asarray(dynamic_risk(len(shown), log.clock[mine])) * NANO + 1
            schedule += int((log.risk_nano[mine] > allowed).sum())
    return RuleBreaks(
        decisions=log.size,
        visitors=int(visitors.size),
        several_arms=int((arms > 1).sum()),
        above_budget=int((log.risk_nano > promise.budget_nano).sum()),
        above_schedule=schedule,
        switched_off=off,
        largest_risk_nano=int(log.risk_nano.max()) if log.size else 0,
    )

"""Mechanisms, beliefs, schedules and composition: what a budget means, and how it is kept."""

from deniable.privacy.belief import (
    Tracker,
    belief_curve,
    budget_for_belief,
    highest_belief,
    lowest_belief,
)
from deniable.privacy.composition import BudgetAccount, nano_down, nano_up, parallel, sequential
from deniable.privacy.exploration import (
    dynamic_exploration,
    dynamic_risk,
    exhaustion_clock,
    exhaustion_times,
    expected_exhaustion_time,
    exploration_from_risk,
    risk_from_exploration,
)
from deniable.privacy.mechanism import ArmSpecificResponse, RandomizedResponse

__all__ = [
    "ArmSpecificResponse",
    "BudgetAccount",
    "RandomizedResponse",
    "Tracker",
    "belief_curve",
    "budget_for_belief",
    "dynamic_exploration",
    "dynamic_risk",
    "exhaustion_clock",
    "exhaustion_times",
    "expected_exhaustion_time",
    "exploration_from_risk",
    "highest_belief",
    "lowest_belief",
    "nano_down",
    "nano_up",
    "parallel",
    "risk_from_exploration",
    "sequential",
]

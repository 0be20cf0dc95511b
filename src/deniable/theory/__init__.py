"""Regret bounds, elasticities and best budgets: the formulas of the paper, as pure functions."""

from deniable.theory.arm_specific import (
    arm_specific_constant_regret,
    arm_specific_excess,
    arm_specific_excess_linear,
    arm_specific_per_round_regret,
    heterogeneity_gap,
)
from deniable.theory.best_budget import (
    best_constant_budget,
    best_dynamic_budget,
    constant_budget_for_regret,
    dynamic_budget_for_regret,
)
from deniable.theory.elasticity import (
    constant_elasticity,
    constant_gain,
    dynamic_elasticity,
    dynamic_gain,
)
from deniable.theory.regret import (
    RegretTerms,
    constant_regret,
    constant_regret_terms,
    dynamic_regret,
    dynamic_regret_terms,
    dynamic_regret_terms_any_segments,
    nonprivate_regret,
    per_round_regret,
)

__all__ = [
    "RegretTerms",
    "arm_specific_constant_regret",
    "arm_specific_excess",
    "arm_specific_excess_linear",
    "arm_specific_per_round_regret",
    "best_constant_budget",
    "best_dynamic_budget",
    "constant_budget_for_regret",
    "constant_elasticity",
    "constant_gain",
    "constant_regret",
    "constant_regret_terms",
    "dynamic_budget_for_regret",
    "dynamic_elasticity",
    "dynamic_gain",
    "dynamic_regret",
    "dynamic_regret_terms",
    "dynamic_regret_terms_any_segments",
    "heterogeneity_gap",
    "nonprivate_regret",
    "per_round_regret",
]

"""Deniable: bandit experiments that keep every visitor's segment deniable, within a privacy budget.

Names are imported on first use, so that `import deniable` is fast.

>>> import deniable
>>> round(float(deniable.highest_belief(prior=0.2, risk=1)), 3)
0.405
"""

from __future__ import annotations

from importlib import import_module

_HOME = {
    "datasets": ("ExperimentData", "asos", "open_bandit", "synthetic_portfolio"),
    "expectations.fit": ("FittedPrior", "fit_prior"),
    "leak.report": ("Leak", "measure_leak"),
    "planning.arm_plan": ("ArmPlan", "plan_arms"),
    "planning.plan": ("Plan", "plan"),
    "policies.benchmarks": ("GittinsPolicy", "PerfectPolicy", "RandomPolicy"),
    "policies.custom": ("CustomPolicy", "Learner", "ThompsonSampling", "UpperConfidence"),
    "policies.greedy": (
        "ArmConstantPolicy",
        "ArmDynamicPolicy",
        "ConstantPolicy",
        "DynamicPolicy",
        "EpsilonGreedyPolicy",
    ),
    "policies.tables": (
        "AcrossTimePolicy",
        "BestPrivatePolicy",
        "JointPolicy",
        "PooledPolicy",
    ),
    "portfolio.allocation": ("Allocation", "Allocator", "allocate"),
    "portfolio.layers": ("Layer", "LayerDesign", "design_layers"),
    "portfolio.participation": ("RealizedRisk", "realized_risk", "sampled_risk"),
    "portfolio.problem": ("Portfolio",),
    "portfolio.rolling_budget": ("RollingBudget",),
    "portfolio.rules": (
        "RuleOutcome",
        "best_budgets",
        "compare_rules",
        "equal_split",
        "zero_budgets",
    ),
    "portfolio.table": ("read_portfolio", "write_allocation"),
    "portfolio.whatif": ("WhatIf", "budget_for_share", "what_if"),
    "privacy.belief": (
        "Tracker",
        "belief_curve",
        "budget_for_belief",
        "highest_belief",
        "lowest_belief",
    ),
    "privacy.composition": ("BudgetAccount", "nano_down", "nano_up", "parallel", "sequential"),
    "privacy.exploration": (
        "dynamic_exploration",
        "dynamic_risk",
        "exhaustion_clock",
        "exhaustion_times",
        "expected_exhaustion_time",
        "exploration_from_risk",
        "risk_from_exploration",
    ),
    "privacy.mechanism": ("ArmSpecificResponse", "RandomizedResponse"),
    "privacy.serving": ("ServingSchedule", "ServingTable", "arm_specific_table", "symmetric_table"),
    "simulation.environment": ("Environment",),
    "simulation.kernels.gittins_table": ("gittins_index",),
    "simulation.results": ("SimulationResult",),
    "simulation.run": ("Case", "simulate", "simulate_many"),
    "simulation.scenario": ("read_scenario",),
    "service.drafts": ("NewArm",),
    "service.service": ("Deniable", "open"),
    "storage.records": ("Arm", "Decision", "Experiment", "Firm"),
    "strategies.arm_budgets": ("ArmConstantStrategy", "ArmDynamicStrategy"),
    "strategies.constant": ("ConstantStrategy",),
    "strategies.dynamic": ("DynamicStrategy",),
    "strategies.gate": ("Gated", "gate"),
    "strategies.joint": ("JointStrategy",),
    "theory.arm_specific": (
        "arm_specific_constant_regret",
        "arm_specific_excess",
        "arm_specific_excess_linear",
        "arm_specific_per_round_regret",
        "heterogeneity_gap",
    ),
    "theory.best_budget": (
        "best_constant_budget",
        "best_dynamic_budget",
        "constant_budget_for_regret",
        "dynamic_budget_for_regret",
    ),
    "theory.elasticity": (
        "constant_elasticity",
        "constant_gain",
        "dynamic_elasticity",
        "dynamic_gain",
    ),
    "theory.regret": (
        "RegretTerms",
        "constant_regret",
        "constant_regret_terms",
        "dynamic_regret",
        "dynamic_regret_terms",
        "dynamic_regret_terms_any_segments",
        "nonprivate_regret",
        "per_round_regret",
    ),
}
"""Module -> its public names."""

_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'deniable' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"deniable.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        from deniable._extras import missing_extra

        raise missing_extra(error.name or "") or error from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""Faults of the strategies: what a budget is spent on, and the tables made from counts."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/strategies"
SPENDING = (f"{TESTS}/test_spending.py",)
LP = (
    f"{TESTS}/test_joint_lp.py::test_two_arms_two_segments",
    f"{TESTS}/test_joint_lp.py::test_the_gap_is_a_proof",
    f"{TESTS}/test_joint_lp.py::test_a_budget_for_each_arm",
)
MAKING = (f"{TESTS}/test_recipe.py",)

FAULTS = (
    Fault(
        "strategies/dynamic.py",
        "return np.minimum(self.budget, dynamic_risk(n_arms, clock))",
        "return np.asarray(dynamic_risk(n_arms, clock))",
        "the dynamic strategy has no cap",
        SPENDING,
    ),
    Fault(
        "strategies/dynamic.py",
        "return float(exhaustion_clock(n_arms, self.budget))",
        "return float(exhaustion_clock(n_arms, self.budget)) + 1",
        "the budget is said to bind one visitor too late",
        SPENDING,
    ),
    Fault(
        "strategies/arm_budgets.py",
        "return np.minimum(self.budgets, uncapped[..., None])",
        "return np.minimum(self.budgets.max(), uncapped[..., None]) + 0 * self.budgets",
        "budgets by arm share the largest cap",
        SPENDING,
    ),
    Fault(
        "strategies/arm_budgets.py",
        "return check.unwrap(np.asarray(self.arm_risks(clock).max(axis=-1)))",
        "return check.unwrap(np.asarray(self.arm_risks(clock).min(axis=-1)))",
        "the told risk is that of the safest arm",
        SPENDING,
    ),
    Fault(
        "strategies/constant.py",
        "elasticity.constant_gain, best_budget.best_constant_budget",
        "elasticity.constant_gain, best_budget.best_dynamic_budget",
        "the constant strategy recommends the dynamic one's budget",
        (f"{TESTS}/test_strategies.py",),
    ),
    Fault(
        "strategies/dynamic.py",
        "elasticity.dynamic_gain, best_budget.best_dynamic_budget",
        "elasticity.constant_gain, best_budget.best_dynamic_budget",
        "the dynamic strategy tells the constant one's gain",
        (f"{TESTS}/test_strategies.py",),
    ),
    Fault(
        "strategies/constant.py",
        "        return Fraction(1)",
        "        return Fraction(1, 2)",
        "the constant strategy leaves half of its budget unused",
        MAKING,
    ),
    Fault(
        "strategies/recipe.py",
        "return tuple(entries.get(arm, 0) for arm in range(len(self.budgets)))",
        "return tuple(entries.values()) + (0,) * (len(self.budgets) - len(row))",
        "the arms behind a retired one change places",
        MAKING,
    ),
    Fault(
        "strategies/joint_rule.py",
        "whole_clock=1.0,",
        "whole_clock=0.0,",
        "the floor of the joint tables vanishes as slowly as in a segment alone",
        (f"{TESTS}/test_joint_rule.py::test_the_floor_vanishes_with_all_visitors",),
    ),
    Fault(
        "strategies/joint_rule.py",
        "doubt=2 * tuning.doubt / n_segments",
        "doubt=tuning.doubt",
        "with two arms many segments that agree are doubted like two",
        (f"{TESTS}/test_joint_rule.py::test_two_arms_in_many_segments_need_less_evidence",),
    ),
    Fault(
        "strategies/joint_lp.py",
        "return np.asarray(np.exp(-budgets) * np.ones(n_arms))",
        "return np.asarray(np.exp(-2 * budgets) * np.ones(n_arms))",
        "the joint table uses twice its budget",
        LP,
    ),
    Fault(
        "strategies/joint_lp.py",
        "    bound = n_segments * raised\n",
        "    bound = 0.0 * raised\n",
        "the proof of a joint table forgets how far its prices are infeasible",
        LP,
    ),
)

"""Faults of the firm's problem, its rules and what visitors really meet."""

from __future__ import annotations

from mutants.fault import Fault

TESTS = "tests/portfolio"
ALLOCATION = f"{TESTS}/test_allocation.py"
RULES = (f"{TESTS}/test_rules.py",)
TIME = f"{TESTS}/test_over_time.py"
PROBLEM = f"{TESTS}/test_problem.py"

FAULTS = (
    Fault(
        "portfolio/problem.py",
        "return alone + sum(int(budgets_nano[rows].max()) for rows in self.members)",
        "return alone + sum(int(budgets_nano[rows].sum()) for rows in self.members)",
        "a group costs the sum of its budgets",
        (*RULES, f"{ALLOCATION}::test_a_group_costs_its_largest_budget"),
    ),
    Fault(
        "portfolio/problem.py",
        "min_nano = np.array([nano(value, up=True) for value in least], dtype=np.int64)",
        "min_nano = np.array([nano(value, up=False) for value in least], dtype=np.int64)",
        "what is committed is rounded down",
        (f"{TESTS}/test_groups_met.py",),
    ),
    Fault(
        "portfolio/problem.py",
        "    return nano(amount, up=False)\n",
        "    return nano(amount, up=True)\n",
        "the firm's budget is rounded up",
        (f"{PROBLEM}::test_the_firms_budget_is_rounded_down",),
    ),
    Fault(
        "portfolio/rules.py",
        "order = np.lexsort((regret, curves.experiment))",
        "order = np.lexsort((-regret, curves.experiment))",
        "the rules take the worse strategy",
        RULES,
    ),
    Fault(
        "portfolio/rules.py",
        "return np.asarray(np.clip(height, portfolio.min_nano, portfolio.max_nano))",
        "return np.full(portfolio.size, height)",
        "an equal split forgets limits and commitments",
        RULES,
    ),
    Fault(
        "portfolio/rules.py",
        '        cost <= firm_nano("firm_budget", firm_budget),',
        "        True,",
        "a rule that costs too much is told as affordable",
        RULES,
    ),
    Fault(
        "portfolio/dual.py",
        "bound[active] = np.minimum(inner, ends[active]) - slack",
        "bound[active] = np.minimum(inner, ends[active]) + slack",
        "the certificate promises more than was found",
        (f"{TESTS}/test_dual.py",),
    ),
    Fault(
        "portfolio/dual.py",
        "interior = pieces.convex & (falls > 0) & (climbs > 0)",
        "interior = pieces.convex & (falls > 0) & (climbs > 1e18)",
        "budgets inside of a piece are never found",
        (f"{TESTS}/test_dual.py",),
    ),
    Fault(
        "portfolio/participation.py",
        "steps = np.ceil(budgets / width - 1e-9).astype(np.int64)",
        "steps = np.floor(budgets / width / 2).astype(np.int64)",
        "the risk that visitors meet is too small",
        (f"{TIME}::test_realized_risk_against_all_outcomes",),
    ),
    Fault(
        "portfolio/participation.py",
        "part = meets / budgets.size * mass[: top + 1]",
        "part = meets * mass[: top + 1]",
        "a visitor meets every experiment of a group",
        (f"{TESTS}/test_groups_met.py",),
    ),
)

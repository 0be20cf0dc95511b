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
        "portfolio/search.py",
        "return self.best.loss - lower <= gap * max(-lower, 0.0)",
        "return self.best.loss - lower <= gap * float(self.losses.base.sum())",
        "the gap is judged by the total, not by the saving",
        (f"{TESTS}/test_saving.py",),
    ),
    Fault(
        "portfolio/search.py",
        "return split_count(node, min(max(reached, fewest), most - 1))",
        "return split_count(node, fewest)",
        "how many of the same jump is counted from none on",
        (f"{TESTS}/test_saving.py",),
    ),
    Fault(
        "portfolio/search_nodes.py",
        "others = np.clip(wanted - (change < 0), fewest, np.maximum(fewest, largest))",
        "others = np.full(family.size, 0)",
        "the odd one of a family leaves nobody else above",
        (f"{TESTS}/test_saving.py::test_the_best_sides_against_all_of_them",),
    ),
    Fault(
        "portfolio/curves.py",
        "part = np.clip((budget - left) / (right - left), 0.0, 1.0)",
        "part = np.clip((budget - left) / (right - left), 0.0, 0.5)",
        "a table is read wrongly between its knots",
        (f"{TESTS}/test_tables.py",),
    ),
    Fault(
        "portfolio/layers.py",
        "outside = float(((1 - shares) * problem.random).sum())",
        "outside = 0.0",
        "visitors outside of an experiment lose nothing",
        (f"{TESTS}/test_layers.py",),
    ),
    Fault(
        "expectations/fit.py",
        "weight = 1 / ((self.mean * lift) ** 2 + self.noise)",
        "weight = 1 / ((self.mean * lift) ** 2 + 1e-12)",
        "luck is taken for lift",
        ("tests/expectations/test_fit.py",),
    ),
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

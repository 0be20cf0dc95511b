"""Faults of the firm's problem, its rules and what visitors really meet."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/portfolio"
ALLOCATION = f"{TESTS}/test_allocation.py"
RULES = (f"{TESTS}/test_rules.py",)
TIME = f"{TESTS}/test_over_time.py"
PROBLEM = f"{TESTS}/test_problem.py"

FAULTS = (
    Fault(
        "portfolio/solver.py",
        "return (self.loss - self.lower_bound) / max(-self.lower_bound, 1e-300)",
        "return (self.loss - self.lower_bound) / max(-self.lower_bound, 1e12)",
        "the gap is judged by the total, not by the saving",
        (f"{TESTS}/test_saving.py",),
    ),
    Fault(
        "portfolio/solver.py",
        "cost = np.floor((cells.left - start[number]) / step + 1e-9).astype(np.int64)",
        "cost = np.ceil((cells.right - start[number]) / step).astype(np.int64)",
        "the programme charges a cell for more than budgets in it cost",
        (f"{ALLOCATION}::test_the_programme_s_bound_allows_what_is_reached",),
    ),
    Fault(
        "portfolio/solver.py",
        'order = np.argsort(-gain, kind="stable")',
        'order = np.argsort(gain, kind="stable")',
        "budget goes to where it saves least first",
        (f"{ALLOCATION}::test_the_paper_s_two_experiments",),
    ),
    Fault(
        "portfolio/units.py",
        "return np.where(interior, inside, np.minimum(at_left, at_right))",
        "return np.minimum(at_left, at_right)",
        "the certificate holds at tabulated budgets only",
        (f"{TESTS}/test_units.py",),
    ),
    Fault(
        "portfolio/units.py",
        "least = np.select([rises, falls, peak], [slope, after, np.minimum(before, after)], 0.0)",
        "least = slope",
        "a convex loss is taken to lie above its chord",
        (f"{TESTS}/test_units.py",),
    ),
    Fault(
        "portfolio/units.py",
        "better = (rest[curve] <= used) & (rest_loss[curve] <= loss)",
        "better = rest[curve] > np.inf",
        "budget is spent where it does harm",
        (f"{ALLOCATION}::test_budget_that_would_not_help_is_left_unspent",),
    ),
    Fault(
        "portfolio/allocation.py",
        "nats >= curves.useful[curve], 0.0, np.maximum(curves.gain(curve, nats), 0.0)",
        "nats < 0, 0.0, np.maximum(curves.gain(curve, np.maximum(nats - 1e-9, 0)), 0.0)",
        "what the last nat saved is told as what the next one saves",
        (f"{TESTS}/test_rules.py",),
    ),
    Fault(
        "portfolio/curves.py",
        "part = np.clip((budget - left) / (right - left), 0.0, 1.0)",
        "part = np.clip((budget - left) / (right - left), 0.0, 0.5)",
        "a table is read wrongly between its knots",
        (f"{TESTS}/test_tables.py",),
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
        "min_nano = np.array([nano_up(value) for value in least], dtype=np.int64)",
        "min_nano = np.array([nano_down(value) for value in least], dtype=np.int64)",
        "what is committed is rounded down",
        (f"{TESTS}/test_groups_met.py",),
    ),
    Fault(
        "portfolio/problem.py",
        "    return nano_down(amount)\n",
        "    return nano_up(amount)\n",
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

"""Faults of the regret bounds, gains, elasticities and best budgets."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/theory"
REGRET = (f"{TESTS}/test_regret.py",)
ELASTICITY = (f"{TESTS}/test_elasticity.py",)
BEST = (f"{TESTS}/test_best_budget.py",)
SUMMED = (f"{TESTS}/test_summed.py",)
ARMS = (f"{TESTS}/test_arm_specific.py",)
JOINT = (f"{TESTS}/test_joint.py",)

FAULTS = (
    Fault(
        "theory/regret.py",
        "A = 1 + 2 * np.sqrt(2)",
        "A = 1 + np.sqrt(2)",
        "a constant of the bounds is wrong",
        (f"{TESTS}/test_regret.py::test_without_privacy",),
    ),
    Fault(
        "theory/regret.py",
        "estimation = 2 * np.sqrt(2 * arms * np.log(n) / (n * rate))",
        "estimation = 2 * np.sqrt(2 * arms * np.log(n) / n)",
        "one visitor's bound forgets how rarely arms are explored",
        (f"{TESTS}/test_regret.py::test_per_round",),
    ),
    Fault(
        "theory/regret.py",
        "estimation = B * np.sqrt(segments * visitors * np.log(visitors)) * spent.root",
        "estimation = B * np.sqrt(visitors * np.log(visitors)) * spent.root",
        "the constant bound does not grow with segments",
        (f"{TESTS}/test_regret.py::test_constant_by_term",),
    ),
    Fault(
        "theory/regret.py",
        "return learning, after * spent.rate, _product(scale, spent.root)\n\n\ndef _scheduled(",
        "return learning, visitors * spent.rate, _product(scale, spent.root)\n\n\ndef _scheduled(",
        "exploration after the budget binds is counted from the first visitor",
        (f"{TESTS}/test_regret.py::test_dynamic_by_term",),
    ),
    Fault(
        "theory/regret.py",
        "return tuple(segments * part for part in one(arms, visitors / segments, *more))",
        "return tuple(part for part in one(arms, visitors / segments, *more))",
        "the summed bound is that of one segment",
        (f"{TESTS}/test_summed.py::test_the_bound_is_the_sum_of_the_segments_bounds",),
    ),
    Fault(
        "theory/regret.py",
        "        np.where(few, size, exploration),",
        "        np.where(few, 0.0, exploration),",
        "segments too small to learn lose nobody",
        (f"{TESTS}/test_summed.py::test_tiny_segments_may_lose_all_their_visitors",),
    ),
    Fault(
        "theory/elasticity.py",
        "spent.fall * (visitors * spent.rate - estimation / 2)",
        "spent.fall * (visitors * spent.rate - estimation)",
        "the constant gain weighs its terms wrongly",
        (f"{TESTS}/test_elasticity.py::test_derivatives",),
    ),
    Fault(
        "theory/elasticity.py",
        "return np.asarray(0.0 - budget * ratio)",
        "return np.asarray(budget * ratio)",
        "elasticities have the wrong sign",
        (f"{TESTS}/test_elasticity.py::test_derivatives",),
    ),
    Fault(
        "theory/elasticity.py",
        "growth = np.where(log_n - 1 > 1e-12, 3 * log_n / (log_n - 1), 0.0)",
        "growth = np.zeros_like(log_n)",
        "the gain forgets that the clock moves with the budget",
        (f"{TESTS}/test_elasticity.py::test_derivatives",),
    ),
    Fault(
        "theory/best_budget.py",
        "ratio = np.cbrt(visitors / (8 * arms * segments * np.log(np.maximum(visitors, 2))))",
        "ratio = np.cbrt(visitors / (8 * arms * np.log(np.maximum(visitors, 2))))",
        "the best constant budget does not depend on segments",
        (f"{TESTS}/test_best_budget.py::test_constant_against_brute_force",),
    ),
    Fault(
        "theory/best_budget.py",
        "points=65 if shares is None else 257",
        "points=2",
        "the best dynamic budget is looked for in one valley only",
        (f"{TESTS}/test_summed.py::test_the_lowest_of_several_valleys_is_found",),
    ),
    Fault(
        "theory/best_budget.py",
        "steps = np.linspace(0, 1, 257).reshape(-1, *[1] * top.ndim)",
        "steps = np.linspace(0, 1, 2).reshape(-1, *[1] * top.ndim)",
        "the smallest budget that is good enough is looked for behind the hump",
        (f"{TESTS}/test_best_budget.py::test_the_first_crossing_before_a_hump_is_found",),
    ),
    Fault(
        "theory/best_budget.py",
        "largest = visitors / segments if parts is None else visitors * parts.max(axis=-1)",
        "largest = visitors / segments if parts is None else visitors * parts.min(axis=-1)",
        "the budget that no segment reaches is that of the smallest segment",
        (f"{TESTS}/test_summed.py::test_the_lowest_of_several_valleys_is_found",),
    ),
    Fault(
        "theory/best_budget.py",
        "target = (1 + part) * np.asarray(bound(np.asarray(best)))",
        "target = (1 + 2 * part) * np.asarray(bound(np.asarray(best)))",
        "a budget within 5% is within 10%",
        (f"{TESTS}/test_best_budget.py::test_budget_for_regret_against_a_scan[constant-1]",),
    ),
    Fault(
        "theory/arm_specific.py",
        "shifted = common if linear else common + gap",
        "shifted = common + gap",
        "the linear bound is not linear",
        (f"{TESTS}/test_arm_specific.py",),
    ),
    Fault(
        "theory/arm_specific.py",
        "estimation = B * np.sqrt(segments * visitors * np.log(visitors) * (1 + total)) / "
        "np.sqrt(least)",
        "estimation = B * np.sqrt(segments * visitors * np.log(visitors) * total) / np.sqrt(least)",
        "the bound with budgets by arm forgets the greedy share",
        (f"{TESTS}/test_arm_specific.py",),
    ),
    Fault(
        "theory/joint.py",
        "return np.minimum(arms, segments) - 1",
        "return arms - 1",
        "the joint strategy pays for arms that no segment wants",
        (f"{TESTS}/test_joint.py",),
    ),
    Fault(
        "theory/joint.py",
        "return np.asarray(others * decay / (others * decay + 1) ** 2)",
        "return np.asarray(others * decay / (others * decay + 1))",
        "the joint gain is not the derivative of its bound",
        (f"{TESTS}/test_joint.py",),
    ),
)

"""Faults of the plans and their words."""

from __future__ import annotations

from tests.mutants.fault import Fault

PLAN = "tests/planning/test_plan.py"
EXPECTATION = "tests/planning/test_expectation.py"

FAULTS = (
    Fault(
        "planning/recommendation.py",
        "budget = rounded(limit, up=False)",
        "budget = rounded(limit, up=True)",
        "the recommended budget exceeds the largest belief",
        (f"{PLAN}::test_largest_belief_limits_the_recommendation",),
    ),
    Fault(
        "planning/recommendation.py",
        "    if limit is not None and limit < budget:\n",
        "    if False:\n",
        "the largest belief limits nothing",
        (f"{PLAN}::test_largest_belief_limits_the_recommendation",),
    ),
    Fault(
        "planning/experiment.py",
        "share = 1 / self.n_segments if self.shares is None else max(self.shares)",
        "share = 1 / self.n_segments if self.shares is None else min(self.shares)",
        "the last visitor is that of the smallest segment",
        (f"{PLAN}::test_the_last_visitor_is_of_the_largest_segment",),
    ),
    Fault(
        "planning/plan.py",
        "        informative=regret < horizon,",
        "        informative=True,",
        "a bound above the number of visitors is told as if it said something",
        (f"{PLAN}::test_every_strategy_says_whether_its_bound_says_anything",),
    ),
    Fault(
        "planning/plan.py",
        "highest_belief=float(highest_belief(before, cap)),",
        "highest_belief=float(lowest_belief(before, cap)),",
        "the highest belief is the lowest",
        (f"{PLAN}::test_numbers_are_the_formulas",),
    ),
    Fault(
        "strategies/base.py",
        'return "too random" if gain > 0 else "too greedy"',
        'return "too greedy" if gain > 0 else "too random"',
        "too greedy is told for too random",
        (f"{PLAN}::test_reading_follows_the_sign_of_the_elasticity",),
    ),
    Fault(
        "strategies/base.py",
        'return "too random" if budget < best_budget else "too greedy"',
        'return "too greedy" if budget < best_budget else "too random"',
        "a flat bound below the best budget is told as too greedy",
        ("tests/strategies/test_strategies.py::test_a_flat_bound_is_read_by_its_side",),
    ),
    Fault(
        "strategies/base.py",
        '"too random": f"Too random: 1% more budget',
        '"too random": f"Too random: 1% less budget',
        "the advice is the opposite",
        (f"{PLAN}::test_the_advice_is_to_move_towards_the_best",),
    ),
    Fault(
        "planning/arm_plan.py",
        "shown_otherwise=float(matrix[arm, arm - 1]),",
        "shown_otherwise=float(matrix[arm - 1, arm]),",
        "an arm is told the probability of another one",
        (f"{PLAN}::test_arm_plan_numbers",),
    ),
    Fault(
        "planning/recommendation.py",
        "allowed = TOP if limit is None else rounded(limit, up=False)",
        "allowed = TOP",
        "the recommendation by what to expect exceeds the largest belief",
        (f"{EXPECTATION}::test_the_recommendation_is_the_smallest_budget_near_the_least_loss",),
    ),
    Fault(
        "planning/expectation.py",
        "    cost = max(0.0, at[best].lost - least)",
        "    cost = max(0.0, at[best].lost)",
        "all clicks lost are told as the cost of privacy",
        (f"{EXPECTATION}::test_the_cost_of_the_budget_is_told_by_day",),
    ),
    Fault(
        "planning/experiment.py",
        "            shares=self.shares,\n        )\n",
        "        )\n",
        "sizes of segments change nothing in the plan",
        ("tests/expectations/test_unequal_segments.py::test_sizes_change_the_plan_and_its_note",),
    ),
    Fault(
        "expectations/prior.py",
        "math.sqrt(1 - part) * shared + math.sqrt(part) * own",
        "math.sqrt(part) * shared + math.sqrt(1 - part) * own",
        "segments agree where they should differ",
        ("tests/expectations/test_prior.py::test_draws_share_what_they_should",),
    ),
    Fault(
        "expectations/surface.py",
        "        return 1 - self.heterogeneity + self.heterogeneity / self.segments",
        "        return 1 - self.heterogeneity / self.segments",
        "what the segments share is too much",
        (
            "tests/expectations/test_surface.py::"
            "test_the_best_private_table_is_between_one_row_for_all_and_no_limit",
        ),
    ),
    Fault(
        "expectations/surface.py",
        "by_segment * asked.segments)",
        "by_segment)",
        "the surface forgets that first tables come later with more segments",
        (
            "tests/expectations/test_surface.py::"
            "test_segments_that_learn_apart_have_their_first_table_when_the_service_publishes",
        ),
    ),
    Fault(
        "expectations/surface.py",
        "        return found * after_first(strategy, asked)",
        "        return found",
        "visitors before the first table count as if they had learned",
        ("tests/expectations/test_surface.py::test_with_few_visitors_nothing_is_learned",),
    ),
    Fault(
        "planning/expectation.py",
        "worst * gain if certified else None",
        "worst * gain",
        "a plan promises the surface's accuracy where nobody compared it",
        (f"{EXPECTATION}::test_the_plan_says_how_far_its_surface_may_be_off",),
    ),
    Fault(
        "expectations/curves.py",
        "np.tanh(found @ layer[:, :-1] + layer[:, -1:])",
        "np.tanh(found @ layer[:, :-1])",
        "networks without what they add",
        (
            "research/tests/test_surface.py::test_the_package_evaluates_networks_as_the_library_does",
        ),
    ),
)

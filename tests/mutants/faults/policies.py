"""Faults of what strategies tell the simulator to do."""

from __future__ import annotations

from tests.mutants.fault import Fault

POLICIES = ("tests/strategies/test_simulated.py",)

FAULTS = (
    Fault(
        "strategies/constant.py",
        "return fixed_rule(explored, bonus)",
        "return fixed_rule(explored, bonus * 0.99)",
        "the constant strategy shows the greedy arm too rarely",
        POLICIES,
    ),
    Fault(
        "strategies/dynamic.py",
        "settles_at=self.binds_at(n_arms),",
        "settles_at=self.binds_at(n_arms) - 5,",
        "the dynamic strategy reaches its budget five visitors early",
        POLICIES,
    ),
    Fault(
        "strategies/arm_budgets.py",
        "on_segment_clock=False,",
        "on_segment_clock=True,",
        "budgets by arm follow each segment's own clock, which breaks the promise",
        POLICIES,
    ),
    Fault(
        "strategies/arm_budgets.py",
        "    explored[0] = shown[0, 1]  # any column but its own: shown without being greedy\n",
        "",
        "the first arm's exploration includes its bonus",
        POLICIES,
    ),
    Fault(
        "strategies/benchmarks.py",
        "best = rates == rates.max(axis=1, keepdims=True)",
        "best = rates == rates.max()",
        "perfect information knows the best arm of the best segment only",
        POLICIES,
    ),
    Fault(
        "strategies/benchmarks.py",
        "return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 1 / horizon)))",
        "return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 2 / horizon)))",
        "the Gittins discount is that of half the horizon",
        POLICIES,
    ),
)

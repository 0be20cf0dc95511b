"""Faults of what the simulated policies are told to do."""

from __future__ import annotations

from mutants.fault import Fault

POLICIES = ("tests/policies/test_policies.py",)

FAULTS = (
    Fault(
        "policies/greedy.py",
        "            return self.published(explored, bonus, rates.shape[1], scheduled=False)\n"
        "        return fixed_rule(explored, bonus)\n\n\n"
        "@dataclass(frozen=True)\nclass DynamicPolicy",
        "            return self.published(explored, bonus, rates.shape[1], scheduled=False)\n"
        "        return fixed_rule(explored, bonus * 0.99)\n\n\n"
        "@dataclass(frozen=True)\nclass DynamicPolicy",
        "the constant policy shows the greedy arm too rarely",
        POLICIES,
    ),
    Fault(
        "policies/greedy.py",
        "settles_at=float(exhaustion_clock(n_arms, self.budget)),",
        "settles_at=float(exhaustion_clock(n_arms, self.budget)) - 5,",
        "the dynamic policy reaches its budget five visitors early",
        POLICIES,
    ),
    Fault(
        "policies/greedy.py",
        "on_segment_clock=False,",
        "on_segment_clock=True,",
        "budgets by arm follow each segment's own clock, which breaks the promise",
        POLICIES,
    ),
    Fault(
        "policies/greedy.py",
        "    explored[0] = shown[0, 1]  # any column but its own: shown without being greedy\n",
        "",
        "the first arm's exploration includes its bonus",
        POLICIES,
    ),
    Fault(
        "policies/benchmarks.py",
        "best = rates == rates.max(axis=0)",
        "best = rates == rates.max()",
        "perfect information knows the best arm of the best segment only",
        POLICIES,
    ),
    Fault(
        "policies/benchmarks.py",
        "return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 1 / horizon)))",
        "return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 2 / horizon)))",
        "the Gittins discount is that of half the horizon",
        POLICIES,
    ),
)

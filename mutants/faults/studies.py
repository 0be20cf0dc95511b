"""Faults of the studies: shares, verdicts, and what is kept between runs."""

from __future__ import annotations

from mutants.fault import Fault

SHARES = "tests/studies/test_shares.py"
REPRODUCE = "tests/studies/test_reproduce.py"
BEYOND = "tests/studies/test_beyond.py"

FAULTS = (
    Fault(
        "studies/clicks.py",
        'share=(pl.col("mean") - random) / (perfect - random),',
        'share=pl.col("mean") / perfect,',
        "a share is a part of perfect clicks, not of the way to them",
        (f"{SHARES}::test_a_share_is_the_way_from_random_to_perfect",),
    ),
    Fault(
        "studies/clicks.py",
        "return (high - low) / (2 * 1.959963984540054)",
        "return (high - low) / 1.959963984540054",
        "standard errors are twice too large",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "studies/clicks.py",
        'gap = other["regret"] - one["regret"]',
        'gap = one["regret"] - other["regret"]',
        "the difference of the strategies has the wrong sign",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "studies/clicks.py",
        'return float(rows.sort("regret")["budget"][0])',
        'return float(rows.sort("regret", descending=True)["budget"][0])',
        "the best budget is the worst",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "studies/firm_clicks.py",
        "values[name, policy.label] - values[name, random]",
        "values[name, policy.label]",
        "the firm's gain is not over random arms",
        (f"{SHARES}::test_the_firm_gains_what_its_experiments_gain",),
    ),
    Fault(
        "studies/firm.py",
        "judged(most < 0.1)",
        "judged(most < 1)",
        "any gain of a small budget is small",
        (f"{SHARES}::test_the_claims_of_small_and_large_budgets_have_their_lines",),
    ),
    Fault(
        "studies/firm.py",
        "judged(min(shares) > 0.95)",
        "judged(max(shares) > 0.5)",
        "half of the gain is near all of it",
        (f"{SHARES}::test_the_claims_of_small_and_large_budgets_have_their_lines",),
    ),
    Fault(
        "studies/contract.py",
        "return abs(self.mean) > self.noise",
        "return self.mean != 0",
        "a difference inside noise is told",
        (f"{SHARES}::test_a_difference_is_told_beyond_noise_only",),
    ),
    Fault(
        "studies/contract.py",
        "parts += [world.phases.tobytes(), world.shares.tobytes()]",
        "",
        "results of other click rates are found again",
        (
            f"{REPRODUCE}::test_a_finished_study_is_found_and_a_changed_parameter_is_not",
            "tests/studies/test_kept.py",
        ),
    ),
    Fault(
        "studies/tracker.py",
        "mine, other = PRIOR * likelihood[0], (1 - PRIOR) * likelihood[1]",
        "mine, other = 0.5 * likelihood[0], 0.5 * likelihood[1]",
        "the study's watcher has another prior",
        (f"{BEYOND}::test_the_tracker_here_is_the_packages_tracker",),
    ),
    Fault(
        "studies/contract.py",
        '    if holds:\n        return "holds"\n',
        '    if holds or partly:\n        return "holds"\n',
        "what holds in part holds",
        ("src/deniable/studies/contract.py",),
    ),
)

"""Faults of the studies: shares, verdicts, and what is kept between runs."""

from __future__ import annotations

from tests.mutants.fault import Fault

SHARES = "research/tests/test_shares.py"
REPRODUCE = "research/tests/test_reproduce.py"
BEYOND = "research/tests/test_beyond.py"

FAULTS = (
    Fault(
        "research/clicks.py",
        'share=(pl.col("mean") - random) / (perfect - random),',
        'share=pl.col("mean") / perfect,',
        "a share is a part of perfect clicks, not of the way to them",
        (f"{SHARES}::test_a_share_is_the_way_from_random_to_perfect",),
    ),
    Fault(
        "research/clicks.py",
        "return (high - low) / (2 * 1.959963984540054)",
        "return (high - low) / 1.959963984540054",
        "standard errors are twice too large",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "research/clicks.py",
        'gap = other["regret"] - one["regret"]',
        'gap = one["regret"] - other["regret"]',
        "the difference of the strategies has the wrong sign",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "research/clicks.py",
        'return float(rows.sort("regret")["budget"][0])',
        'return float(rows.sort("regret", descending=True)["budget"][0])',
        "the best budget is the worst",
        (f"{SHARES}::test_errors_and_differences",),
    ),
    Fault(
        "research/firm_clicks.py",
        "values[name, policy.label] - values[name, random]",
        "values[name, policy.label]",
        "the firm's gain is not over random arms",
        (f"{SHARES}::test_the_firm_gains_what_its_experiments_gain",),
    ),
    Fault(
        "research/firm.py",
        "judged(most < 0.1)",
        "judged(most < 1)",
        "any gain of a small budget is small",
        (f"{SHARES}::test_the_claims_of_small_and_large_budgets_have_their_lines",),
    ),
    Fault(
        "research/firm.py",
        "judged(min(shares) > 0.95)",
        "judged(max(shares) > 0.5)",
        "half of the gain is near all of it",
        (f"{SHARES}::test_the_claims_of_small_and_large_budgets_have_their_lines",),
    ),
    Fault(
        "research/study.py",
        "return abs(self.mean) > self.noise",
        "return self.mean != 0",
        "a difference inside noise is told",
        (f"{SHARES}::test_a_difference_is_told_beyond_noise_only",),
    ),
    Fault(
        "research/study.py",
        "parts += [world.phases.tobytes(), world.shares.tobytes()]",
        "",
        "results of other click rates are found again",
        (
            f"{REPRODUCE}::test_a_finished_study_is_found_and_a_changed_parameter_is_not",
            "research/tests/test_kept.py",
        ),
    ),
    Fault(
        "research/tracker.py",
        "mine, other = PRIOR * likelihood[0], (1 - PRIOR) * likelihood[1]",
        "mine, other = 0.5 * likelihood[0], 0.5 * likelihood[1]",
        "the study's tracker has another prior",
        (f"{BEYOND}::test_the_tracker_here_is_the_packages_tracker",),
    ),
    Fault(
        "research/study.py",
        '    if holds:\n        return "holds"\n',
        '    if holds or partly:\n        return "holds"\n',
        "what holds in part holds",
        ("research/study.py",),
    ),
    Fault(
        "research/charts.py",
        'y=alt.Y("q25:Q"), y2=alt.Y2("q75:Q")',
        'y=alt.Y("median:Q"), y2=alt.Y2("q75:Q")',
        "the lower quartile is the median",
        ("research/tests/test_charts.py::test_every_mark_shows_what_it_should[clicks of a firm]",),
    ),
    Fault(
        "research/charts.py",
        "exploitation=1 - rate,",
        "exploitation=rate,",
        "the share of greedy arms is that of random ones",
        (
            "research/tests/test_charts.py::test_constant_panels_are_flat_and_dynamic_ones_end_at_the_cap",
        ),
    ),
)

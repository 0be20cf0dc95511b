"""Faults of confidence sequences, e-values, policy values and the checks of health."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/inference"
BOUNDARIES = (f"{TESTS}/test_boundaries.py",)
E_VALUES = (f"{TESTS}/test_e_values.py",)
HEALTH = (f"{TESTS}/test_health.py",)

FAULTS = (
    Fault(
        "inference/boundaries.py",
        "squared = v * (1 + 1 / x) * (np.log1p(x) - 2 * math.log(level))",
        "squared = v * (1 + 1 / x) * (np.log1p(x) - math.log(level))",
        "the asymptotic boundary is too low",
        BOUNDARIES,
    ),
    Fault(
        "inference/boundaries.py",
        "target = math.log(2 / level)",
        "target = math.log(1 / level)",
        "the exact boundary has one side only",
        BOUNDARIES,
    ),
    Fault(
        "inference/boundaries.py",
        "psi = -np.log1p(-bets) - bets",
        "psi = bets**2 / 4",
        "the exact boundary rests on an inequality that does not hold",
        BOUNDARIES,
    ),
    Fault(
        "inference/intervals.py",
        "each = alpha_level(alpha) / n_shown",
        "each = alpha_level(alpha)",
        "every comparison has the whole error probability",
        (f"{TESTS}/test_verdict.py", f"{TESTS}/test_state.py::test_ville_agrees_on_the_same_log"),
    ),
    Fault(
        "inference/intervals.py",
        "LEAST_VARIANCE_PER_NAT = 4.0",
        "LEAST_VARIANCE_PER_NAT = 0.5",
        "an interval is shown before its tails can be trusted",
        ("src/deniable/inference/intervals.py",),
    ),
    Fault(
        "inference/e_values.py",
        "impossible = (((p == 0) & (x > 0)) | ((p == 1) & (x < n))).any(axis=0)",
        "impossible = np.zeros(x.shape[1:], dtype=bool)",
        "an arm that cannot be shown and was is no proof",
        E_VALUES,
    ),
    Fault(
        "inference/e_values.py",
        "total = log_gamma(size) - log_gamma(size + n.sum(axis=-1))",
        "total = log_gamma(size + 1) - log_gamma(size + n.sum(axis=-1))",
        "the e-value of counts does not have mean one",
        E_VALUES,
    ),
    Fault(
        "inference/health.py",
        "degrees = int((possible.sum(axis=1) - 1)[came].sum())",
        "degrees = int(possible.sum(axis=1)[came].sum())",
        "chi-square has a degree of freedom too many for each segment",
        HEALTH,
    ),
    Fault(
        "inference/health.py",
        "p_value = min(1.0, min(tails, default=1.0) * len(tails)) if tails else 1.0",
        "p_value = min(tails, default=1.0)",
        "the smallest of many p-values is not corrected",
        HEALTH,
    ),
    Fault(
        "inference/health.py",
        "changes = split - np.log(k * (k + 1))[:, None, None]",
        "changes = split",
        "the prior of a change adds up to more than one",
        HEALTH,
    ),
    Fault(
        "inference/off_policy.py",
        "each = alpha_level(alpha) / state.shows.size",
        "each = alpha_level(alpha)",
        "the best of many arms is covered as if it had been chosen before",
        (f"{TESTS}/test_off_policy.py::test_arm_values_share_alpha_among_all_cells",),
    ),
    Fault(
        "inference/off_policy.py",
        "squared = np.maximum(batch.squares - 2 * m * batch.rewards + batch.shows * m * m, 0.0)",
        "squared = np.maximum(batch.squares - batch.shows * m * m, 0.0)",
        "the variance of doubly robust scores is wrong",
        (f"{TESTS}/test_off_policy.py::test_estimates_are_those_of_the_rows",),
    ),
)

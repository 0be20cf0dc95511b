"""Faults of the samplers, the kernels, seeds and results."""

from __future__ import annotations

from mutants.fault import Fault

TESTS = "tests/simulation"
SAMPLERS = f"{TESTS}/test_samplers.py"
RUN = f"{TESTS}/test_run.py"
GITTINS = f"{TESTS}/test_gittins_index.py"

FAULTS = (
    Fault(
        "simulation/kernels/random_numbers.py",
        "if u * (4.0 - u) - 3.0 <= ratio:",
        "if u * (4.0 - u) - 3.1 <= ratio:",
        "the hypergeometric sampler accepts too much",
        (f"{SAMPLERS}::test_the_squeezes_of_the_hypergeometric_change_no_decision",),
    ),
    Fault(
        "simulation/kernels/random_numbers.py",
        "if u * (u - ratio) >= 1.0:",
        "if u * (u - ratio) >= 0.9:",
        "the hypergeometric sampler rejects too much",
        (f"{SAMPLERS}::test_the_squeezes_of_the_hypergeometric_change_no_decision",),
    ),
    Fault(
        "simulation/kernels/random_numbers.py",
        "if log_v < bell - margin:",
        "if log_v < bell + margin:",
        "the binomial sampler accepts what is only likely",
        (f"{SAMPLERS}::test_the_squeezes_of_the_binomial_change_no_decision",),
    ),
    Fault(
        "simulation/kernels/random_numbers.py",
        "        + stirling_correction(n - m)\n",
        "",
        "the ratio of binomial probabilities lacks a correction",
        (f"{SAMPLERS}::test_the_squeezes_of_the_binomial_change_no_decision",),
    ),
    Fault(
        "simulation/kernels/gittins_table.py",
        "    if shows > grid[3]:\n",
        "    if shows > 10**15:\n",
        "beyond the grid the bonus of an arm does not fall",
        (f"{GITTINS}::test_beyond_the_grid_the_bonus_is_that_of_a_dynamic_program",),
    ),
    Fault(
        "simulation/kernels/gittins_table.py",
        "mean = (clicks + 1.0) / (shows + 2.0)\n    column",
        "mean = (clicks + 0.5) / (shows + 1.0)\n    column",
        "the index has another prior",
        (f"{GITTINS}::test_beyond_the_grid_the_bonus_is_that_of_a_dynamic_program",),
    ),
    Fault(
        "simulation/job.py",
        "child = np.random.SeedSequence(seed, spawn_key=(job.key, repetition))",
        "child = np.random.SeedSequence(seed, spawn_key=(job.key, 0))",
        "all repetitions share a seed",
        (f"{RUN}::test_repetitions_policies_and_environments_have_streams_of_their_own",),
    ),
    Fault(
        "simulation/job.py",
        "child = np.random.SeedSequence(seed, spawn_key=(job.key, repetition))",
        "child = np.random.SeedSequence(seed, spawn_key=(0, repetition))",
        "all policies share a seed",
        (f"{RUN}::test_repetitions_policies_and_environments_have_streams_of_their_own",),
    ),
    Fault(
        "simulation/job.py",
        'f"{environment.name}\\0{policy.name}"',
        'f"{policy.name}"',
        "all environments share a seed",
        (f"{RUN}::test_repetitions_policies_and_environments_have_streams_of_their_own",),
    ),
    Fault(
        "simulation/results.py",
        'q025=column.quantile(0.025, "linear")',
        'q025=column.quantile(0.25, "linear")',
        "a quantile is another one",
        (f"{RUN}::test_the_summary_is_the_plain_statistics",),
    ),
    Fault(
        "simulation/results.py",
        '"regret": (batch.shows * gaps).sum(axis=(2, 3)).ravel(),',
        '"regret": (batch.clicks * gaps).sum(axis=(2, 3)).ravel(),',
        "regret counts clicks, not shows",
        (f"{RUN}::test_the_frame_is_tidy_and_adds_up",),
    ),
)

"""Faults of the samplers, the kernels, seeds and results."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/simulation"
SAMPLERS = f"{TESTS}/test_samplers.py"
CUSTOM = "tests/simulation/test_custom.py"
REWARDS = "tests/simulation/test_rewards.py"
RUN = f"{TESTS}/test_run.py"
GITTINS = f"{TESTS}/test_gittins_index.py"
COMPILE = "tests/test_compile.py"

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
        "return np.asarray(batch.shows[:, job.kept] * gaps[0])",
        "return np.asarray(batch.clicks[:, job.kept] * gaps[0])",
        "regret counts clicks, not shows",
        (f"{RUN}::test_the_frame_is_tidy_and_adds_up",),
    ),
    Fault(
        "simulation/kernels/late_rewards.py",
        "due = (visitor + 1 + late) % known.first.size",
        "due = (visitor + 1 + 0 * late) % known.first.size",
        "no reward is late",
        (f"{REWARDS}::test_every_path_of_late_rewards_has_its_probability",),
    ),
    Fault(
        "simulation/learners.py",
        "due = done + 1 + (bisect_right(delays, late) if len(delays) > 1 else 0)",
        "due = done + 2 + (bisect_right(delays, late) if len(delays) > 1 else 0)",
        "a learner is told a visitor too late",
        (f"{REWARDS}::test_a_reward_is_told_before_the_visitor_after_its_delay",),
    ),
    Fault(
        "simulation/learners.py",
        "return int(lot / rule.explored * rule.n_arms) if lot < rule.explored else arm",
        "return int(lot / rule.explored * rule.n_arms) if lot < 0.8 * rule.explored else arm",
        "a learner's choice is shown too often",
        (f"{CUSTOM}::test_a_learner_through_randomized_response_is_the_constant_strategy",),
    ),
    Fault(
        "_compile.py",
        'sources |= {source, *(place.with_suffix(".py") for place in imported)}',
        "sources |= {source}",
        "a changed constant of another file is ignored by compiled kernels",
        (f"{COMPILE}::test_the_name_of_the_folder_covers_constants_of_other_files",),
    ),
    Fault(
        "_compile.py",
        "            config.CACHE_DIR = before\n",
        "            pass\n",
        "the user's own compiled functions are kept among ours",
        (f"{COMPILE}::test_the_users_own_functions_are_kept_where_they_were",),
    ),
    Fault(
        "simulation/results.py",
        "lost = np.cumsum(new * gaps[world.phase_at(job.checkpoints)], axis=1)",
        "lost = np.cumsum(new * gaps[0], axis=1)",
        "regret forgets that click rates changed",
        (f"{REWARDS}::test_clicks_and_regret_follow_the_rates_of_the_time",),
    ),
)

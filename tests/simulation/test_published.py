"""Published tables in the simulator against the service's own rule, in law, with planted faults.

The reference goes visitor by visitor in plain Python. It makes tables with what the publisher makes them
with (`Recipe`, `due_at`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.simulation.plain_python import as_python
from tests.simulation.two_samples import NEVER, Samples, least_p_value

from deniable.errors import InvalidArgumentError
from deniable.privacy.epochs import due_at
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.simulation.kernels import tables
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.simulation.run import simulate
from deniable.strategies.arm_budgets import ArmConstant, ArmDynamic
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import PublishedRule, Simulated
from deniable.strategies.recipe import Recipe

RATES = [[0.8, 0.4, 0.2], [0.3, 0.5, 0.6]]
SHARES = [0.7, 0.3]
HORIZON = 520
POINTS = [150, 330]

Private: TypeAlias = Constant | Dynamic | ArmConstant | ArmDynamic

CASES: dict[str, tuple[Private, str, tuple[float, ...]]] = {
    "constant": (Constant(2, growth="service"), "constant", (2, 2, 2)),
    "dynamic": (Dynamic(3, growth="service"), "dynamic", (3, 3, 3)),
    "by arm": (ArmConstant((1, 2, 3), growth="service"), "constant", (1, 2, 3)),
    "by arm, dynamic": (ArmDynamic((1, 2, 3), growth=2), "dynamic", (1, 2, 3)),
}


def _reference(policy: Private, strategy: str, budgets: tuple[float, ...], seed: int) -> Samples:
    """600 repetitions, visitor by visitor, with the service's tables and rule of publication."""
    rows = []
    for repetition in range(600):
        rng = random.Random(1000 * seed + repetition)
        rows.append(_reference_run(policy, strategy, budgets, rng))
    return np.array(rows, dtype=np.float64)


def _reference_run(
    policy: Private, strategy: str, budgets: tuple[float, ...], rng: random.Random
) -> list[int]:
    width, height = len(RATES[0]), len(SHARES)
    shows, clicks = ([[0] * width for _ in range(height)] for _ in range(2))
    due, rows = 0, []
    noted: list[int] = []
    for visitor in range(HORIZON):
        if visitor == due:
            recipe = Recipe(
                strategy,
                budgets=tuple(round(budget * 10**9) for budget in budgets),
                active=tuple(range(width)),
                cap=1,
            )
            table = recipe.table(recipe.counts(shows, clicks))
            rows = [list(accumulate(row)) for row in table.rows]
            due = due_at(visitor, policy.epochs(width, len(SHARES)))
        s = int(rng.random() >= SHARES[0])
        place = rng.getrandbits(64)
        a = sum(place >= end for end in rows[s])
        shows[s][a] += 1
        clicks[s][a] += rng.random() < RATES[s][a]
        if visitor + 1 in (*POINTS, HORIZON):
            noted += [*chain(*shows), *chain(*clicks)]
    return noted


def _environment() -> Environment:
    return Environment(RATES, HORIZON, SHARES)


def _simulated(policy: Simulated, kernel: Any = "leap", size: int = 3000, seed: int = 5) -> Samples:
    job = make_job(_environment(), policy, checkpoints=POINTS, kernel=kernel)
    return np.array([_flat(*run_repetition(job, seed, i)) for i in range(size)], dtype=np.float64)


def _flat(shows: Any, clicks: Any) -> list[int]:
    return [
        int(n)
        for point in range(shows.shape[0])
        for counts in (shows[point], clicks[point])
        for n in counts.ravel()
    ]


@pytest.mark.parametrize("kernel", ["leap", "step"])
@pytest.mark.parametrize("name", CASES)
def test_published_tables_are_the_service_s(name: str, kernel: str) -> None:
    policy, strategy, budgets = CASES[name]
    simulated = _simulated(policy, kernel)
    assert least_p_value(simulated, _known(name)) > NEVER, (strategy, budgets)


@lru_cache(maxsize=8)
def _known(name: str) -> Samples:
    return _reference(*CASES[name], seed=3)


def _with_fault(write_rows: Callable[..., Any]) -> Samples:
    """Repetitions of the dynamic policy, with the kernel's function that writes tables replaced."""
    policy = CASES["dynamic"][0]
    job = make_job(_environment(), policy, checkpoints=POINTS)
    faulty = as_python(tables._run_tables, write_rows=write_rows)
    rule = job.rule
    assert isinstance(rule, PublishedRule)
    publishing = tables.Publishing(rule.weights, rule.bonus, rule.scheduled, *rule.epochs)
    samples = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_run_tables", faulty)
        for repetition in range(3000):
            state = generator_state(np.random.SeedSequence([7, repetition]))
            setting = Setting(job.rates, job.arrival, job.checkpoints, state)
            samples.append(_flat(*tables.run_tables(True, publishing, setting)))
    return np.array(samples, dtype=np.float64)


def _counted_twice(publishing: Any, record: Any, rows: Any) -> None:
    twice = record._replace(shows=2 * record.shows, clicks=2 * record.clicks)
    tables.write_rows(publishing, twice, rows)


def _clicks_forgotten(publishing: Any, record: Any, rows: Any) -> None:
    tables.write_rows(publishing, record._replace(clicks=0 * record.clicks), rows)


@pytest.mark.parametrize("fault", [_counted_twice, _clicks_forgotten])
def test_planted_faults_of_the_counts_are_found(fault: Callable[..., None]) -> None:
    assert least_p_value(_with_fault(fault), _known("dynamic")) < NEVER


def test_without_a_fault_the_same_test_passes() -> None:
    assert least_p_value(_with_fault(tables.write_rows), _known("dynamic")) > NEVER


def test_other_epochs_are_found() -> None:
    slower = _simulated(Constant(2, growth=4))
    assert least_p_value(slower, _known("constant")) < NEVER


def test_results_say_how_tables_are_published() -> None:
    policies: list[Constant | Dynamic] = [
        Constant(1),
        Constant(1, growth="service"),
        Dynamic(1, growth=1.5),
    ]
    result = simulate(_environment(), policies, repetitions=2, workers=1)
    assert result.summary("clicks")["policy"].to_list() == [
        "constant(1)",
        "constant(1, published)",
        "dynamic(1, growth 1.5)",
    ]
    assert not policies[0].publishes


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"growth": 1.0}, "growth"),
        ({"growth": float("nan")}, "growth"),
        ({"growth": 1e6}, "growth"),
        ({"growth": True}, "growth"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Constant(1, **options)
    assert caught.value.argument == argument
    with pytest.raises(InvalidArgumentError):
        ArmDynamic((1, 2), **options)


def test_counts_of_the_longest_runs_stay_exact() -> None:
    """10^12 visitors: counts stay within 64 bits."""
    page = Environment([0.99, 0.98], horizon=10**12)
    result = simulate(page, [Constant(3, growth="service")], repetitions=2, workers=1)
    lost = result.summary("regret")["mean"].item()
    assert lost == pytest.approx(10**12 * 0.01 * 0.0474, rel=0.01)

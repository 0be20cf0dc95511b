"""Published tables in the simulator against the service's own rule, in law, with planted faults.

The reference goes visitor by visitor in plain Python. It makes tables with what the publisher makes them
with (`Recipe`, `due_at`), from counts with the service's own noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy import stats
from tests.simulation.two_samples import NEVER, Samples, least_p_value

from deniable._compile import as_python
from deniable.errors import InvalidArgumentError
from deniable.policies.base import Policy, TableRule
from deniable.policies.greedy import (
    ArmConstantPolicy,
    ArmDynamicPolicy,
    ConstantPolicy,
    DynamicPolicy,
)
from deniable.privacy.epochs import TRACE_GROWTH, due_at
from deniable.privacy.noise import discrete_laplace
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.simulation.kernels import tables, trace
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.simulation.run import simulate
from deniable.strategies.recipe import Recipe

RATES = [[0.8, 0.3], [0.4, 0.5], [0.2, 0.6]]
SHARES = [0.7, 0.3]
HORIZON = 520
POINTS = [150, 330]
MILLION = 10**6

Private: TypeAlias = ConstantPolicy | DynamicPolicy | ArmConstantPolicy | ArmDynamicPolicy

CASES: dict[str, tuple[Private, str, tuple[float, ...]]] = {
    "constant": (ConstantPolicy(2, growth="service"), "constant", (2, 2, 2)),
    "dynamic": (DynamicPolicy(3, growth="service"), "dynamic", (3, 3, 3)),
    "constant, trace": (ConstantPolicy(2, trace_budget=0.5), "constant", (2, 2, 2)),
    "dynamic, trace": (DynamicPolicy(3, trace_budget=0.5), "dynamic", (3, 3, 3)),
    "by arm, trace": (ArmConstantPolicy((1, 2, 3), trace_budget=1), "constant", (1, 2, 3)),
    "by arm, dynamic": (ArmDynamicPolicy((1, 2, 3), trace_budget=1), "dynamic", (1, 2, 3)),
}


def _reference(policy: Private, strategy: str, budgets: tuple[float, ...], seed: int) -> Samples:
    """600 repetitions, visitor by visitor, with the service's tables, noise and rule of publication."""
    rows = []
    for repetition in range(600):
        rng = random.Random(1000 * seed + repetition)
        rows.append(_reference_run(policy, strategy, budgets, rng))
    return np.array(rows, dtype=np.float64)


def _reference_run(
    policy: Private, strategy: str, budgets: tuple[float, ...], rng: random.Random
) -> list[int]:
    width, height = len(RATES), len(SHARES)
    trace_nano = None if policy.trace_budget is None else round(policy.trace_budget * 10**9)

    def empty() -> list[list[int]]:
        return [[0] * width for _ in range(height)]

    def noise(scale: int) -> int:
        return 0 if trace_nano is None else discrete_laplace(scale, trace_nano, rng.randbytes)

    all_shows, all_clicks, shows, rewards = empty(), empty(), empty(), empty()
    new_shows, new_clicks = empty(), empty()
    due, rows = 0, []
    noted: list[int] = []
    for visitor in range(HORIZON):
        if visitor == due:
            for s in range(height):
                for a in range(width):
                    if visitor:
                        shows[s][a] += new_shows[s][a] + noise(4 * 10**9)
                        rewards[s][a] += MILLION * new_clicks[s][a] + noise(4 * 10**9 * MILLION)
            new_shows, new_clicks = empty(), empty()
            recipe = Recipe(
                strategy,
                budgets=tuple(round(budget * 10**9) for budget in budgets),
                active=tuple(range(width)),
                cap=MILLION,
                trace_nano=trace_nano,
            )
            table = recipe.table(recipe.counts(shows, rewards))
            rows = [list(accumulate(row)) for row in table.rows]
            due = due_at(visitor, policy.epochs(width, len(SHARES)))
        s = int(rng.random() >= SHARES[0])
        place = rng.getrandbits(64)
        a = sum(place >= end for end in rows[s])
        clicked = rng.random() < RATES[a][s]
        for cells, amount in (
            (all_shows, 1),
            (new_shows, 1),
            (all_clicks, clicked),
            (new_clicks, clicked),
        ):
            cells[s][a] += amount
        if visitor + 1 in (*POINTS, HORIZON):
            noted += [*chain(*all_shows), *chain(*all_clicks)]
    return noted


def _environment() -> Environment:
    return Environment(RATES, HORIZON, SHARES)


def _simulated(policy: Policy, kernel: Any = "leap", size: int = 3000, seed: int = 5) -> Samples:
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


def _with_fault(**replaced: Callable[..., Any]) -> Samples:
    """Repetitions of the constant policy with a trace budget, with a function of the kernel replaced."""
    policy = CASES["constant, trace"][0]
    job = make_job(_environment(), policy, checkpoints=POINTS)
    faulty = as_python(tables._run_tables, publish=as_python(tables.publish, **replaced))
    rule = job.rule
    assert isinstance(rule, TableRule)
    publishing = tables.Publishing(
        rule.weights, rule.bonus, rule.scheduled, *rule.epochs, rule.trace_budget
    )
    samples = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_run_tables", faulty)
        for repetition in range(3000):
            state = generator_state(np.random.SeedSequence([7, repetition]))
            setting = Setting(job.rates, job.arrival, job.checkpoints, state)
            samples.append(_flat(*tables.run_tables(True, publishing, setting)))
    return np.array(samples, dtype=np.float64)


def _half_the_scale(
    shows: Any, clicks: Any, budget: float, state: Any, known: Any, rewards: Any
) -> None:
    trace.enter_counts(shows, clicks, 2 * budget, state, known, rewards)


def _no_noise(shows: Any, clicks: Any, budget: float, state: Any, known: Any, rewards: Any) -> None:
    trace.enter_counts(shows, clicks, 0.0, state, known, rewards)


def _counted_twice(
    shows: Any, clicks: Any, budget: float, state: Any, known: Any, rewards: Any
) -> None:
    trace.enter_counts(2 * shows, 2 * clicks, budget, state, known, rewards)


@pytest.mark.parametrize("fault", [_half_the_scale, _no_noise, _counted_twice])
def test_planted_faults_of_the_noise_are_found(fault: Callable[..., None]) -> None:
    assert least_p_value(_with_fault(enter_counts=fault), _known("constant, trace")) < NEVER


def test_without_a_fault_the_same_test_passes() -> None:
    same = _with_fault(enter_counts=trace.enter_counts)
    assert least_p_value(same, _known("constant, trace")) > NEVER


def test_other_epochs_are_found() -> None:
    slower = _simulated(ConstantPolicy(2, trace_budget=0.5, growth=4))
    assert least_p_value(slower, _known("constant, trace")) < NEVER


@pytest.mark.parametrize("scale", [0.3, 1.0, 4 / 0.3, 4e6])
def test_noise_has_the_discrete_laplace_law(scale: float) -> None:
    """Against its probabilities: P(x) = (1 - q)/(1 + q) q^|x|, q = e^(-1/scale)."""
    state = generator_state(np.random.SeedSequence(9))
    drawn = np.array([trace.discrete_laplace(scale, state) for _ in range(40_000)])
    law = stats.dlaplace(1 / scale)
    cuts = np.unique(law.ppf(np.linspace(0.01, 0.99, 30)))
    edges = law.cdf(cuts)
    wanted = np.diff(np.concatenate([[0.0], edges, [1.0]])) * drawn.size
    found = np.bincount(np.searchsorted(cuts, drawn, "left"), minlength=cuts.size + 1)
    assert stats.chisquare(found, wanted).pvalue > NEVER
    if scale > 1:
        halved = np.array([trace.discrete_laplace(scale / 2, state) for _ in range(40_000)])
        off = np.bincount(np.searchsorted(cuts, halved, "left"), minlength=cuts.size + 1)
        assert stats.chisquare(off, wanted).pvalue < NEVER


def test_a_cell_without_anything_new_gets_noise_too() -> None:
    state = generator_state(np.random.SeedSequence(1))
    none = np.zeros((2, 3), np.int64)
    shows, rewards = none.copy(), none.copy()
    trace.enter_counts(none, none, 0.1, state, shows, rewards)
    assert (shows != 0).sum() >= 4
    assert (rewards != 0).all()


def test_noise_adds_the_variance_that_strategies_are_told() -> None:
    """The rate of a cell after three publications: simulated against the formula."""
    state = generator_state(np.random.SeedSequence(2))
    rates = []
    for _ in range(20_000):
        shows, rewards = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
        for _ in range(3):
            trace.enter_counts(
                np.full((1, 1), 10_000), np.full((1, 1), 3_000), 0.2, state, shows, rewards
            )
        rates.append(rewards[0, 0] / trace.REWARD / shows[0, 0])
    wanted = trace.noise_variance(3, 0.2, 30_000.0, 0.3)
    assert np.var(rates) == pytest.approx(wanted, rel=0.06)
    assert trace.noise_variance(3, 0.0, 30_000.0, 0.3) == 0


def test_results_say_how_tables_are_published() -> None:
    policies: list[ConstantPolicy | DynamicPolicy] = [
        ConstantPolicy(1),
        ConstantPolicy(1, growth="service"),
        ConstantPolicy(1, trace_budget=0.3),
        DynamicPolicy(1, growth=1.5, trace_budget=0.3),
    ]
    result = simulate(
        _environment(), policies, repetitions=2, workers=1, common_random_numbers=True
    )
    assert result.summary("clicks")["policy"].to_list() == [
        "constant(1)",
        "constant(1, published)",
        "constant(1, trace 0.3)",
        "dynamic(1, growth 1.5, trace 0.3)",
    ]
    assert policies[2].epochs(2, 1).growth == TRACE_GROWTH
    assert not policies[0].publishes


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"growth": 1.0}, "growth"),
        ({"growth": float("nan")}, "growth"),
        ({"growth": 1e6}, "growth"),
        ({"growth": True}, "growth"),
        ({"trace_budget": 0}, "trace_budget"),
        ({"trace_budget": -1}, "trace_budget"),
        ({"trace_budget": float("inf")}, "trace_budget"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ConstantPolicy(1, **options)
    assert caught.value.argument == argument
    with pytest.raises(InvalidArgumentError):
        ArmDynamicPolicy((1, 2), **options)


def test_counts_of_the_longest_runs_stay_exact() -> None:
    """10^12 visitors: sums in millionths stay within 64 bits."""
    page = Environment([0.99, 0.98], horizon=10**12)
    result = simulate(page, [ConstantPolicy(3, growth="service")], repetitions=2, workers=1)
    lost = result.summary("regret")["mean"].item()
    assert lost == pytest.approx(10**12 * 0.01 * 0.0474, rel=0.01)

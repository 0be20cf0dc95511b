"""Runs: the same for any workers, executors and interruptions; bounds, edges and bad input."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from deniable.errors import InvalidArgumentError
from deniable.simulation import job as job_module
from deniable.simulation.environment import Environment
from deniable.simulation.job import KERNELS, Kernel, SimulationJob, make_job, run_repetition
from deniable.simulation.run import Case, simulate, simulate_many
from deniable.simulation.scenario import POLICIES, Settings, policy_named
from deniable.strategies.benchmarks import EpsilonGreedy, Random
from deniable.strategies.constant import Constant
from deniable.strategies.custom import Custom, ThompsonSampling
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import Simulated
from deniable.theory.regret import constant_regret, dynamic_regret, nonprivate_regret

PAGE = Environment([[0.3, 0.28], [0.1, 0.2]], 5000, [0.6, 0.4])
PAIR: list[Simulated] = [Constant(1), Dynamic(3)]


def _all(n_arms: int) -> list[Simulated]:
    settings = Settings(2.0, tuple(np.linspace(0.5, 2, n_arms)), 0.9)
    return [policy_named(name, settings) for name in POLICIES]


def test_results_do_not_depend_on_workers_executors_or_order() -> None:
    alone = simulate(PAGE, PAIR, repetitions=40, seed=3, checkpoints=[100], workers=1)
    with ThreadPoolExecutor(3) as threads:
        many = simulate(
            PAGE, PAIR, repetitions=40, seed=3, checkpoints=[100], executor=threads, workers=3
        )
    assert alone.frame.equals(many.frame)
    assert alone.arms.equals(many.arms)
    reversed_order = simulate(
        PAGE, PAIR[::-1], repetitions=40, seed=3, checkpoints=[100], workers=1
    )
    keys = ["policy", "repetition", "visitors"]
    assert alone.frame.sort(keys).equals(reversed_order.frame.sort(keys))
    other = simulate(PAGE, PAIR, repetitions=40, seed=4, checkpoints=[100], workers=1)
    assert not alone.frame.equals(other.frame)


def test_a_pool_of_processes_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.simulation import workers

    alone = simulate(PAGE, PAIR, repetitions=30, seed=3, workers=1)
    monkeypatch.setattr(workers, "TASK_SECONDS", 0.002)  # the first slice ends at once
    pooled = simulate(PAGE, PAIR, repetitions=30, seed=3, workers=2)
    assert alone.frame.equals(pooled.frame)


def test_the_frame_is_tidy_and_adds_up() -> None:
    result = simulate(PAGE, PAIR, repetitions=7, seed=1, checkpoints=[10, 1000], workers=1)
    assert result.frame.columns == [
        "environment",
        "policy",
        "risk_cap",
        "repetition",
        "visitors",
        "clicks",
        "reward",
        "regret",
    ]
    assert (result.frame["reward"] == result.frame["clicks"]).all()
    assert result.frame.height == 2 * 7 * 3
    sums = result.arms.group_by("policy", "repetition", "visitors", maintain_order=True).agg(
        pl.col("shows").sum(), pl.col("clicks").sum(), pl.col("regret").sum()
    )
    assert (sums["shows"] == sums["visitors"]).all()
    assert (sums["clicks"] == result.frame["clicks"]).all()
    assert np.allclose(sums["regret"], result.frame["regret"])
    lost_by_show = result.arms["regret"] / result.arms["shows"]
    assert {round(lost, 9) for lost in lost_by_show if not np.isnan(lost)} == {0.0, 0.02, 0.1}
    growing = result.frame.sort("policy", "repetition", "visitors")
    steps = growing.with_columns(pl.col("clicks").diff().over("policy", "repetition"))["clicks"]
    assert (steps.drop_nulls() >= 0).all()


def test_the_summary_is_the_plain_statistics() -> None:
    result = simulate(PAGE, [Random()], repetitions=50, seed=1, workers=1)
    clicks = result.frame["clicks"].to_numpy()
    row = result.summary().to_dicts()[0]
    half = 1.959963984540054 * clicks.std(ddof=1) / np.sqrt(50)
    assert row["repetitions"] == 50
    assert row["mean"] == pytest.approx(clicks.mean())
    assert (row["low"], row["high"]) == pytest.approx((clicks.mean() - half, clicks.mean() + half))
    wanted = np.quantile(clicks, [0.5, 0.25, 0.75, 0.025, 0.975])
    found = [row[key] for key in ("median", "q25", "q75", "q025", "q975")]
    assert found == pytest.approx(wanted.tolist())


def test_a_broken_run_is_taken_up_and_loses_nothing(tmp_path: Path) -> None:
    whole = simulate(PAGE, PAIR, repetitions=20, seed=5, workers=1)

    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done >= 20:
            raise Stopped

    with pytest.raises(Stopped):
        simulate(PAGE, PAIR, repetitions=20, seed=5, workers=1, folder=tmp_path, progress=stop)
    kept = sum(
        pl.read_parquet(file)["repetition"].n_unique() for file in tmp_path.glob("*.parquet")
    )
    assert kept == 20
    seen: list[int] = []
    again = simulate(
        PAGE,
        PAIR,
        repetitions=20,
        seed=5,
        workers=1,
        folder=tmp_path,
        progress=lambda done, total: seen.append(done),
    )
    assert seen[0] == 20, "what was finished is not run again"
    assert again.frame.equals(whole.frame)
    assert again.arms.equals(whole.arms)


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    simulate(PAGE, PAIR, repetitions=2, seed=5, workers=1, folder=tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match="same settings"):
        simulate(PAGE, PAIR, repetitions=2, seed=6, workers=1, folder=tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidArgumentError, match="empty folder"):
        simulate(PAGE, PAIR, repetitions=2, seed=5, workers=1, folder=tmp_path / "mine")


class _Flaky(Executor):
    """Runs tasks late, out of order, one at a time."""

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._held.append((future, fn, args))
            if len(self._held) >= 2:
                for waiting, call, given in reversed(self._held):
                    waiting.set_result(call(*given))
                self._held.clear()
            else:
                threading.Timer(0.05, self._flush).start()
        return future

    def _flush(self) -> None:
        with self._lock:
            for waiting, call, given in self._held:
                waiting.set_result(call(*given))
            self._held.clear()


def test_any_executor_will_do() -> None:
    alone = simulate(PAGE, PAIR, repetitions=9, seed=2, workers=1)
    odd = simulate(PAGE, PAIR, repetitions=9, seed=2, executor=_Flaky(), workers=2)
    assert alone.frame.equals(odd.frame)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("rates", "horizon", "shares"),
    [
        ([0.5, 0.4], 1, None),
        ([0.5, 0.4], 2, None),
        (np.linspace(0.01, 0.5, 50), 400, None),
        ([0.0, 0.0], 3000, None),
        ([1.0, 1.0, 1.0], 3000, None),
        ([0.0, 1.0], 3000, None),
        ([0.3, 0.3, 0.3], 500, None),
        ([[0.3, 0.2], [0.1, 0.4]], 500, [1.0, 0.0]),
        ([[0.3, 0.2], [0.1, 0.4]], 500, [0.0, 1.0]),
    ],
)
def test_edges(kernel: Kernel, rates: Any, horizon: int, shares: Any) -> None:
    world = Environment(rates, horizon, shares)
    result = simulate(world, _all(world.n_arms), repetitions=3, seed=1, kernel=kernel, workers=1)
    sums = result.arms.group_by("policy", "repetition").agg(
        pl.col("shows").sum(), (pl.col("clicks") <= pl.col("shows")).all()
    )
    assert (sums["shows"] == horizon).all()
    assert sums["clicks"].all()
    for segment, share in zip(world.segments, world.shares, strict=True):
        shown = result.arms.filter(pl.col("segment") == segment)["shows"].sum()
        assert (shown == 0) == (share == 0)
    assert (result.frame["regret"] >= 0).all()
    best = result.frame.filter(pl.col("policy") == "perfect")["regret"]
    assert (best == 0).all()


def test_the_longest_horizon_is_quick_and_adds_up() -> None:
    world = Environment([0.324, 0.295, 0.3], 10**12)
    policies = [policy for policy in _all(3) if not isinstance(policy, Custom)]
    result = simulate(world, policies, repetitions=1, seed=1, workers=1)
    assert (result.arms.group_by("policy").agg(pl.col("shows").sum())["shows"] == 10**12).all()
    private = result.frame.filter(pl.col("policy") == "constant(2)")["regret"].item()
    share = 1 / (2 + math.exp(2))
    assert private == pytest.approx(10**12 * share * (0.029 + 0.024), rel=1e-3)


def test_learners_in_python_are_not_run_for_hours() -> None:
    page = Environment([0.3, 0.2], 10**8)
    with pytest.raises(InvalidArgumentError, match="10,000,000 visitors for thompson"):
        simulate(page, [Custom(ThompsonSampling)], workers=1)


def test_memory_does_not_grow_with_the_horizon() -> None:
    import tracemalloc

    peaks = []
    for horizon in (10**5, 10**11):
        tracemalloc.start()
        simulate(Environment([0.2, 0.3], horizon), PAIR, repetitions=2, seed=1, workers=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 200_000


@pytest.mark.parametrize("budget", [0.05, 1, 3, 5])
@pytest.mark.parametrize("rates", [(0.324, 0.295), (0.1955, 0.195), (0.9, 0.1)])
def test_mean_regret_is_below_the_bound_everywhere(rates: Any, budget: float) -> None:
    points = [10, 100, 1000, 10**4, 10**5, 10**6]
    policies: list[Simulated] = [Constant(budget), Dynamic(budget), EpsilonGreedy()]
    result = simulate(
        Environment(rates, 10**6), policies, repetitions=20, seed=1, checkpoints=points, workers=1
    )
    for row in result.summary("regret").to_dicts():
        bound = {
            "constant": lambda t: constant_regret(2, t, budget),
            "dynamic": lambda t: dynamic_regret(2, t, budget),
            "epsilon-greedy": lambda t: nonprivate_regret(2, t),
        }[row["policy"].split("(")[0]](row["visitors"])
        assert row["high"] < float(bound)


def test_many_cases_are_each_as_if_alone() -> None:
    worlds = [Environment([0.3, 0.2], 1000, name="a"), Environment([0.1, 0.2, 0.3], 500, name="b")]
    cases = [Case(world, policy) for world in worlds for policy in PAIR]
    many = simulate_many(cases, repetitions=5, seed=1, workers=1)
    one = simulate(worlds[1], PAIR, repetitions=5, seed=1, workers=1)
    assert many.frame.filter(pl.col("environment") == "b").equals(one.frame)
    assert many.arms.height == 0


def test_random_numbers_do_not_depend_on_the_last_bit_of_a_budget() -> None:
    near: list[Simulated] = [Constant(0.3), Constant(0.1 + 0.2)]
    result = simulate(PAGE, near, repetitions=5, seed=1, workers=1)
    one, other = (rows.drop("policy", "risk_cap") for rows in result.frame.partition_by("policy"))
    assert one.equals(other)
    apart = simulate(PAGE, PAIR, repetitions=5, seed=1, workers=1).frame.partition_by("policy")
    assert not apart[0]["clicks"].equals(apart[1]["clicks"])


def test_repetitions_policies_and_environments_have_streams_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The generator of each run, by what it is given: no two are the same, and none is by chance."""
    states: list[bytes] = []

    def noted(_job: SimulationJob, state: NDArray[np.uint64]) -> tuple[Any, Any]:
        states.append(state.tobytes())
        return (), ()

    monkeypatch.setattr(job_module, "run_from", noted)
    worlds = [Environment([0.3, 0.2], 100, name=name) for name in ("first", "second")]
    for seed in (0, 1):
        for world in worlds:
            for policy in (Random(), Constant(1), Dynamic(1)):
                for repetition in range(5):
                    run_repetition(make_job(world, policy), seed, repetition)
    assert len(set(states)) == len(states) == 60
    first = list(states)
    run_repetition(make_job(worlds[0], Random()), 0, 0)
    assert states[-1] == first[0]  # and the same again from the same arguments


def test_budgets_that_differ_have_labels_that_differ() -> None:
    near: list[Simulated] = [Dynamic(2.7288521), Dynamic(2.7288522)]
    result = simulate(PAGE, near, repetitions=1, seed=1, workers=1)
    assert result.frame["policy"].to_list() == ["dynamic(2.7288521)", "dynamic(2.7288522)"]


def test_a_folder_of_another_budget_is_refused(tmp_path: Path) -> None:
    simulate(PAGE, [Constant(1)], repetitions=2, workers=1, folder=tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match="same settings"):
        simulate(PAGE, [Constant(2)], repetitions=2, workers=1, folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"repetitions": 0}, "repetitions"),
        ({"seed": -1}, "seed"),
        ({"workers": 0}, "workers"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 10**13}, "horizon"),
        ({"checkpoints": [0]}, "checkpoints"),
        ({"checkpoints": [10**6]}, "checkpoints"),
        ({"kernel": "jump"}, "kernel"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        simulate(PAGE, PAIR, **{"workers": 1, **change})
    assert caught.value.argument == named


def test_policies_must_differ_and_exist() -> None:
    with pytest.raises(InvalidArgumentError, match="policies"):
        simulate(PAGE, [Random(), Random()], workers=1)
    with pytest.raises(InvalidArgumentError, match="policies"):
        simulate(PAGE, [], workers=1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([0.3], 10), "rates"),
        (([0.3, 1.2], 10), "rates"),
        (([[0.3, 0.2], [0.1]], 10), "rates"),
        (([0.3, 0.2], 10, [0.5, 0.5]), "shares"),
        (([[0.3, 0.2], [0.1, 0.1]], 10, [0.5, 0.6]), "shares"),
        (([0.3, 0.2], 2.5), "horizon"),
    ],
)
def test_bad_environments_are_named(arguments: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Environment(*arguments)
    assert caught.value.argument == named

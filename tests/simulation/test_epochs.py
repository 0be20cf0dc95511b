"""The epoch simulator against a plain loop over visitors, in distribution, with planted faults.

That the compiled step kernel agrees with it is in test_agreement; here the reference shares no code with
the simulator but the rule itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.simulation.two_samples import NEVER, least_p_value

from deniable.errors import InvalidArgumentError
from deniable.privacy.epochs import Epochs, epochs_of
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.simulation.kernels.epochs import run_epochs
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.simulation.run import simulate
from deniable.strategies.benchmarks import BestPrivate
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import proved_table
from deniable.strategies.joint_rule import TableMaker, joint_table, pooled_table
from deniable.strategies.kernel_rules import FixedRule, Simulated
from deniable.strategies.pooled import Pooled

Table = NDArray[np.float64]
Counts = NDArray[np.int64]
RATES = np.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.3]])
SHARES = np.array([0.7, 0.3])
HORIZON = 450
WORLD = Environment(RATES, HORIZON, SHARES)


@lru_cache(maxsize=1)
def _best() -> Table:
    """Not made at import: every worker would wait there until one has compiled the solver."""
    return proved_table(RATES, SHARES, 1).table


Rule = Callable[[Table, Table], Table]
CASES: dict[str, tuple[Simulated, Rule]] = {
    "joint": (Joint(1), lambda n, x: joint_table(n, x, HORIZON, 1)),
    "told": (Joint(1, 0), lambda n, x: joint_table(n, x, None, 1)),
    "pooled": (Pooled(), lambda n, x: pooled_table(n, x, HORIZON)),
    "best private": (BestPrivate(1), lambda n, x: _best()),
}


def _by_steps(
    name: str, rng: np.random.Generator, least: int = 100, shares: Table = SHARES
) -> list[float]:
    """One repetition, visitor by visitor, in plain Python; a table every so many visitors."""
    shows, clicks = np.zeros(RATES.shape), np.zeros(RATES.shape)
    table = _best() if name == "best private" else np.full(RATES.shape, 1 / 3)
    up_to = np.cumsum(table, axis=1).tolist()
    rates, first = RATES.tolist(), shares[0]
    for visitor, (segment, arm, click) in enumerate(rng.random((HORIZON, 3)).tolist()):
        if visitor and visitor % least == 0:
            table = CASES[name][1](shows, clicks)
            up_to = np.cumsum(table, axis=1).tolist()
        s = int(segment >= first)
        a = min(bisect_right(up_to[s], arm), 2)
        shows[s, a] += 1
        clicks[s, a] += click < rates[s][a]
    return [*shows.ravel(), *clicks.ravel(), clicks.sum()]


def _epoch_sample(policy: Simulated, size: int = 2000) -> Table:
    job = make_job(WORLD, policy)
    rows = []
    for repetition in range(size):
        shows, clicks = run_repetition(job, 1, repetition)
        rows.append([*shows[-1].ravel(), *clicks[-1].ravel(), clicks[-1].sum()])
    return np.array(rows, float)


@pytest.mark.parametrize("name", CASES)
def test_epochs_are_steps_in_law(name: str) -> None:
    rng = np.random.default_rng(2)
    steps = np.array([_by_steps(name, rng) for _ in range(600)])
    assert least_p_value(_epoch_sample(CASES[name][0]), steps) > NEVER


@pytest.mark.parametrize(
    "fault", [{"least": 150}, {"shares": np.array([0.65, 0.35])}], ids=["epochs", "shares"]
)
def test_planted_faults_are_found(fault: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    wrong = np.array([_by_steps("joint", rng, **fault) for _ in range(600)])
    assert least_p_value(_epoch_sample(Joint(1)), wrong) < NEVER


def test_a_wrong_rule_is_found() -> None:
    """Another policy is a fault that the comparison must see."""
    rng = np.random.default_rng(4)
    wrong = np.array([_by_steps("pooled", rng) for _ in range(600)])
    assert least_p_value(_epoch_sample(Joint(1)), wrong) < NEVER


def test_tables_come_when_the_service_s_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 10 arms; with more, 5% apart. Until there are enough counts all arms are equally likely."""
    seen: list[tuple[float, bool]] = []
    right = TableMaker.next_table

    def noted(self: TableMaker, shows: Table, clicks: Table) -> Table:
        table = right(self, shows, clicks)
        seen.append((float(shows.sum()), bool((table == table[0, 0]).all())))
        return table

    monkeypatch.setattr(TableMaker, "next_table", noted)
    for n_arms, growth in ((8, 1.05), (40, 1.05)):
        seen.clear()
        rates = np.tile(np.linspace(0.1, 0.5, n_arms), (3, 1))
        run_repetition(make_job(Environment(rates, 20_000), Joint(1)), 1, 1)
        due, wanted = 0, []
        while (due := max(due + epochs_of(n_arms, 3).least, int(due * growth))) < 20_000:
            wanted.append(due)
        assert [visitors for visitors, _ in seen] == wanted
        assert [uniform for _, uniform in seen] == [t < 2 * n_arms * 3 for t in wanted]


def test_same_seeds_on_any_number_of_workers() -> None:
    world = Environment(RATES, 2000, SHARES)
    policies: list[Simulated] = [
        Joint(1),
        Pooled(),
        BestPrivate(1),
    ]
    runs = [
        simulate(world, policies, repetitions=6, seed=5, checkpoints=[333], workers=workers)
        for workers in (1, 2)
    ]
    assert runs[0].frame.equals(runs[1].frame)
    assert runs[0].arms.equals(runs[1].arms)
    other = simulate(world, policies, repetitions=6, seed=6, checkpoints=[333], workers=1)
    assert not runs[0].frame.equals(other.frame)


def test_a_checkpoint_only_notes() -> None:
    """The same law with checkpoints inside epochs: all visitors are there, counts never fall."""
    shows, clicks = run_repetition(make_job(WORLD, Joint(1), checkpoints=[1, 130, 200]), 1, 1)
    assert shows.sum(axis=(1, 2)).tolist() == [1, 130, 200, HORIZON]
    assert (np.diff(shows, axis=0) >= 0).all()
    assert (np.diff(clicks, axis=0) >= 0).all()
    assert (clicks <= shows).all()


def test_best_private_is_the_programme_with_true_rates() -> None:
    job = make_job(WORLD, BestPrivate(1))
    assert isinstance(job.rule, FixedRule)
    assert job.rule.shown == pytest.approx(_best())
    # Shares count: with the second segment nearly empty, one arm is best for all.
    skewed = make_job(Environment(RATES, 10, [0.999, 0.001]), BestPrivate(0.1))
    assert isinstance(skewed.rule, FixedRule)
    assert skewed.rule.shown[:, 0].tolist() == [1, 1]


def test_joint_approaches_its_limit() -> None:
    world = Environment(RATES, 10**7, SHARES)
    run = simulate(world, [Joint(1), BestPrivate(1)], repetitions=3, workers=1)
    joint, best = run.summary("clicks")["mean"].to_list()
    assert joint == pytest.approx(best, rel=0.01)


def test_tables_are_made_from_the_counts_before_them() -> None:
    seen: list[tuple[Counts, Counts]] = []

    def keep(shows: Counts, clicks: Counts) -> Table:
        seen.append((shows.copy(), clicks.copy()))
        return np.full((2, 3), 1 / 3)

    setting = Setting(
        RATES,
        np.cumsum(SHARES),
        np.array([10**4]),
        generator_state(np.random.SeedSequence(2)),
    )
    run_epochs(True, Epochs(2.0, 1000), keep, setting)
    assert [shows.sum() for shows, _ in seen] == [1000, 2000, 4000, 8000]
    for shows, clicks in seen:
        assert shows.shape == clicks.shape == (2, 3)
        assert clicks / shows == pytest.approx(RATES, abs=0.2)


def test_refusals() -> None:
    with pytest.raises(InvalidArgumentError, match="200"):
        make_job(Environment(np.full((2, 201), 0.1), 10), Joint(1))
    for wrong in (
        {"budget": -1},
        {"budget": 1, "told_horizon": -1},
    ):
        with pytest.raises(InvalidArgumentError):
            Joint(**wrong)

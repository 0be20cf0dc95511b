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
from deniable.policies.base import FixedRule, Policy
from deniable.policies.tables import (
    AcrossTimePolicy,
    BestPrivatePolicy,
    JointPolicy,
    PooledPolicy,
)
from deniable.privacy.epochs import Epochs, epochs_of
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.simulation.kernels.epochs import Publishing, run_epochs
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.simulation.run import simulate
from deniable.strategies.joint_lp import best_table
from deniable.strategies.joint_rule import (
    TableMaker,
    joint_table,
    lottery_table,
    pooled_table,
    switch_floors,
)

Table = NDArray[np.float64]
RATES = np.array([[0.5, 0.2], [0.2, 0.4], [0.3, 0.3]])
SHARES = np.array([0.7, 0.3])
HORIZON = 450
WORLD = Environment(RATES, HORIZON, SHARES)


@lru_cache(maxsize=1)
def _best() -> Table:
    """Not made at import: every worker would wait there until one has compiled the solver."""
    return best_table(RATES, SHARES, 1).table


def _across(shows: Table, clicks: Table, floors: list[Table]) -> Table:
    if not floors:
        found = switch_floors(shows, clicks, HORIZON, 1)
        if found is None:
            return lottery_table(shows, clicks, HORIZON, 1)
        floors.append(found)
    return joint_table(shows, clicks, HORIZON, 1, floors=floors[0])


Rule = Callable[[Table, Table, list[Table]], Table]
CASES: dict[str, tuple[Policy, Rule]] = {
    "joint": (JointPolicy(1), lambda n, x, _: joint_table(n, x, HORIZON, 1)),
    "told": (JointPolicy(1, 0), lambda n, x, _: joint_table(n, x, None, 1)),
    "across time": (AcrossTimePolicy(1), _across),
    "pooled": (PooledPolicy(), lambda n, x, _: pooled_table(n, x, HORIZON)),
    "best private": (BestPrivatePolicy(1), lambda n, x, _: _best()),
}


def _by_steps(
    name: str, rng: np.random.Generator, least: int = 100, shares: Table = SHARES
) -> list[float]:
    """One repetition, visitor by visitor, in plain Python; a table every so many visitors."""
    shows, clicks = np.zeros(RATES.shape), np.zeros(RATES.shape)
    table = _best() if name == "best private" else np.full(RATES.shape, 1 / 3)
    up_to = np.cumsum(table, axis=0).T.tolist()
    floors: list[Table] = []
    rates, first = RATES.tolist(), shares[0]
    for visitor, (segment, arm, click) in enumerate(rng.random((HORIZON, 3)).tolist()):
        if visitor and visitor % least == 0:
            table = CASES[name][1](shows, clicks, floors)
            up_to = np.cumsum(table, axis=0).T.tolist()
        s = int(segment >= first)
        a = min(bisect_right(up_to[s], arm), 2)
        shows[a, s] += 1
        clicks[a, s] += click < rates[a][s]
    return [*shows.T.ravel(), *clicks.T.ravel(), clicks.sum()]


def _epoch_sample(policy: Policy, size: int = 2000) -> Table:
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
    assert least_p_value(_epoch_sample(JointPolicy(1)), wrong) < NEVER


def test_a_wrong_rule_is_found() -> None:
    """Another policy is a fault that the comparison must see."""
    rng = np.random.default_rng(4)
    wrong = np.array([_by_steps("pooled", rng) for _ in range(600)])
    assert least_p_value(_epoch_sample(JointPolicy(1)), wrong) < NEVER


def test_tables_come_when_the_service_s_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 10 arms; with more, 5% apart. Until there are enough counts all arms are equally likely."""
    seen: list[tuple[float, bool]] = []
    right = TableMaker.next_table

    def noted(self: TableMaker, shows: Table, clicks: Table, noise: Table) -> Table:
        table = right(self, shows, clicks, noise)
        seen.append((float(shows.sum()), bool((table == table[0, 0]).all())))
        return table

    monkeypatch.setattr(TableMaker, "next_table", noted)
    for n_arms, growth in ((8, 1.05), (40, 1.05)):
        seen.clear()
        rates = np.linspace(0.1, 0.5, n_arms)[:, None].repeat(3, axis=1)
        run_repetition(make_job(Environment(rates, 20_000), JointPolicy(1)), 1, 1)
        due, wanted = 0, []
        while (due := max(due + epochs_of(n_arms, 3).least, int(due * growth))) < 20_000:
            wanted.append(due)
        assert [visitors for visitors, _ in seen] == wanted
        assert [uniform for _, uniform in seen] == [t < 2 * n_arms * 3 for t in wanted]


def test_same_seeds_on_any_number_of_workers() -> None:
    world = Environment(RATES, 2000, SHARES)
    policies: list[Policy] = [
        JointPolicy(1),
        AcrossTimePolicy(1),
        PooledPolicy(),
        BestPrivatePolicy(1),
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
    shows, clicks = run_repetition(make_job(WORLD, JointPolicy(1), checkpoints=[1, 130, 200]), 1, 1)
    assert shows.sum(axis=(1, 2)).tolist() == [1, 130, 200, HORIZON]
    assert (np.diff(shows, axis=0) >= 0).all()
    assert (np.diff(clicks, axis=0) >= 0).all()
    assert (clicks <= shows).all()


def test_best_private_is_the_programme_with_true_rates() -> None:
    job = make_job(WORLD, BestPrivatePolicy(1))
    assert isinstance(job.rule, FixedRule)
    assert job.rule.shown == pytest.approx(_best())
    # Shares count: with the second segment nearly empty, one arm is best for all.
    skewed = make_job(Environment(RATES, 10, [0.999, 0.001]), BestPrivatePolicy(0.1))
    assert isinstance(skewed.rule, FixedRule)
    assert skewed.rule.shown[0].tolist() == [1, 1]


def test_joint_approaches_its_limit() -> None:
    world = Environment(RATES, 10**7, SHARES)
    run = simulate(world, [JointPolicy(1), BestPrivatePolicy(1)], repetitions=3, workers=1)
    joint, best = run.summary("clicks")["mean"].to_list()
    assert joint == pytest.approx(best, rel=0.01)


def test_noise_of_a_trace_budget() -> None:
    """Tables are made from noisy counts, with the variance that the noise has."""
    got: list[tuple[Table, ...]] = []

    def keep(*counts: Table) -> Table:
        got.append(counts)
        return np.full((3, 2), 1 / 3)

    setting = Setting(
        np.ascontiguousarray(RATES.T),
        np.cumsum(SHARES),
        np.array([10**4]),
        generator_state(np.random.SeedSequence(2)),
    )
    run_epochs(True, Publishing(Epochs(2.0, 1000), 0.5), keep, setting)
    assert [round(float(c[0].sum()), -3) for c in got] == [1000, 2000, 4000, 8000]
    for published, (shows, clicks, variance) in enumerate(got, 1):
        assert (shows >= clicks).all()
        assert (clicks >= 0).all()
        rate = clicks / shows
        want = 2 * published * (4 / 0.5) ** 2 * (1 + rate**2) / shows**2
        assert variance == pytest.approx(want)
    assert got[0][0].sum() != 1000  # noise there is
    run_epochs(True, Publishing(Epochs(2.0, 1000), 0.0), keep, setting)
    assert got[-1][0].sum() == 8000
    assert not got[-1][2].any()


def test_refusals() -> None:
    with pytest.raises(InvalidArgumentError, match="200"):
        make_job(Environment(np.full((201, 2), 0.1), 10), JointPolicy(1))
    for wrong in (
        {"budget": -1},
        {"budget": 1, "told_horizon": -1},
        {"budget": 1, "trace_budget": -1},
    ):
        with pytest.raises(InvalidArgumentError):
            JointPolicy(**wrong)

"""Dask: a real cluster of processes gives the same bytes, also when a worker is killed mid-run."""

from __future__ import annotations

import os
import signal

import pytest
from tests.patience import PATIENCE

from deniable.simulation import workers
from deniable.simulation.environment import Environment
from deniable.simulation.run import simulate
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import Simulated

dask = pytest.importorskip("dask", reason="DASK NOT TESTED: dask is not installed")
distributed = pytest.importorskip("distributed", reason="DASK NOT TESTED: it is not installed")

PAGE = Environment([0.2, 0.201, 0.199], 200_000)
PAIR: list[Simulated] = [Constant(3), Dynamic(3)]


def test_a_cluster_survives_the_death_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = simulate(PAGE, PAIR, repetitions=60, seed=1, workers=1)
    monkeypatch.setattr(
        workers, "TASK_SECONDS", 0.02
    )  # many tasks, so that one is running when it dies
    patient = {f"distributed.comm.timeouts.{what}": PATIENCE for what in ("connect", "tcp")}
    with (
        dask.config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killed: list[int] = []

        def kill_one(done: int, total: int) -> None:
            if done > 5 and not killed:
                killed.append(done)
                os.kill(victim, signal.SIGKILL)

        shared = simulate(
            PAGE,
            PAIR,
            repetitions=60,
            seed=1,
            executor=client.get_executor(),
            workers=2,
            progress=kill_one,
        )
    assert killed
    assert killed[0] < 120
    assert shared.frame.equals(alone.frame)

"""Alarms that mean something: silent on sound experiments, loud on planted faults."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sqlalchemy import update
from tests.service.support import running
from tests.service.test_results import ARMS, RATES, visit

from deniable.analysis import result_health
from deniable.analysis.result_health import ResultHealth, health_of
from deniable.service.service import Deniable
from deniable.storage import experiments, times
from deniable.storage.records import MICRO
from deniable.storage.schema import counters


def checked(service: Deniable) -> ResultHealth:
    return service.experiments.result_health(service.experiments.get("checkout"))


def test_nothing_is_said_before_it_means_something(memory: Deniable) -> None:
    running(memory, arms=ARMS, segments=list(RATES))
    assert checked(memory) == ResultHealth(0, None, 1.0, 0.0, (), ())
    visit(memory, random.Random(1), 3)
    found = checked(memory)
    assert found.as_designed
    assert found.alerts == ()
    assert found.delays == ()


def test_a_sound_experiment_is_quiet_and_a_bent_table_is_named(memory: Deniable) -> None:
    running(memory, arms=ARMS, segments=list(RATES))
    visit(memory, random.Random(2), 2_000)
    found = checked(memory)
    assert found.as_designed
    assert found.chance > 1e-5
    assert len(found.delays) == len(result_health.CURVE)
    # The planted fault: one table shows one arm 200 times more.
    with memory._store.begin() as connection:
        experiment = experiments.by_key(connection, "checkout")
        number = experiment.table_number - 2
        connection.execute(
            update(counters)
            .where(
                counters.c.table_number == number,
                counters.c.segment == 0,
                counters.c.arm == 0,
                counters.c.metric == 0,
            )
            .values(shows=counters.c.shows + 200)
        )
    bent = checked(memory)
    assert not bent.as_designed
    assert bent.worst_table == number
    assert bent.alerts[0].startswith(f"Arms do not come as table {number} says.")


def test_drift_is_told_with_its_arm_and_rates(memory: Deniable) -> None:
    running(memory, arms=("grey", "green"), segments=["s"], planned_visitors=50_000)
    rng = random.Random(3)
    visit(memory, rng, 2_000, rates={"s": (0.5, 0.6)})
    assert checked(memory).alerts == ()
    visit(memory, rng, 2_000, rates={"s": (0.5, 0.15)})
    [told] = checked(memory).alerts
    assert told.startswith("The mean of green for s changed from ")


def test_a_lift_that_fades_is_perhaps_a_novelty(memory: Deniable) -> None:
    running(memory, arms=("grey", "green"), segments=["s"], planned_visitors=10_000)
    rng = random.Random(4)
    visit(memory, rng, 2_000, rates={"s": (0.3, 0.8)})
    visit(memory, rng, 3_000, rates={"s": (0.3, 0.32)})
    assert any("perhaps a novelty" in text for text in checked(memory).alerts)


def test_delays_are_those_of_the_rewards(memory: Deniable, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [times.now()]
    monkeypatch.setattr(times, "now", lambda: clock[0])
    running(memory, arms=ARMS, segments=list(RATES))
    waits = []
    for seconds in (10, 60, 600, 3_600):
        decisions = memory.decide_batch(
            "checkout", [(f"v{seconds}-{i}", "first") for i in range(50)]
        )
        clock[0] += seconds * MICRO
        memory.reward_batch([(one.id, 1) for one in decisions])
        waits += [seconds] * 50
    with memory._store.read() as connection:
        found = health_of(connection, experiments.by_key(connection, "checkout")).delays
    assert found == tuple(
        zip(result_health.CURVE, np.quantile(waits, result_health.CURVE).tolist(), strict=True)
    )

"""Remembered sums of counters: equal to the sums of all, from few rows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.service.support import running, serving

from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import sums
from deniable.storage.records import Experiment
from deniable.storage.schema import counters
from deniable.storage.sums import FRESH, WIDTH, RunningSums

TABLES = 70


def visited(service: Deniable, number: int, count: int = 3) -> list[str]:
    """Decisions of some new visitors, a third of them without a listed segment."""
    names = [(f"v{number}-{i}", ("a", "b", "elsewhere")[i % 3]) for i in range(count)]
    return [decision.id for decision in service.decide_batch("checkout", names)]


def experiment(service: Deniable) -> Experiment:
    return service.experiments.get("checkout")


def same(service: Deniable, known: RunningSums | None = None) -> bool:
    """Whether remembered sums, the publisher's if not given, are those of all counters."""
    known, one = known or service._publisher.sums, experiment(service)
    with service._store.read() as connection:
        mine = known.total(connection, one)
        all_of_it = sums.sums(connection, one)
        grown = known.growth(connection, bytes.fromhex(one.id))
    assert mine.decisions == all_of_it.decisions == grown.decisions
    return mine == all_of_it


@pytest.mark.parametrize("delay", [0, 1, 2, 5, 30])
def test_they_are_the_sums_of_all_counters(delay: int) -> None:
    with serving("memory:") as service:
        running(service)
        decisions: list[list[str]] = []
        for number in range(TABLES):
            decisions.append(visited(service, number))
            if number >= delay:
                service.reward_batch([(one, 0.5) for one in decisions[number - delay]])
            assert same(service)
            assert service.experiments.publish("checkout") is not None


def test_without_being_told_a_late_reward_is_missed() -> None:
    """The planted fault: it shows that the test above can fail, and what a restart does."""
    untold = RunningSums()
    with serving("memory:") as service:
        running(service)
        decisions = []
        for number in range(3 * WIDTH):
            decisions.append(visited(service, number)[0])
            with service._store.read() as connection:
                writer = connection.execute(select(counters.c.writer_id)).scalar()
            untold.stored(writer, {})
            assert same(service, untold)
            service.experiments.publish("checkout")
        service.reward_batch([(decisions[0], 1)])
        assert not same(service, untold)
        assert same(service, RunningSums())
        untold.stored(None, {})  # it is not known what was stored
        assert same(service, untold)


def test_a_reward_that_is_told_during_an_older_transaction_enters_with_the_next(
    tmp_path: Path,
) -> None:
    with serving(f"sqlite:///{tmp_path}/store.db") as service:
        running(service)
        decisions = []
        for number in range(3 * WIDTH):
            decisions.append(visited(service, number)[0])
            assert same(service)
            assert service.experiments.publish("checkout") is not None
        one = experiment(service)
        with service._store.read() as connection:
            sums.sums(connection, one)  # from here on it sees the store as it is now
            service.reward_batch([(decisions[0], 1)])
            service._publisher.sums.total(connection, one)
        assert same(service)


def test_rewards_that_another_process_stores_enter_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with serving(url) as service, open_service(url) as other:
        running(service)
        decisions = []
        for number in range(3 * WIDTH):
            decisions.append(visited(service, number)[0])
            assert same(service)
            assert service.experiments.publish("checkout") is not None
        other.reward_batch([(decisions[0], 1)])
        assert same(service)


def test_several_writers_in_one_table_are_added(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with serving(url) as service, open_service(url) as other:
        running(service)
        for number in range(4):
            visited(service, 2 * number, 30)
            visited(other, 2 * number + 1, 30)
            assert same(service)
            assert service.experiments.publish("checkout") is not None


def test_little_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = sums.sums

    def counted(connection: object, one: Experiment, first: int = 0, last: int = 10**9) -> object:
        read.append(min(last, one.table_number) - first + 1)
        return plain(connection, one, first, last)  # type: ignore[arg-type]

    with serving("memory:") as service:
        running(service)
        monkeypatch.setattr(sums, "sums", counted)
        for number in range(TABLES):
            service.reward_batch([(one, 1) for one in visited(service, number)])
            service._publisher.publish("checkout")
    # All counters would be those of 35 tables on average.
    assert sum(read) / TABLES <= 2 + FRESH + math.log(TABLES, WIDTH)


@pytest.mark.parametrize("what", ["arm", "segment"])
def test_they_grow_with_the_experiment(what: str) -> None:
    with serving("memory:") as service:
        running(service)
        for number in range(2 * WIDTH):
            visited(service, number)
            same(service)
            service.experiments.publish("checkout")
        if what == "arm":
            service.experiments.add_arm("checkout", "newest")
        else:
            service.experiments.add_segment("checkout", "elsewhere")
        visited(service, -1)
        assert same(service)
        service.experiments.publish("checkout")
        assert same(service)


def test_an_older_state_of_the_store_is_read_anew() -> None:
    with serving("memory:") as service:
        running(service)
        for number in range(2 * WIDTH):
            visited(service, number)
            same(service)
            service.experiments.publish("checkout")
        blocks = service._publisher.sums._known[bytes.fromhex(experiment(service).id)].blocks
        blocks[-1].last = experiment(service).table_number + 5
        assert same(service)

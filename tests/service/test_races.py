"""Races: 32 clients over four services want the same visitor, or the last of the firm's budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import pytest
from sqlalchemy import update
from tests.patience import PATIENCE
from tests.service.support import running, serving, shows

from deniable.errors import InsufficientBudgetError, WrongStateError
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import commitments, sqlite
from deniable.storage.records import Decision
from deniable.storage.schema import periods

CLIENTS = 32
SERVICES = 4
ROUNDS = 1_000
STARTS = 20
T = TypeVar("T")


@pytest.fixture
def services(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Deniable]]:
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")  # order is tested here, not the disk
    monkeypatch.setitem(sqlite._PRAGMAS, "busy_timeout", str(PATIENCE * 1000))
    with ExitStack() as stack:
        stack.enter_context(serving(store_url)).close()
        yield [stack.enter_context(open_service(store_url)) for _ in range(SERVICES)]


class Crowd:
    """All clients at once: each calls with its own service, from its own thread."""

    def __init__(self, services: list[Deniable]) -> None:
        self._services = services
        self._barrier = threading.Barrier(CLIENTS)
        self._pool = ThreadPoolExecutor(CLIENTS)

    def all(self, call: Callable[[Deniable, int], T]) -> list[T]:
        def one(client: int) -> T:
            self._barrier.wait(PATIENCE)
            return call(self._services[client % SERVICES], client)

        return list(self._pool.map(one, range(CLIENTS)))


def test_the_same_visitor_gets_one_arm(services: list[Deniable]) -> None:
    running(services[0])
    crowd = Crowd(services)
    for number in range(ROUNDS):

        def decide(service: Deniable, client: int, visitor: str = f"v{number}") -> Decision:
            return service.decide("checkout", visitor, "ab"[client % 2])

        answers = crowd.all(decide)
        assert len(set(answers)) == 1
    assert shows(services[0]) == ROUNDS
    assert services[0].ledger.verify().problem is None


def test_the_last_unit_of_budget_is_spent_once(services: list[Deniable]) -> None:
    services[0].firm.set(budget=0)
    crowd = Crowd(services)

    def take(service: Deniable, client: int) -> bool:
        try:
            service._store.retried(lambda connection: commitments.debit(connection, 1))
        except InsufficientBudgetError:
            return False
        return True

    with ExitStack() as stack:
        if services[0]._store.url.startswith(
            "postgresql"
        ):  # one connection each, one statement each
            lines = [
                stack.enter_context(
                    service._store.engine.connect().execution_options(  # type: ignore[attr-defined]
                        isolation_level="AUTOCOMMIT"
                    )
                )
                for service in services
                for _ in range(CLIENTS // SERVICES)
            ]

            def take(service: Deniable, client: int) -> bool:
                try:
                    commitments.debit(lines[client], 1)
                except InsufficientBudgetError:
                    return False
                return True

        for number in range(ROUNDS):
            with services[0]._store.begin() as connection:
                top_up = update(periods).where(periods.c.current)
                connection.execute(top_up.values(budget_nano=number + 1))
            assert sum(crowd.all(take)) == 1
    firm = services[0].firm.current()
    assert (firm.committed_nano, firm.remaining_nano) == (ROUNDS, 0)


def test_starting_for_the_last_budget(services: list[Deniable]) -> None:
    crowd = Crowd(services)
    for number in range(STARTS):
        services[0].firm.set(budget=1)
        for name in ("x", "y"):
            services[0].experiments.create(
                f"{name}{number}", arms=["a", "b"], segments=["s"], budget=1
            )

        def start(service: Deniable, client: int, n: int = number) -> str | None:
            key = f"{'xy'[client % 2]}{n}"
            try:
                return service.experiments.start(key).key
            except (InsufficientBudgetError, WrongStateError):
                return None

        started = [key for key in crowd.all(start) if key is not None]
        assert len(started) == 1
        assert services[0].firm.current().committed_nano == 10**9
        services[0].experiments.stop(started[0])
    assert services[0].ledger.verify().problem is None

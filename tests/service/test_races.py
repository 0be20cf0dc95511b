"""Races: 32 clients over four services want the same visitor, or the last of the firm's budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import pytest
from tests.patience import PATIENCE
from tests.service.support import clicks, running, serving, shows

from deniable.errors import InsufficientBudgetError, WrongStateError
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import sqlite_connections
from deniable.storage.records import Decision

CLIENTS = 32
SERVICES = 4
ROUNDS = 1_000
STARTS = 40
STORES = ["sqlite", "postgresql", "memory"]
T = TypeVar("T")


@pytest.fixture
def services(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Deniable]]:
    monkeypatch.setattr(
        sqlite_connections, "SYNCHRONOUS", "OFF"
    )  # order is tested here, not the disk
    monkeypatch.setattr(sqlite_connections, "BUSY_SECONDS", PATIENCE)
    with ExitStack() as stack:
        if store_url == "memory:":  # one service, many threads
            yield [stack.enter_context(serving(store_url, budget=0))] * SERVICES
            return
        with serving(store_url, budget=0):
            pass
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


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_the_same_visitor_gets_one_arm(services: list[Deniable]) -> None:
    services[0].firm.set(budget=1, reason="one experiment")
    running(services[0])
    crowd = Crowd(services)
    for number in range(ROUNDS):

        def decide(service: Deniable, client: int, visitor: str = f"v{number}") -> Decision:
            found = service.decide("checkout", visitor, "ab"[client % 2])
            if client % 4 == 0:  # rewards are chained among the decisions
                service.reward(found.id, 1)
            return found

        answers = crowd.all(decide)
        assert len(set(answers)) == 1
    assert shows(services[0]) == clicks(services[0]) == ROUNDS
    assert services[0].ledger.verify().problem is None


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_starting_for_the_last_budget(services: list[Deniable]) -> None:
    crowd = Crowd(services)
    for number in range(STARTS):  # what was started before goes on counting: one nat more each time
        services[0].firm.set(budget=number + 1, reason="the next round")
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
        assert services[0].firm.current().committed_nano == (number + 1) * 10**9
        services[0].experiments.stop(started[0])
    assert services[0].ledger.verify().problem is None

"""What a table costs besides its making: looks at the counters, and leases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from tests.patience import eventually
from tests.service.support import running, serving

from deniable.service.publisher import Publisher
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.schema import leases


def decide(service: Deniable, first: int, count: int = 20) -> None:
    service.decide_batch("checkout", [(f"v{first + i}", "a") for i in range(count)])


def taken(service: Deniable) -> list[str]:
    """The leases that anybody ever had."""
    with service._store.read() as connection:
        return [*connection.execute(select(leases.c.name)).scalars()]


def test_the_counters_are_looked_at_once_for_each_table(monkeypatch: Any) -> None:
    looks: list[str] = []
    look = Publisher._look

    def counted(publisher: Publisher, state: Any) -> None:
        looks.append(state.key)
        look(publisher, state)

    monkeypatch.setattr(Publisher, "_look", counted)
    with serving("memory:") as service:  # publishes before it answers
        running(service)
        for first in range(0, 6_000, 20):
            decide(service, first)
        tables = service.experiments.get("checkout").table_number - 1
    assert tables >= 40
    assert len(looks) <= tables + 1, "the first decision of all asks too"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_lease_is_for_several_processes(store_url: str, processes: int) -> None:
    with serving(store_url) as one, open_service(store_url) as other:
        running(one)
        before = one.experiments.get("checkout").table_number
        for first in range(0, 400, 20):
            decide(one if processes == 1 or first % 40 else other, first)
        eventually(
            lambda: one.experiments.get("checkout").table_number > before + 1, "two more tables"
        )
        assert ("publish checkout" in taken(one)) == (processes == 2)

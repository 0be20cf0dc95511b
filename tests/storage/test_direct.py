"""Statements on the writer's own connection return what SQLAlchemy would."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, insert, select, update
from tests.service.support import running, serving

from deniable.errors import StoreUnavailableError
from deniable.storage import experiments, promises, sums
from deniable.storage.schema import facts
from deniable.storage.sqlite import SqliteStore


def test_it_reads_what_sqlalchemy_reads(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/store.db") as service:
        running(service)
        shown = service.decide_batch("checkout", [(f"v{n}", "ab"[n % 2]) for n in range(50)])
        service.reward_batch([(one.id, 0.5) for one in shown])
        service.experiments.publish("checkout")
        store = service._store
        assert isinstance(store, SqliteStore)
        found = []
        for opened in (store.brief, store.read):
            with opened() as connection:
                one = experiments.by_key(connection, "checkout")
                promise = promises.check(connection, one)
                found.append(
                    (one, promise, sums.sums(connection, one), sums.sums(connection, one, 1, 1))
                )
        assert found[0] == found[1]
        assert found[0][0].exhausted is False  # not 0


def insert_and_fail(store: SqliteStore) -> None:
    with store.brief() as connection:
        connection.execute(insert(facts), {"name": "b", "value": b"3"})
        raise RuntimeError


def test_it_writes_rolls_back_and_reports_as_the_store_does(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    with store.begin() as connection:
        facts.create(connection)
    with store.brief() as connection:
        connection.execute(insert(facts), {"name": "a", "value": b"1"})
        changed = connection.execute(
            update(facts).where(facts.c.name == bindparam("which")).values(value=bindparam("new")),
            {"which": "a", "new": b"2"},
        )
        assert changed.rowcount == 1
    with pytest.raises(StoreUnavailableError, match="UNIQUE"), store.brief() as connection:
        connection.execute(insert(facts), {"name": "a", "value": b"3"})
    with pytest.raises(RuntimeError):
        insert_and_fail(store)
    query = select(facts.c.value).where(facts.c.name.in_(["a", "b"])).order_by(facts.c.name)
    with store.brief() as connection:
        assert connection.execute(query).all() == [(b"2",)]
        assert connection.execute(select(func.count()).select_from(facts)).scalar() == 1
        with pytest.raises(TypeError, match="not in the statement"):
            connection.execute(query, {"other": 1})
    store.close()

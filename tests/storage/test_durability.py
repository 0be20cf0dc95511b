"""What a store promises about its disk, on a new one, with the settings as they are shipped."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, func, select
from tests.patience import PATIENCE
from tests.postgres import PostgresServer

from deniable.storage import idempotency
from deniable.storage.connect import connect
from deniable.storage.schema import answers as stored_answers
from deniable.storage.schema import replies
from deniable.storage.sqlite import MemoryStore
from deniable.storage.store import HotTransaction, Store

NORMAL, FULL = 1, 2
"""SQLite's numbers for `synchronous`. FULL: a commit returns when the log is on the disk."""


def pragma(connection: Connection, name: str) -> Any:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def asked(store: Store, question: str) -> Any:
    """The answer on the writer's own connection."""
    with store.hot() as transaction:
        hot: Any = transaction
        found = hot._execute(question) if "PRAGMA" in question else hot._cursor.execute(question)
        return found.fetchone()[0]


def test_a_new_sqlite_store_waits_for_its_disk(tmp_path: Path) -> None:
    store = connect(f"sqlite:///{tmp_path / 'new.db'}")
    try:
        for opened in (store.begin, store.read):
            with opened() as connection:
                assert pragma(connection, "synchronous") == FULL
                assert pragma(connection, "journal_mode") == "wal"
                assert pragma(connection, "foreign_keys") == 1
                assert pragma(connection, "busy_timeout") == 10_000
        assert asked(store, "PRAGMA synchronous") == FULL
        assert asked(store, "PRAGMA journal_mode") == "wal"
    finally:
        store.close()


def test_sqlite_does_not_wait_for_the_disk_where_it_need_not(tmp_path: Path) -> None:
    """Nor does that outlive the transaction: others have the same connection after it."""
    store = connect(f"sqlite:///{tmp_path / 'new.db'}")

    def synchronous(connection: Connection) -> Any:
        return pragma(connection, "synchronous")

    try:
        assert store.retried(synchronous, lasting=False) == NORMAL
        assert store.retried(synchronous) == FULL
        assert store.retried(synchronous, lasting=False) == NORMAL
        with store.begin() as connection:
            assert synchronous(connection) == FULL
        assert asked(store, "PRAGMA synchronous") == FULL
    finally:
        store.close()


def test_a_store_in_memory_is_not_closed_while_it_is_used() -> None:
    """SQLite would end the process."""
    store = MemoryStore()
    closing = threading.Thread(target=store.close)
    with store.begin() as connection:
        closing.start()
        closing.join(0.05)  # more than it needs where it does not wait
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    closing.join(PATIENCE)
    assert not closing.is_alive()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.engine.raw_connection().cursor()


def test_postgres_waits_for_its_disk_whatever_the_server_says(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', "
            "current_database()); END $$"
        )
    store = connect(url)
    try:
        assert asked(store, "SHOW synchronous_commit") == "on"
        assert asked(store, "SHOW plan_cache_mode") == "force_custom_plan"
        with store.begin() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        with store.read() as connection:  # the server's own setting is what we think it is
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off"
    finally:
        store.close()


def test_postgres_does_not_wait_for_the_disk_where_it_need_not(postgres: PostgresServer) -> None:
    store = connect(postgres.new_database())

    def synchronous(connection: Connection) -> Any:
        return connection.exec_driver_sql("SHOW synchronous_commit").scalar()

    try:
        assert store.retried(synchronous, lasting=False) == "off"
        assert store.retried(synchronous) == "on"
    finally:
        store.close()


def test_a_network_that_is_gone_without_a_word_is_noticed(postgres: PostgresServer) -> None:
    """By every connection: the writer's, readers' and administration's."""
    store: Any = connect(postgres.new_database())
    wanted = {
        "connect_timeout": "3",
        "tcp_user_timeout": "10000",
        "keepalives": "1",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
    }

    def told(connection: psycopg.Connection[Any]) -> dict[str, str]:
        set_here = {option.keyword.decode(): option.val for option in connection.pgconn.info}
        return {name: (set_here[name] or b"").decode() for name in wanted}

    try:
        with store.hot():
            assert told(store._hot) == wanted
        for opened in (store.begin, store.read):
            with opened() as connection:
                assert told(connection.connection.driver_connection) == wanted
    finally:
        store.close()


@pytest.mark.parametrize("limit", [1, 3])
def test_old_replies_are_forgotten(tmp_path: Path, limit: int) -> None:
    """An answer is kept for the time that was asked for, and not for ever."""
    store = connect(f"sqlite:///{tmp_path / 'new.db'}")
    now = 10**15

    def reserved(key: bytes, at: int, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr("deniable.storage.times.now", lambda: at)
        with store.begin() as connection:
            return idempotency.reserve(
                connection, key, b"same", forget_seconds=100 * limit, stale_seconds=10
            )

    with pytest.MonkeyPatch.context() as patch:
        assert reserved(b"first", now, patch) is None
        with store.begin() as connection:
            idempotency.finish(connection, b"first", 200, b"answer")
        later = now + 100 * limit * 1_000_000
        kept = reserved(b"first", later, patch)
        assert (kept.status, kept.body) == (200, b"answer")
        assert reserved(b"other", later + 1, patch) is None  # which removes what is too old
        with store.read() as connection:
            assert connection.execute(select(func.count()).select_from(replies)).scalar_one() == 1
        # A reservation that was never finished is taken over after `stale_seconds`.
        assert reserved(b"other", later + 9_000_000, patch).status == 0
        assert reserved(b"other", later + 12_000_000, patch) is None
    store.close()


@pytest.mark.parametrize("heads_first", [True, False])
def test_a_transaction_that_fails_leaves_nothing(
    postgres: PostgresServer, heads_first: bool
) -> None:
    """However it began: with the heads of experiments, or with another statement."""
    store = connect(postgres.new_database())
    experiment, writer = bytes(16), 7

    def answer(transaction: HotTransaction) -> None:
        if heads_first:
            assert transaction.heads([experiment]) == {}
        transaction.answered(experiment, writer, 1)

    def answers() -> int:
        with store.read() as connection:
            return connection.execute(select(func.count()).select_from(stored_answers)).scalar_one()

    try:
        with suppress(ZeroDivisionError), store.hot() as transaction:
            answer(transaction)
            raise ZeroDivisionError
        assert answers() == 0
        with store.hot() as transaction:
            answer(transaction)
        assert answers() == 1
        with store.hot():
            pass  # nothing was asked, nothing was begun
    finally:
        store.close()

"""A writer that began on a nearly empty table still looks visitors up by their key once it is large."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.patience import eventually
from tests.postgres import PostgresServer

from deniable.storage import experiments
from deniable.storage import postgres as module
from deniable.storage.connect import connect
from deniable.storage.postgres import PostgresStore
from deniable.storage.store import NewDecision, NewDecisions

ROWS = 20_000
LOOKUPS = 10
EXPERIMENT = bytes(16)
ALL_AT_ONCE = (
    b"SELECT visitor, id, shown, table_number IS NULL FROM decisions "
    b"WHERE visitor = ANY(%b::bytea[]) AND experiment_id = %b"
)


def test_lookups_do_not_read_the_table(postgres: PostgresServer) -> None:
    assert _rows_read(postgres.new_database()) < ROWS


def test_a_kept_plan_would_read_it_every_time(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the server may keep a plan of the nearly empty table that scans it."""
    monkeypatch.setattr(module, "_STORED", ALL_AT_ONCE)
    settings = module._SETTINGS.replace(module._PLANS, b"SET plan_cache_mode = auto")
    monkeypatch.setattr(module, "_SETTINGS", settings)
    assert _rows_read(postgres.new_database()) > ROWS * LOOKUPS / 2


def test_lookups_of_large_batches_do_not_read_the_table(postgres: PostgresServer) -> None:
    assert _rows_read(postgres.new_database(), keys=3_000) < ROWS


def test_one_condition_for_all_keys_would_read_it(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: with so many keys, one pass over the table looks cheaper to the server."""
    monkeypatch.setattr(module, "_STORED", ALL_AT_ONCE)
    assert _rows_read(postgres.new_database(), keys=3_000) > ROWS * LOOKUPS / 2


def test_statements_stay_prepared_after_a_refusal(postgres: PostgresServer) -> None:
    store = connect(postgres.new_database())
    assert isinstance(store, PostgresStore)
    try:
        for _ in range(12):
            with suppress(LookupError), store.begin() as connection:
                experiments.everything(connection)
                raise LookupError
            with suppress(LookupError), store.hot() as transaction:
                transaction.chain(0, b"nobody")
                raise LookupError
        with store.read() as connection:
            assert _prepared(connection.exec_driver_sql) > 0
        with store.hot():
            assert store._hot is not None
            assert _prepared(store._hot.execute) > 0
    finally:
        store.close()


def _prepared(execute: Callable[[Any], Any]) -> int:
    """Statements of the product, run often, that the server has prepared on this connection."""
    found = execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE left(statement, 6) = 'SELECT'"
    )
    (count,) = found.fetchone()
    return int(count)


def _rows_read(url: str, keys: int = 32) -> int:
    """Rows of `decisions` that a writer's lookups of unknown visitors read, by any plan."""
    connect(url).close()  # migrated
    store = PostgresStore(url)
    for number in range(
        12
    ):  # the driver prepares after 5 runs, the server keeps a plan after 5 more
        _add(store, number, 1)
        _look_up(store)
    _add(store, 12, ROWS)
    for _ in range(LOOKUPS):
        _look_up(store, keys)
    store.close()
    return _settled(url)


def _add(store: PostgresStore, first: int, count: int) -> None:
    with store.hot() as transaction:
        rows = [_row(number) for number in range(first, first + count)]
        assert transaction.add_decisions(NewDecisions(EXPERIMENT, 1, 1, 1, 1, rows)) == count


def _look_up(store: PostgresStore, keys: int = 32) -> None:
    with store.hot() as transaction:
        assert transaction.stored(EXPERIMENT, [os.urandom(16) for _ in range(keys)]) == {}


def _row(number: int) -> NewDecision:
    identity = number.to_bytes(16, "big")
    visitor, salt = os.urandom(16), bytes(16)
    return NewDecision(identity, visitor, salt, 0, 0, 0, number, bytes(32))


def _settled(url: str) -> int:
    """The server has counted all that a session did once the session is gone: wait for that."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:

        def number(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])

        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        eventually(lambda: number(others) == 0, "the writer's session has ended")
        where = "WHERE relname = 'decisions'"
        assert number(f"SELECT n_tup_ins FROM pg_stat_user_tables {where}") >= ROWS
        return number(
            f"SELECT coalesce(seq_tup_read, 0) FROM pg_stat_user_tables {where}"
        ) + number(f"SELECT coalesce(sum(idx_tup_read), 0)::int8 FROM pg_stat_user_indexes {where}")

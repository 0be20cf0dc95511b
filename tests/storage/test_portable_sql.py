"""No statement of the store uses what Citus, CockroachDB or YugabyteDB lack."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import UniqueConstraint, create_engine
from sqlalchemy.schema import CreateTable
from tests.patience import eventually
from tests.portable_sql import LACKS, SPREAD, Lack, lacking, watching
from tests.postgres import PostgresServer
from tests.service.support import published

from deniable.service.service import open as open_service
from deniable.storage import postgres as postgres_store
from deniable.storage.connect import connect
from deniable.storage.schema import metadata


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.what)
def test_each_lack_has_a_source_and_is_found(lack: Lack) -> None:
    assert lack.source.startswith("https://")
    assert lack.what in lacking(lack.example)
    assert lack.what in lacking(f"SELECT 1; {lack.example}")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'LISTEN; pg_advisory_lock(1)'",
        "SELECT listener FROM notifications",
        "INSERT INTO answers (hour) VALUES (%s) ON CONFLICT DO NOTHING",
        "SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '30s'",
        "SELECT id FROM experiments WHERE key = %s FOR UPDATE",
    ],
)
def test_what_all_have_is_not_found(statement: str) -> None:
    assert lacking(statement) == []


def test_the_whole_life_of_a_store_is_portable(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first migration to the last export; the other tests on PostgreSQL are watched too."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    with watching() as watch, open_service(postgres.new_database()) as service:
        service.firm.set(budget=9)
        service.firm.set(budget=10, reason="more")
        for key, strategy in (("hero", "constant"), ("banner", "joint")):
            service.experiments.create(
                key, arms=["a", "b", "c"], segments=["x", "y"], budget=1, strategy=strategy
            )
        service.experiments.replan({"banner": (10**9, "dynamic")})
        service.experiments.create("never", arms=["a", "b"], segments=["x"], budget=1)
        service.experiments.discard("never")
        service.experiments.start("hero")
        service.experiments.start("banner")
        for key in ("hero", "banner"):
            shown = service.decide_batch(key, [(f"v{n}", "xy"[n % 2]) for n in range(150)])
            service.reward_batch([(one.id, 1) for one in shown])
            service.reward_batch([(one.id, 1) for one in shown])
            published(service, key)
        service.experiments.pause("hero")
        service.experiments.resume("hero")
        service.experiments.switch_off("hero", "a")
        service.visitors.erase(["v1", "v2"])
        service.visitors.known("v3")
        _, key_of = service.keys.create("web", ["decide"])
        service.keys.revoke(key_of.id)
        service.experiments.results("hero")
        service.experiments.counts("banner")
        service.ledger.export(tmp_path / "some.parquet", experiment="hero", shape="private")
        service.ledger.export_log(tmp_path / "log.parquet")
        stopped = service.experiments.stop("banner", promote="b").stopped_at
        assert stopped is not None
        service.visitors.purge(before=stopped, running=False)
        assert service.ledger.verify().sound
        service.audits.run("hero", record=True)
        service.audits.firm(record=True)
        eventually(service.ready, "a probe passes")
    assert watch.problems == []
    sent = " ".join(sorted(watch.statements)).lower()
    for start in ("create table", "insert into", "update", "delete from", "select"):
        assert f"{start} " in sent, start
    for table in metadata.tables:
        assert table in sent
    known = vars(postgres_store).values()
    hot = [value.decode() for value in known if isinstance(value, bytes)]
    assert len(hot) > 8
    assert all(lacking(statement) == [] for statement in hot)


def test_a_statement_that_is_not_portable_fails_where_it_is_sent(postgres: PostgresServer) -> None:
    store = connect(postgres.new_database())
    try:
        with watching() as watch, pytest.raises(AssertionError, match="advisory locks"):
            store.retried(lambda c: c.exec_driver_sql("SELECT pg_advisory_xact_lock(1)"))
        assert len(watch.problems) == 1
    finally:
        store.close()
    with watching() as watch, psycopg.connect(postgres.url("postgres")) as mine:
        mine.execute("SELECT pg_advisory_xact_lock(1)")  # not the store's
    assert watch.problems == []


def test_the_schema_can_be_spread_by_experiment() -> None:
    """Citus: every key holds the column by which rows are spread. CockroachDB: there is a key."""
    dialect = create_engine("postgresql+psycopg://").dialect
    for table in metadata.tables.values():
        assert table.primary_key.columns
        ddl = str(CreateTable(table).compile(dialect=dialect))
        assert lacking(ddl) == [], table.name
    for name in SPREAD:
        table = metadata.tables[name]
        assert next(iter(table.primary_key.columns)).name == "experiment_id"
        unique = [c for c in table.constraints if isinstance(c, UniqueConstraint)]
        assert all("experiment_id" in constraint.columns for constraint in unique)
        assert not table.foreign_keys

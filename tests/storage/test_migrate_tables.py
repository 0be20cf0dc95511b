"""From 0003 to published tables: what was promised and counted stays, and the ledger verifies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, inspect, select, text
from tests.postgres import PostgresServer
from tests.storage.old_store import KEY, NAT, OldStore

from deniable.service.ids import VisitorHash
from deniable.service.service import open as open_service
from deniable.storage import account, account_rules, experiments, ledger, promises, times
from deniable.storage.account_rules import DAY
from deniable.storage.connect import connect, migrate
from deniable.storage.postgres import PostgresStore
from deniable.storage.records import MICRO
from deniable.storage.schema import commitments, counters, decisions, rewards
from deniable.storage.sqlite import SqliteStore

pytestmark = pytest.mark.usefixtures("real_migrations")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database without tables."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", KEY.hex())
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


def _engine(url: str) -> Engine:
    """As the store has it: on SQLite, too, a change of tables is part of the transaction."""
    if url.startswith("sqlite"):
        return SqliteStore(url.removeprefix("sqlite:///")).engine
    return PostgresStore(url).engine


@contextmanager
def old_store(url: str, revision: str = "0003") -> Iterator[OldStore]:
    engine = _engine(url)
    with engine.begin() as connection:
        store = OldStore(connection)
        store.make(revision)
        yield store
    engine.dispose()


@contextmanager
def migrated(url: str) -> Iterator[Connection]:
    store = connect(url)
    with store.begin() as connection:
        yield connection
    store.close()


def fill(store: OldStore) -> None:
    """A group of three (two live), a stopped experiment, a draft; erasures with a debit."""
    store.firm(10 * NAT)
    for key in ("left", "right", "over"):
        store.create(key, group="page")
        store.start(key)
    store.create("alone", budget_nano=2 * NAT)
    store.start("alone", 2 * NAT)
    store.create("draft")
    for number in range(30):
        store.decide("alone", f"v{number}", number % 2, number % 2, (None, 0, 1)[number // 2 % 3])
        store.decide("left", f"v{number}", number % 2, 0, number % 2)
    for number in range(3):
        store.decide("right", f"w{number}", -1, 1)
        store.member("page", f"w{number}", "right")
    erased = store.decide("alone", "gone", 0, 0, 1)
    store.erase("alone", erased, NAT // 2)
    store.stop("over", winner="b")


def test_the_ledger_verifies(url: str) -> None:
    with old_store(url) as store:
        fill(store)
    with migrated(url) as connection:
        found = ledger.verify(connection, {})
        assert found.problem is None
        assert (found.decisions, found.erased) == (64, 1)
        names = set(inspect(connection).get_table_names())
        assert not names & {"periods", "clocks", "old_rewards", "old_counters"}


def test_rewards_are_chained_in_millionths(url: str) -> None:
    with old_store(url) as store:
        fill(store)
    with migrated(url) as connection:
        rows = connection.execute(select(rewards).order_by(rewards.c.seq)).all()
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert {row.metric for row in rows} == {0}
        assert {row.value for row in rows} == {0, MICRO}
        assert rows[0].writer_id not in (0, 77)
        connection.execute(rewards.update().where(rewards.c.seq == 5).values(value=7))
        broken = ledger.verify(connection, {})
        assert (broken.seq, broken.chain) == (5, str(rows[0].writer_id))


def test_counters_belong_to_no_table(url: str) -> None:
    with old_store(url) as store:
        fill(store)
    with migrated(url) as connection:
        alone = bytes.fromhex(experiments.by_key(connection, "alone").id)
        rows = connection.execute(
            select(counters).where(counters.c.experiment_id == alone).order_by(counters.c.segment)
        ).all()
        assert [row[1:7] for row in rows] == [(0, 0, 0, 0, 0, 77), (0, 0, 1, 1, 0, 77)]
        # The erased visitor stays in shows and value, as before; its reward was deleted with it.
        assert [(row.shows, row.rewarded) for row in rows] == [(16, 10), (15, 10)]
        assert rows[0].value == rows[1].value + MICRO


def test_what_counts_is_carried_over(url: str) -> None:
    with old_store(url) as store:
        fill(store)
    with migrated(url) as connection:
        firm = account.current_firm(connection)
        assert (firm.budget_nano, firm.window_days) == (10 * NAT, 90)
        # The group costs 1 (its members are apart), `alone` 2, the debit of the erasure 1/2.
        assert firm.committed_nano == 7 * NAT // 2
        later = times.now() + 91 * DAY
        assert account_rules.total_nano(account.counting(connection, later)) == 3 * NAT
        bitmaps = [
            account_rules.slots_bitmap(experiments.by_key(connection, key).slots or b"")
            for key in ("left", "right")
        ]
        assert sorted(bitmaps) == [(1 << 500) - 1, ((1 << 500) - 1) << 500]
        assert account.free_slots(connection, "page") == []


def test_five_refills_count_after_the_migration(url: str) -> None:
    with old_store(url) as store:
        for number in range(5):
            store.firm(NAT)
            store.create(f"e{number}")
            store.start(f"e{number}")
            store.stop(f"e{number}")
    with migrated(url) as connection:
        firm = account.current_firm(connection)
        assert (firm.budget_nano, firm.committed_nano) == (NAT, 5 * NAT)


def test_promises_are_read_from_the_old_ledger(url: str) -> None:
    """A budget that was raised by an UPDATE before the migration does not become the promise."""
    with old_store(url) as store:
        fill(store)
        store.connection.execute(
            text("UPDATE experiments SET budget_nano = 5000000000 WHERE key = 'alone'")
        )
        store.connection.execute(text("UPDATE periods SET budget_nano = 50000000000"))
    with migrated(url) as connection:
        assert account.current_firm(connection).budget_nano == 10 * NAT
        for experiment in experiments.everything(connection):
            promise = promises.promise_of(connection, experiment)
            wrong = ["budget_nano"] if experiment.key == "alone" else []
            assert promises.differences(experiment, promise) == wrong
            assert promise.segments == ("x", "y")
        assert "budget_nano" in (ledger.verify(connection, {}).problem or "")
        over = promises.promise_of(connection, experiments.by_key(connection, "over"))
        assert (over.status, over.winner) == ("stopped", "b")


def test_known_visitors_keep_their_arm(url: str) -> None:
    """Also from 0002, where SQLite had another index of visitors."""
    with old_store(url, "0002") as store:
        fill(store)
    with open_service(url) as service:
        known = service.decide_batch("alone", [(f"v{number}", "x") for number in range(30)])
        assert [answer.arm for answer in known] == ["ab"[number % 2] for number in range(30)]
        new = service.decide("alone", "another", "x")
        service.reward(new.id, 1)
        service.reward(known[5].id, 1)  # the second one for this decision: not counted
        assert service.ledger.verify().problem is None
        assert service.visitors.erase(["v3", "another"]).decisions == 3
        assert service.ledger.verify().problem is None
    with migrated(url) as connection:
        alone = bytes.fromhex(experiments.by_key(connection, "alone").id)
        row = connection.execute(
            select(decisions).where(decisions.c.visitor == VisitorHash(KEY, alone)("v4"))
        ).one()
        assert (row.table_number, row.role, row.shown) == (None, None, 0)


def test_an_empty_store_has_no_entries(url: str) -> None:
    with migrated(url) as connection:
        assert connection.execute(select(commitments)).all() == []
        assert ledger.verify(connection, {}).sound


def test_a_failed_migration_leaves_the_store_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with old_store(url) as store:
        fill(store)
    engine = _engine(url)
    with monkeypatch.context() as planted:
        planted.setattr("deniable.storage.chain.commitment_hash", _fail)  # the last step of all
        with pytest.raises(RuntimeError, match="planted"):
            migrate(engine)
    with engine.begin() as connection:
        names = set(inspect(connection).get_table_names())
        assert {"periods", "clocks"} <= names
        assert not names & {"tables", "old_rewards"}
        assert connection.execute(text("SELECT count(*) FROM rewards")).scalar() == 50
    engine.dispose()
    with migrated(url) as connection:
        assert ledger.verify(connection, {}).sound


def _fail(*_arguments: object) -> bytes:
    raise RuntimeError("planted")


def test_a_migrated_experiment_can_grow(url: str, tmp_path: Path) -> None:
    """Decisions from before tables have the chances of the arms that there were."""
    with old_store(url) as store:
        fill(store)
    with open_service(url) as service:
        service.experiments.add_segment("alone", "z")
        service.experiments.add_arm("alone", "c")
        service.decide_batch("alone", [(f"new{i}", "xyz"[i % 3]) for i in range(30)])
        assert service.audits.run("alone").sound
        assert service.ledger.verify().problem is None
        path = tmp_path / "private.jsonl"
        service.ledger.export(path, experiment="alone", shape="private")
    told = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    old, new = ([one for one in told if (one["table"] is None) is early] for early in (True, False))
    assert (len(old), len(new)) == (30, 30)
    assert all(one["propensity_c"] == 0 for one in old)
    assert all(one["propensity_a"] + one["propensity_b"] == pytest.approx(1) for one in old)
    assert all(one["propensity_c"] > 0 for one in new)

"""The store is gone, hangs, is damaged or replaced: over HTTP, past every cache."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import psycopg
import pytest
from tests.patience import PATIENCE, eventually
from tests.postgres import PostgresServer
from tests.service.http.process import Server, serving, wait_until_ready
from tests.service.http.site import DECISIONS, EXPERIMENT, Site, running_site

from deniable.service.http.app import Options
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.schema import HEAD


def _prepare(service: Deniable) -> str:
    service.firm.set(budget=3.0)
    service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
    service.experiments.start(EXPERIMENT)
    return service.keys.create("test", ["admin"])[0]


def _becomes(site: Site, status: int) -> None:
    """What the store was found to be is remembered for a second."""
    eventually(lambda: site.client.get("/storez").status_code == status, f"storing is {status}")


def _check_outage(site: Site, kept: dict[str, Any]) -> None:
    """Decisions of the usual shape, rewards refused; pages and keys cannot be read."""
    for number in range(5):
        assert site.decide(f"new-{number}").keys() == {"decision", "arm"}
    assert {site.decide("v-1")["arm"] for _ in range(60)} == {"old", "new"}, "known ones too"
    reward = {"decision": kept["decision"], "value": 1}
    answer = site.client.post("/v1/rewards", json=reward, headers=site.headers("reward"))
    assert answer.status_code == 503
    _becomes(site, 503)
    unknown = {"Authorization": "Bearer dnb_never-seen"}
    answer = site.client.post(DECISIONS, json={"visitor": "v"}, headers=unknown)
    assert answer.status_code == 503
    for path in ("/healthz", "/readyz"):
        assert site.client.get(path).status_code == 200


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Iterator[tuple[Site, Path]]:
    """Nothing is remembered of API keys; every key was used once."""
    path = tmp_path / "store.db"
    with open_service(f"sqlite:///{path}") as service:
        _prepare(service)
        with running_site(service, Options(key_cache_seconds=0.0)) as site:
            _use_keys(site)
            yield site, path


def _use_keys(site: Site) -> None:
    for scope in ("decide", "reward"):
        site.client.post("/v1/rewards", json={}, headers=site.headers(scope))


def test_postgres_gone(own_postgres: PostgresServer) -> None:
    with open_service(own_postgres.new_database()) as service:
        _prepare(service)
        with running_site(service, Options(key_cache_seconds=0.0)) as site:
            _use_keys(site)
            kept = site.decide("v-1")
            own_postgres.crash()
            _check_outage(site, kept)
            own_postgres.start()
            _becomes(site, 200)
            assert site.decide("v-1") == kept
            assert service.ledger.verify().sound


def test_the_log_names_the_cause(
    own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_postgres.new_database()
    with open_service(url) as service:
        _prepare(service)
        service.decide(EXPERIMENT, "v", "a")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE decisions RENAME TO lost")
        service.decide(EXPERIMENT, "w", "a")
    (told,) = [record.message for record in caplog.records if "cannot be stored" in record.message]
    assert told == "decisions cannot be stored: PostgreSQL: UndefinedTable, by UndefinedTable 42P01"


def test_sqlite_file_moved_away_and_back(sqlite_site: tuple[Site, Path], tmp_path: Path) -> None:
    site, path = sqlite_site
    kept = site.decide("v-1")
    path.rename(tmp_path / "away.db")
    _check_outage(site, kept)
    (tmp_path / "away.db").rename(path)
    _becomes(site, 200)
    assert site.decide("v-1") == kept


def test_sqlite_file_replaced(sqlite_site: tuple[Site, Path], tmp_path: Path) -> None:
    """By a copy of itself: what is written to the old file would be lost."""
    site, path = sqlite_site
    kept = site.decide("v-1")
    shutil.copy(path, tmp_path / "copy.db")
    (tmp_path / "copy.db").rename(path)
    _check_outage(site, kept)


@pytest.mark.usefixtures("real_migrations")  # which table is in which page depends on them
def test_sqlite_file_damaged(sqlite_site: tuple[Site, Path]) -> None:
    """Cut to its first page: the schema can be read, nothing else."""
    site, path = sqlite_site
    kept = site.decide("v-1")
    with site.service._store.begin() as connection:
        connection.connection.execute("COMMIT")
        connection.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.connection.execute("BEGIN")
    os.truncate(path, 8 * 4096)
    _check_outage(site, kept)


def test_sqlite_file_truncated_in_place(sqlite_site: tuple[Site, Path]) -> None:
    site, path = sqlite_site
    kept = site.decide("v-1")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert site.decide("v-1") == kept
    os.truncate(path, path.stat().st_size - 4096)  # the last page, which is in every cache
    _check_outage(site, kept)


@pytest.mark.parametrize("files", [("-wal",), ("-wal", "-shm")])
@pytest.mark.parametrize("opened", [False, True])
def test_sqlite_log_deleted(tmp_path: Path, files: tuple[str, ...], opened: bool) -> None:
    """What was acknowledged is kept, and what comes after it is stored.

    Also if another process has opened the store meanwhile, which makes an empty log.
    """
    path = tmp_path / "store.db"
    with open_service(f"sqlite:///{path}") as service:
        _prepare(service)
        with running_site(service) as site:
            kept = {f"v-{number}": site.decide(f"v-{number}") for number in range(50)}
            for ending in files:
                Path(f"{path}{ending}").unlink()
            if opened:
                with closing(sqlite3.connect(path)) as other, suppress(sqlite3.Error):
                    other.execute("SELECT count(*) FROM decisions").fetchone()
            site.decide("neutral")
            assert service.figures.unstored > 0, "it was noticed"
            _becomes(site, 200)
            kept |= {f"w-{number}": site.decide(f"w-{number}") for number in range(50)}
            shutil.copy(path, tmp_path / "crashed.db")  # as if the process were killed now
            shutil.copy(f"{path}-wal", tmp_path / "crashed.db-wal")
    for name in ("store.db", "crashed.db"):
        shutil.copy(tmp_path / "store.db.key", tmp_path / "crashed.db.key")
        with open_service(f"sqlite:///{tmp_path / name}") as service:
            for visitor, decision in kept.items():
                stored = service.visitors.decisions(visitor)[EXPERIMENT]
                assert (stored.id, stored.arm) == (decision["decision"], decision["arm"])
            assert service.ledger.verify().sound


def test_sqlite_log_deleted_beside_another_process(tmp_path: Path) -> None:
    """Whoever writes first saves the log; the other one finds it, for reading and for writing."""
    path = tmp_path / "store.db"
    with open_service(f"sqlite:///{path}") as one, open_service(f"sqlite:///{path}") as other:
        _prepare(one)
        kept = {}
        for number in range(3):
            for service in (one, other):
                kept[f"v-{number}-{id(service)}"] = service.decide(
                    EXPERIMENT, f"v-{number}-{id(service)}", "a"
                )
            Path(f"{path}-wal").unlink()
            one.decide(EXPERIMENT, f"neutral-{number}", "a")
            assert len(other.ledger.entries()) == len(one.ledger.entries())
            eventually(lambda: one.ready() and other.ready(), "both store again")
        for service in (one, other):
            for visitor, decision in kept.items():
                assert service.visitors.decisions(visitor) == {EXPERIMENT: decision}
            assert service.ledger.verify().sound


def test_a_known_key_works_for_a_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_service(f"sqlite:///{path}") as service:
        _prepare(service)
        options = Options(key_cache_seconds=0.0, key_outage_seconds=0.0)
        with running_site(service, options) as site:
            site.decide("v-1")
            path.rename(tmp_path / "away.db")
            answer = site.client.post(
                DECISIONS, json={"visitor": "v-1"}, headers=site.headers("decide")
            )
            assert answer.status_code == 503
            (tmp_path / "away.db").rename(path)
            assert site.decide("v-1")


# -- a PostgreSQL that hangs ------------------------------------------------------------------


def _decide(server: Server, secret: str, visitor: str) -> httpx.Response:
    return httpx.post(
        server.url + DECISIONS,
        json={"visitor": visitor, "segment": "a"},
        headers={"Authorization": f"Bearer {secret}"},
        timeout=PATIENCE,
    )


@pytest.fixture
def hanging(own_postgres: PostgresServer, tmp_path: Path) -> Iterator[tuple[str, Path, str]]:
    """A store, a key file and an API key."""
    key = tmp_path / "key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    store = own_postgres.new_database()
    with open_service(store) as service:
        secret = _prepare(service)
    yield store, key, secret
    own_postgres.resume()


def test_postgres_hangs(
    own_postgres: PostgresServer, hanging: tuple[str, Path, str], tmp_path: Path
) -> None:
    store, key, secret = hanging
    flags = ("--key-file", str(key), "--key-cache-seconds", "0.1", "--shutdown-seconds", "5")
    with serving(tmp_path, *flags, store=store, patient=False) as server:
        first = _decide(server, secret, "v-1").json()
        own_postgres.hang()
        for number in range(5):
            answer = _decide(server, secret, f"w-{number}")
            assert (answer.status_code, answer.json().keys()) == (200, first.keys())
        assert httpx.get(f"{server.url}/storez", timeout=PATIENCE).status_code == 503
        assert httpx.get(f"{server.url}/readyz", timeout=PATIENCE).status_code == 200
        metrics = httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text
        assert "deniable_store_failing 1.0" in metrics
        own_postgres.resume()
        eventually(
            lambda: httpx.get(f"{server.url}/storez", timeout=PATIENCE).status_code == 200,
            "it stores again",
        )
        assert _decide(server, secret, "v-1").json() == first
        own_postgres.hang()
        _decide(server, secret, "v-2")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) in (0, 1)
    own_postgres.resume()
    with open_service(store) as service:
        assert service.ledger.verify().sound


# -- another version's schema ------------------------------------------------------------------


def _set_revision(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.commit()


def test_a_process_on_a_newer_schema_is_not_ready_and_says_why(
    sqlite_site: tuple[Site, Path],
) -> None:
    site, path = sqlite_site
    assert site.client.get("/readyz").status_code == 200
    _set_revision(path, "9999")
    eventually(lambda: site.client.get("/readyz").status_code == 503, "it is not ready")
    assert "revision 9999" in site.client.get("/readyz").json()["detail"]
    assert site.client.get("/healthz").status_code == 200
    assert site.decide("v-1"), "meanwhile it answers"
    _set_revision(path, HEAD)
    eventually(lambda: site.client.get("/readyz").status_code == 200, "it is ready again")


def test_a_service_waits_for_the_migration_of_its_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_service(f"sqlite:///{path}") as service:
        secret = _prepare(service)
    _set_revision(path, "0000")
    with serving(tmp_path, ready=False) as server:
        log = tmp_path / "log.jsonl"
        eventually(lambda: "run `deniable migrate`" in log.read_text(), "it says what to do")
        _set_revision(path, HEAD)
        wait_until_ready(server.url, server.process)
        assert _decide(server, secret, "v-1").status_code == 200


# -- a worker that starts while PostgreSQL is down --------------------------------------------


def test_a_worker_that_crashes_while_postgres_is_down_comes_back(
    own_postgres: PostgresServer, hanging: tuple[str, Path, str], tmp_path: Path
) -> None:
    """Also if it crashes again: the service does not end, and answers when the store is back."""
    store, key, secret = hanging
    with serving(tmp_path, "--key-file", str(key), store=store) as server:
        first = _decide(server, secret, "v-1").json()
        own_postgres.crash()
        _kill_worker(server)
        log = tmp_path / "log.jsonl"
        eventually(lambda: "waiting for the store" in log.read_text(), "a worker waits")
        time.sleep(6)  # Granian gives up on a worker that ends within 5.5 seconds
        _kill_worker(server)
        eventually(lambda: log.read_text().count("Respawning worker-1") == 2, "it is replaced")
        assert server.process.poll() is None
        own_postgres.start()
        wait_until_ready(server.url, server.process)
        assert _decide(server, secret, "v-1").json() == first
        assert server.terminate() == 0


def _kill_worker(server: Server) -> None:
    (worker,) = psutil.Process(server.process.pid).children()
    worker.kill()
    psutil.wait_procs([worker], PATIENCE)


def test_a_service_that_boots_before_its_database_waits_for_it(
    own_postgres: PostgresServer, hanging: tuple[str, Path, str], tmp_path: Path
) -> None:
    store, key, secret = hanging
    own_postgres.crash()
    with serving(tmp_path, "--key-file", str(key), store=store, ready=False) as server:
        log = tmp_path / "log.jsonl"
        eventually(lambda: "waiting for the store" in log.read_text(), "it waits")
        own_postgres.start()
        wait_until_ready(server.url, server.process)
        assert _decide(server, secret, "v-1").status_code == 200


def test_a_service_that_waits_for_its_database_can_be_ended(
    own_postgres: PostgresServer, hanging: tuple[str, Path, str], tmp_path: Path
) -> None:
    store, key, _ = hanging
    own_postgres.crash()
    try:
        with serving(tmp_path, "--key-file", str(key), store=store, ready=False) as server:
            log = tmp_path / "log.jsonl"
            eventually(lambda: "waiting for the store" in log.read_text(), "it waits")
            assert server.terminate() == 0
    finally:
        own_postgres.start()

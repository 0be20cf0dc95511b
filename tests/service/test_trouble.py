"""Trouble with the store or the entropy: closed, uniform answers of the same shape, then recovery."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.patience import PATIENCE, eventually
from tests.postgres import PostgresServer
from tests.service.support import running, serving, shows

from deniable.errors import EntropyError, StoreUnavailableError
from deniable.service import batch, engine
from deniable.service.batch import AT_ONCE
from deniable.service.jobs import Job, decide_job, reward_job
from deniable.service.service import Deniable
from deniable.service.service import open as open_service

SURE = 60
"""Uniform answers over three arms in a row: all of one arm by chance with 3^-59 < 1e-28."""


def check_uniform_and_unstored(service: Deniable, kept: dict[str, Any]) -> None:
    """While the store is in trouble: decisions of the usual shape, rewards refused."""
    answers = [service.decide("checkout", f"trouble-{i}", "a") for i in range(SURE)]
    assert {len(answer.id) for answer in answers} == {32}
    assert set(Counter(answer.arm for answer in answers)) == {"old", "new", "bold"}
    with pytest.raises(StoreUnavailableError):
        service.reward(kept["v0"].id, 1)
    assert not service.ready()


def check_recovered(service: Deniable, kept: dict[str, Any]) -> None:
    """After the trouble: ready without help, nothing lost, trouble's visitors drawn for once."""
    eventually(service.ready, "the service is ready again")
    for visitor, answer in kept.items():
        assert service.decide("checkout", visitor, "b") == answer
    first = service.decide("checkout", "trouble-0", "a")
    assert service.decide("checkout", "trouble-0", "b") == first
    assert shows(service) == len(kept) + 1
    assert service.ledger.verify().problem is None


def started(service: Deniable) -> dict[str, Any]:
    running(service, strategy="constant", budget=4.0)
    return {f"v{i}": service.decide("checkout", f"v{i}", "a") for i in range(5)}


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_postgres_down_and_up_again(own_postgres: PostgresServer, ending: str) -> None:
    with serving(own_postgres.new_database()) as service:
        kept = started(service)
        getattr(own_postgres, ending)()
        check_uniform_and_unstored(service, kept)
        own_postgres.start()
        check_recovered(service, kept)


def test_cut_connections_are_not_even_noticed(own_postgres: PostgresServer) -> None:
    with serving(own_postgres.new_database()) as service:
        kept = started(service)
        for _ in range(3):
            own_postgres.cut_connections()
            kept |= {f"w{len(kept)}": service.decide("checkout", f"w{len(kept)}", "a")}
            own_postgres.cut_connections()
            assert service.experiments.get("checkout").status == "running"
            own_postgres.cut_connections()
            service.experiments.note("checkout", "connections were cut")
        assert service.figures.unstored == 0
        check_recovered(service, kept)


def test_postgres_read_only(own_postgres: PostgresServer) -> None:
    url = own_postgres.new_database()
    name = url.split("/")[3].split("?")[0]
    with serving(url) as service:
        kept = started(service)
        own_postgres.admin(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        own_postgres.cut_connections()
        check_uniform_and_unstored(service, kept)
        own_postgres.admin(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        own_postgres.cut_connections()
        check_recovered(service, kept)


def sqlite_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    return serving(f"sqlite:///{tmp_path / 'store.db'}")


def test_sqlite_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`max_page_count` makes SQLite report a full disk exactly where a full disk would."""
    with sqlite_service(tmp_path, monkeypatch) as service:
        kept = started(service)
        store = service._store
        pages = store._hot.execute("PRAGMA page_count").fetchone()[0]
        real = sqlite3.connect

        def full(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(*args, **kwargs)
            connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        store._drop()
        monkeypatch.setattr(sqlite3, "connect", full)
        fill = [f"fill-{i}" for i in range(400)]  # needs more pages than there are
        service.decide_batch("checkout", [(visitor, "a") for visitor in fill])
        assert service.figures.unstored == len(fill)
        monkeypatch.setattr(sqlite3, "connect", real)
        store._drop()
        check_recovered(service, kept)


FILLED = """
import resource, sys
from deniable.service.service import open

with open(sys.argv[1]) as service:
    service.firm.set(budget=10)
    service.experiments.create("checkout", arms=["old", "new"], segments=["a"], budget=1)
    service.experiments.start("checkout")
    service.decide("checkout", "first", "a")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
    with service._store.read() as looking:  # a reader keeps the log from being removed
        for number in range(300):
            service.decide("checkout", f"v-{number}", "a")
    for number in range(300):
        before = service.figures.unstored
        service.decide("checkout", f"w-{number}", "a")
        if service.figures.unstored > before:
            assert any(service.ready() for _ in range(20)), "the log is not shortened"
    print(service.figures.unstored, service.figures.new_decisions)
    assert service.ledger.verify().sound
"""


def test_a_file_system_filled_by_the_write_ahead_log(tmp_path: Path) -> None:
    """No file may grow beyond 2 MB; the log reaches that long before it would be copied back."""
    done = subprocess.run(
        [sys.executable, "-c", FILLED, f"sqlite:///{tmp_path / 'store.db'}"],
        capture_output=True,
        text=True,
        env={**os.environ, "DENIABLE_VISITOR_KEY": "5a" * 32},
    )
    assert done.returncode == 0, done.stderr
    unstored, stored = map(int, done.stdout.split())
    assert unstored + stored == 601
    assert unstored > 0, "the log was full"
    assert stored > 300, "and is used again"


def test_sqlite_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite_service(tmp_path, monkeypatch) as service:
        kept = started(service)
        store = service._store
        real = sqlite3.connect

        def read_only(path: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(path, **kwargs)
            connection.execute("PRAGMA query_only = ON")
            return connection

        store._drop()
        monkeypatch.setattr(sqlite3, "connect", read_only)
        check_uniform_and_unstored(service, kept)
        monkeypatch.setattr(sqlite3, "connect", real)
        check_recovered(service, kept)


def test_a_writer_that_holds_the_file_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.storage import sqlite_connections

    monkeypatch.setattr(sqlite_connections, "BUSY_SECONDS", 0.05)
    with sqlite_service(tmp_path, monkeypatch) as service:
        kept = started(service)
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        check_uniform_and_unstored(service, kept)
        other.execute("ROLLBACK")
        other.close()
        check_recovered(service, kept)


def test_no_entropy(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be drawn: the default arm for everybody new, the stored arm is not even looked at."""
    with serving(store_url) as service:
        kept = started(service)

        def failing(_count: int) -> bytes:
            raise OSError("no entropy")

        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", failing)
            answers = [service.decide("checkout", f"new-{i}", "ab"[i % 2]) for i in range(20)]
            assert {answer.arm for answer in answers} == {"old"}
            assert len({answer.id for answer in answers}) == 20
            assert {len(answer.id) for answer in answers} == {32}
        check_recovered(service, kept)


@pytest.mark.parametrize("memory", [False, True])
def test_entropy_fails_in_the_middle_of_a_batch(
    store_url: str, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn before is undone: nobody is stored, and later everybody is drawn for once."""
    with serving("memory:" if memory else store_url) as service:
        kept = started(service)
        service.reward(kept["v0"].id, 1)
        calls = iter([os.urandom])

        much_later = time.monotonic() + 1000

        def failing_later(count: int) -> bytes:
            for first in calls:
                return first(count)
            # However long the failed batch took, the store is not what failed: no rest for it.
            patch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: much_later))
            raise EntropyError("no entropy")

        crowd = [(f"crowd-{i}", "ab"[i % 2]) for i in range(2 * AT_ONCE)]
        with monkeypatch.context() as patch:
            patch.setattr(batch, "system_bytes", failing_later)
            assert len(service.decide_batch("checkout", crowd)) == len(crowd)
            assert not list(calls), "the first part was drawn for"
        assert shows(service) == len(kept)
        assert service.ledger.verify().decisions == len(kept)
        check_recovered(service, kept)
        answers = service.decide_batch("checkout", crowd)
        assert service.decide_batch("checkout", crowd) == answers
        assert shows(service) == len(kept) + 1 + len(crowd)
        assert service.ledger.verify().problem is None


@pytest.mark.parametrize("memory", [False, True])
def test_a_reward_in_a_batch_that_fails_can_be_sent_again(
    store_url: str, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused together with decisions of another experiment, it counts once, when it is stored."""
    with serving("memory:" if memory else store_url) as service:
        two = sorted((running(service, key).id, key) for key in ("one", "other"))
        (_, first), (_, second) = two  # a batch goes through them in the order of their ids
        decision = service.decide(first, "v", "a")
        service.decide(second, "v", "a")
        finished = threading.Semaphore(0)

        def told(_job: Job) -> None:
            finished.release()

        def failing(_count: int) -> bytes:
            raise EntropyError("no entropy")

        reward = reward_job([(decision.id, 1)], told)
        with monkeypatch.context() as patch:
            patch.setattr(batch, "system_bytes", failing)
            service.writer.submit_all([reward, decide_job(second, ["w"], ["a"], told)])
            assert all(finished.acquire(timeout=PATIENCE) for _ in range(2))
        assert isinstance(reward.error, EntropyError)
        assert sum(cell.clicks for cell in service.experiments.counts(first)) == 0
        eventually(service.ready, "the store is tried again")  # not while it failed a moment ago
        for _ in range(2):
            service.reward(decision.id, 1)
        assert sum(cell.clicks for cell in service.experiments.counts(first)) == 1
        assert service.ledger.verify().problem is None


def test_the_visitor_key_file_is_made_once_and_kept_private(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "DENIABLE_VISITOR_KEY"}
    code = "import sys; from deniable.service.service import open; open(sys.argv[1]).close()"
    url = f"sqlite:///{tmp_path / 'store.db'}"
    starting = [
        subprocess.Popen([sys.executable, "-c", code, url], env=environment) for _ in range(6)
    ]
    assert [process.wait(PATIENCE) for process in starting] == [0] * 6
    key = tmp_path / "store.db.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(key.read_text().strip())) == 32
    # Two that close at the same moment may each leave the removal of the log to the other.
    logs = {"store.db-wal", "store.db-shm"}
    assert {path.name for path in tmp_path.iterdir()} - logs == {"store.db", "store.db.key"}


def test_open_says_plainly_that_the_store_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        open_service(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'store.db'}")
    with pytest.raises(StoreUnavailableError):
        open_service(f"postgresql://deniable@/none?host={tmp_path}", key_file=tmp_path / "key")

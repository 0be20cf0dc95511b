"""A restored backup draws for some visitors again: it is noticed, and everything counts once more."""

from __future__ import annotations

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from tests.passing import pass_until
from tests.service.support import running, serving

from deniable.cli import main
from deniable.errors import NANO, InsufficientBudgetError, StoreUnavailableError
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.account_rules import DAY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a backup, then more visitors, then it is gone; its last heads were noted."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("DENIABLE_STORE", url)
    with serving(url, budget=6) as service:
        running(service, "one", arms=["x", "y"], budget=1)
        running(service, "two", arms=["x", "y"], budget=1, layer="page")
        service.decide_batch("one", [(f"v{i}", "a") for i in range(20)])
        assert main(["backup", str(tmp_path / "copy.db")]) == 0  # while it is in use
        service.decide_batch("one", [(f"w{i}", "a") for i in range(20)])
        noted = service.ledger.verify().heads
    (tmp_path / "later.heads").write_text(json.dumps(noted))
    (tmp_path / "store.db").rename(tmp_path / "lost.db")
    return tmp_path


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_what_counts_is_committed_once_more(folder: Path) -> None:
    assert stat.S_IMODE((folder / "copy.db").stat().st_mode) == 0o600
    copy, later = str(folder / "copy.db"), str(folder / "later.heads")
    assert main(["restore", copy, "--heads", later]) == 0
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        # Two experiments again, and the 4 nats that may have been started since the backup.
        assert service.firm.current().committed_nano == 8 * NANO
        entry = next(entry for entry in service.ledger.entries() if entry.kind == "restore")
        assert json.loads(entry.detail)["lost"]
        assert service.ledger.verify().sound
        assert not service.ledger.verify(
            noted=json.loads((folder / "later.heads").read_text())
        ).sound
        service.experiments.create("three", arms=["x", "y"], segments=["a"], budget=0.1)
        with pytest.raises(InsufficientBudgetError):
            service.experiments.start("three")
        assert service.decide("one", "v1", "b").arm in ("x", "y")  # what runs goes on
        service.experiments.pause("one")
        assert service.experiments.resume("one").status == "running"


def shows_of(service: Deniable, key: str) -> list[int]:
    """How many shows each table of an experiment counts."""
    found = (json.loads(table.counts)["shows"] for table in service.experiments.tables(key))
    return [sum(map(sum, shows)) for shows in found]


def test_without_a_fixed_band_counts_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is drawn a second time is in no table; a fixed band bounds what such a table tells."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("DENIABLE_STORE", url)
    with serving(url, budget=20) as service:
        for key in ("joint", "constant"):
            running(service, key, arms=["x", "y"], segments=["a", "b"], strategy=key)
            shown = service.decide_batch(key, [(f"v{i}", "ab"[i % 2]) for i in range(150)])
            service.reward_batch([(one.id, int(one.arm == "x")) for one in shown])
            service.experiments.publish(key)
        service.experiments.pause("joint")
    assert main(["restore"]) == 0
    with open_service(url) as service:
        assert shows_of(service, "constant")[-1] > 0
        assert shows_of(service, "joint")[-2] > 0
        assert shows_of(service, "joint")[-1] == 0
        service.experiments.resume("joint")
        service.reward_batch([(one.id, 1) for one in shown])  # of earlier tables: no more
        for key in ("joint", "constant"):
            more = [(f"w{i}", "ab"[i % 2]) for i in range(130)]
            shown = service.decide_batch(key, more)
            service.reward_batch([(one.id, int(one.arm == "y")) for one in shown])
            service.experiments.publish(key)
            # Everything counts twice for a window, which may be more than the firm's budget.
            broken = [c.name for c in service.audits.run(key).checks if c.outcome == "broken"]
            assert broken == ["every window"]
        assert 0 < shows_of(service, "joint")[-1] <= 130
        assert shows_of(service, "constant")[-1] > 150
        assert service.ledger.verify().sound
        promise = service.audits.promise("joint")
        assert promise.restarts == (len(promise.tables) - 2,)


def test_it_counts_for_one_window(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["restore", str(folder / "copy.db")]) == 0
    start = times.now()
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        pass_until(monkeypatch, service.beat, start + 90 * DAY)
        assert service.firm.current().committed_nano == 8 * NANO
        pass_until(monkeypatch, service.beat, start + 91 * DAY)
        assert service.firm.current().committed_nano == 2 * NANO


def test_nothing_since_is_believed_only_without_a_later_head(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, later = str(folder / "copy.db"), str(folder / "later.heads")
    told = failed(capsys, "restore", copy, "--nothing-since", "--heads", later)
    assert "before its head noted at" in told
    assert main(["restore", "--nothing-since", "--heads", f"{copy}.heads"]) == 0
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        assert service.firm.current().committed_nano == 2 * NANO


def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy, other = str(folder / "copy.db"), folder / "other.heads"
    assert "already" in failed(
        capsys,
        "backup",
        copy,
        "--store",
        f"sqlite:///{folder / 'lost.db'}",
        "--key-file",
        str(folder / "store.db.key"),
    )
    assert "there is no file" in failed(capsys, "restore", str(folder / "none.db"))
    other.write_text("[]")
    assert "deniable backup" in failed(capsys, "restore", copy, "--heads", str(other))
    other.write_text(json.dumps({"commitments": "1:" + "00" * 32}))  # of another store
    assert "no longer holds" in failed(capsys, "restore", copy, "--heads", str(other))
    assert "move it away" in failed(capsys, "restore", copy)
    assert "pg_dump" in failed(capsys, "backup", copy, "--store", "postgresql://nobody@127.0.0.1/x")
    assert "pg_restore" in failed(
        capsys, "restore", copy, "--store", "postgresql://nobody@127.0.0.1/x"
    )
    assert "cannot be rotated" in failed(capsys, "keys", "rotate-visitor-key")


def test_a_backup_put_into_a_running_store_is_noticed(tmp_path: Path) -> None:
    """The file stays the same and nothing fails: only the process knows what it had stored."""
    url, copy = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "copy.db"
    with serving(url) as service:
        running(service, arms=["x", "y"])
        service.decide("checkout", "before", "a")
        with closing(sqlite3.connect(tmp_path / "store.db")) as store:
            with closing(sqlite3.connect(copy)) as backup:
                store.backup(backup)
            shown = service.decide_batch("checkout", [(f"v{n}", "a") for n in range(30)])
            with closing(sqlite3.connect(copy)) as backup:
                backup.backup(store)
        for _ in range(3):  # nor does it get used to it
            again = service.decide_batch("checkout", [(f"v{n}", "a") for n in range(30)])
            assert not {one.id for one in again} & {one.id for one in shown}
            assert not service.ready()
        assert service.figures.unstored == 90
        assert not service.visitors.stored("v1")  # from the neutral row, and not stored
        # Also while the store is not asked, for twice as long as it took to fail.
        for until in (0.0, float("inf")):
            service.writer.engine._skip_store_until = until
            with pytest.raises(StoreUnavailableError, match="deniable restore"):
                service.reward(shown[0].id, 1)


def test_a_backup_from_before_the_process_is_noticed(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "copy.db"
    with serving(url) as service:
        running(service, arms=["x", "y"])
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        with closing(sqlite3.connect(copy)) as backup:
            store.backup(backup)
        with open_service(url) as service:
            service.decide_batch("checkout", [(f"v{n}", "a") for n in range(30)])
            with closing(sqlite3.connect(copy)) as backup:
                backup.backup(store)
            service.decide_batch("checkout", [(f"v{n}", "a") for n in range(30)])
            assert service.figures.unstored == 30
    with open_service(url) as service:
        assert service.ledger.verify().decisions == 0

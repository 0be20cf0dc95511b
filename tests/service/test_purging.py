"""A purge where no service runs: fast, and the file becomes smaller."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete

from deniable.errors import ApprovalNeededError
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.erasure import MOST_ALONE
from deniable.storage.schema import decisions

VISITORS = 10_000
DAY = 86_400 * 10**6


def _visitors(path: Path) -> int:
    query = "SELECT count(*) FROM decisions WHERE visitor IS NOT NULL"
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(query).fetchone()[0])


def test_a_purge_where_no_service_runs_frees_the_disk(tmp_path: Path) -> None:
    """Of an experiment that no longer counts. A service that was idle meanwhile goes on."""
    path = tmp_path / "store.db"
    url, start = f"sqlite:///{path}", times.now()
    with open_service(url) as service:
        service.firm.set(budget=3.0, window_days=30)
        for key in ("old", "new"):
            service.experiments.create(key, arms=["x", "y"], segments=["a", "b"], budget=1)
            service.experiments.start(key)
        visitors = [(f"v{number}", "ab"[number % 2]) for number in range(VISITORS)]
        found = service.decide_batch("old", visitors)
        service.reward_batch((decision.id, 1) for decision in found[:1_000])
        service.experiments.stop("old")
        for day in range(0, 61, 6):
            with times.running_on(lambda day=day: start + day * DAY):  # type: ignore[misc]
                service.beat()
    with times.running_on(lambda: start + 60 * DAY), open_service(url) as service:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
        assert _visitors(path) == VISITORS
        done = service.visitors.purge(before=datetime.now(UTC) + timedelta(days=1))
        assert done.decisions == VISITORS
        purges = [entry for entry in service.ledger.entries() if entry.kind == "purge"]
        assert len(purges) == VISITORS // MOST_ALONE, "large transactions"
        assert path.stat().st_size < 0.95 * before
        assert _visitors(path) == 0
        assert service.decide("new", "somebody", "a").arm
        assert service.figures.unstored == 0, "a smaller file is not taken for one that was cut"
        assert service.ledger.verify().sound


def test_a_file_that_became_smaller_beside_a_process_that_only_reads(tmp_path: Path) -> None:
    """Such as the pages: it goes on, although the log has pages that the file does not have yet."""
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    with open_service(url) as reading:
        with open_service(url) as service:
            service.firm.set(budget=3.0)
            service.experiments.create("e", arms=["x", "y"], segments=["a"], budget=1)
            service.experiments.start("e")
            service.decide_batch("e", [(f"v{number}", "a") for number in range(2_000)])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
        assert reading.experiments.get("e").status == "running"
        with open_service(url) as service:
            with service._store.begin() as writing:
                writing.execute(delete(decisions))
            service._store.shrink()
            service.decide_batch("e", [(f"w{number}", "a") for number in range(2_000)])
            assert path.stat().st_size < before
            assert reading.experiments.get("e").status == "running"


def test_the_firms_retention_period_erases_old_visitors_of_stopped_experiments(
    tmp_path: Path,
) -> None:
    path, start = tmp_path / "store.db", times.now()
    with open_service(f"sqlite:///{path}") as service:
        service.firm.set(budget=3.0, window_days=30)
        for key in ("stopped", "running"):
            service.experiments.create(key, arms=["x", "y"], segments=["a", "b"], budget=1)
            service.experiments.start(key)
            service.decide_batch(key, [(f"v{number}", "a") for number in range(5)])
        service.experiments.stop("stopped")
        assert service.visitors.retain() is None, "nothing is erased without a period"
        service.firm.change_settings(retention_days=30)
        assert _erased_after(service, start, 29) == 0
        assert _erased_after(service, start, 31) == 5
        assert _visitors(path) == 5, "those of the running experiment"


def _erased_after(service: Deniable, start: int, days: int) -> int:
    with times.running_on(lambda: start + days * DAY):
        done = service.visitors.retain()
    assert done is not None
    return done.decisions


def test_a_shorter_retention_period_needs_a_second_person_where_erasing_does(
    tmp_path: Path,
) -> None:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        service.firm.change_settings(approve_erasure=True)
        with pytest.raises(ApprovalNeededError):
            service.firm.change_settings(retention_days=30)
        assert service.firm.settings().retention_days is None

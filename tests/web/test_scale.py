"""Many experiments and decisions: the overview lists them by the page and reads no decision for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from tests.web.filling import fill
from tests.web.site import HTML, running_site, sign_in

from deniable.service.service import open as open_service
from deniable.storage import commitments
from deniable.storage.records import Commitment
from deniable.storage.sqlite import SqliteStore
from deniable.web import monitor as watching
from deniable.web.listing import SIZE

EXPERIMENTS = 200
DECISIONS = 50_000


def test_the_overview_of_many_experiments_reads_no_decision(tmp_path: Path) -> None:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        fill(service, EXPERIMENTS, DECISIONS)
        assert isinstance(service._store, SqliteStore)
        read: dict[str, list[str]] = {"pages": [], "monitor": []}

        @event.listens_for(service._store.engine, "before_cursor_execute")
        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            watching = "monitor" in threading.current_thread().name
            read["monitor" if watching else "pages"].append(statement)

        with running_site(service) as site, site.client() as client:
            assert sign_in(client, site.secret("read")).status_code == 303
            page = client.get("/", headers=HTML)
            assert page.text.count('<tr role="row">') == SIZE + 1
            assert f"{EXPERIMENTS} experiments, page 1 of" in page.text
            asked = list(read["pages"])
            monitor = site.app.api.state.monitor
            monitor.look()
            assert len(monitor.health) >= 4
            service.audits.run("experiment-0")
    assert any("FROM counters" in statement for statement in asked)
    assert not [statement for statement in asked if "FROM decisions" in statement]
    # The test's own power: an audit does read them.
    assert any("FROM decisions" in statement for statement in read["pages"])


@pytest.mark.parametrize(
    "path", ["/", "/portfolio", "/experiments/experiment-1", "/ledger/promises/experiment-1"]
)
def test_a_page_reads_the_chain_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The entries of other experiments: they are many where a firm has many experiments."""
    read: list[tuple[str, bytes | None]] = []
    entry, commitment = commitments._entry, commitments._commitment

    def noted_entry(*row: Any) -> commitments.Entry:
        read.append((row[1], row[2]))
        return entry(*row)

    def noted_commitment(row: Any) -> Commitment:
        read.append((row.kind, row.experiment_id))
        return commitment(row)

    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        fill(service, 3, 36)
        other = bytes.fromhex(service.experiments.get("experiment-0").id)
        with running_site(service) as site, site.client() as client:
            assert sign_in(client, site.secret("read")).status_code == 303
            monkeypatch.setattr(commitments, "_entry", noted_entry)
            monkeypatch.setattr(commitments, "_commitment", noted_commitment)
            assert client.get(path, headers=HTML).status_code == 200
    assert read.count(("start", other)) == 1


def test_the_overview_of_very_many_does_not_wait_for_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that they are not checked yet, and tells what was found once they are."""
    monkeypatch.setattr(watching, "MANY", 2)
    monkeypatch.setattr(watching, "FIRST_SECONDS", 3600.0)
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        fill(service, 3, 6_000)
        with service._store.begin() as connection:
            connection.execute(text("UPDATE counters SET value = 0, square = 0"))
        with running_site(service) as site, site.client() as client:
            assert sign_in(client, site.secret("read")).status_code == 303
            silent = "visitors and not a single click reported"
            page = client.get("/", headers=HTML).text
            assert "has just started" in page
            assert silent not in page
            site.app.api.state.monitor.look()
            for found in (
                client.get("/", headers=HTML).text,
                client.get("/overview/live").json()["parts"]["alert-part"],
            ):
                assert "has just started" not in found
                assert found.count(silent) == 3

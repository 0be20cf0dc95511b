"""Many experiments and decisions: the overview lists them by the page and reads no decision for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sqlalchemy import event
from tests.web.filling import fill
from tests.web.site import HTML, running_site, sign_in

from deniable.service.service import open as open_service
from deniable.storage.sqlite import SqliteStore
from deniable.web.listing import SIZE

EXPERIMENTS = 200
DECISIONS = 50_000


def test_the_overview_of_many_experiments_reads_no_decision(tmp_path: Path) -> None:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        fill(service, EXPERIMENTS, DECISIONS)
        assert isinstance(service._store, SqliteStore)
        read: dict[str, list[str]] = {"pages": [], "watcher": []}

        @event.listens_for(service._store.engine, "before_cursor_execute")
        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            watching = "watch" in threading.current_thread().name
            read["watcher" if watching else "pages"].append(statement)

        with running_site(service) as site, site.client() as client:
            assert sign_in(client, site.secret("read")).status_code == 303
            page = client.get("/", headers=HTML)
            assert page.text.count('<tr role="row">') == SIZE + 1
            assert f"{EXPERIMENTS} experiments, page 1 of" in page.text
            asked = list(read["pages"])
            watcher = site.app.api.state.watcher
            watcher.look()
            assert len(watcher.health) >= 4
            service.audits.run("experiment-0")
    assert any("FROM counters" in statement for statement in asked)
    assert not [statement for statement in asked if "FROM decisions" in statement]
    # The test's own power: an audit does read them.
    assert any("FROM decisions" in statement for statement in read["pages"])

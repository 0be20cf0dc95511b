"""The overview does not grow with decisions: 200 experiments, and as many decisions as are asked for.

`DENIABLE_SCALE_DECISIONS=5000000` fills the store with five million, which takes minutes and
gigabytes; by default there are fewer.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from sqlalchemy import text
from tests.web.site import HTML, running_site, sign_in
from tests.web.watching import slowdown

from deniable.service.facade import Deniable
from deniable.service.facade import open as open_service

EXPERIMENTS = 200
DECISIONS = int(os.environ.get("DENIABLE_SCALE_DECISIONS", "50000"))
VISITORS = 5_000_000
MOST_SECONDS = 0.3

FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)
INSERT INTO decisions (experiment_id, id, visitor, salt, segment, greedy, shown, clock, risk_nano,
                       version, decided_at, writer_id, seq, commitment, hash)
SELECT :experiment, randomblob(16), randomblob(16), randomblob(16),
       i % 4, i % 3, abs(random()) % 3, i, 0, 1, 1, 1, i, zeroblob(32), zeroblob(32) FROM n
"""
COUNT = """
WITH RECURSIVE s(s) AS (SELECT 0 UNION ALL SELECT s + 1 FROM s WHERE s < 3),
               a(a) AS (SELECT 0 UNION ALL SELECT a + 1 FROM a WHERE a < 2)
INSERT INTO counters (experiment_id, segment, arm, writer_id, shows, clicks)
SELECT :experiment, s, a, 1, :shows, :shows / 10 FROM s, a
"""


def fill(service: Deniable) -> None:
    service.set_firm(budget=1_000)
    for number in range(EXPERIMENTS):
        made = service.create_experiment(
            f"experiment-{number}",
            arms=["a", "b", "c"],
            segments=["p", "q", "r", "s"],
            budget=1 + number % 3,
            strategy=("dynamic", "constant")[number % 2],
        )
        service.start(made.key)
        values = {"experiment": bytes.fromhex(made.id)}
        with service._store.begin() as connection:
            connection.execute(text(FILL), {**values, "number": DECISIONS // EXPERIMENTS})
            connection.execute(text(COUNT), {**values, "shows": VISITORS // EXPERIMENTS // 12})


def test_the_overview_answers_quickly(tmp_path: Path) -> None:
    """The best of nine visits, on a machine that may be busy with other work."""
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        fill(service)
        with running_site(service) as site, site.client() as client:
            assert sign_in(client, site.secret("read")).status_code == 303
            seconds = []
            for _ in range(9):
                start = time.perf_counter()
                page = client.get("/", headers=HTML)
                seconds.append(time.perf_counter() - start)
                assert page.status_code == 200
            assert page.text.count('<tr role="row">') == EXPERIMENTS + 1
            assert min(seconds) < MOST_SECONDS * slowdown(), seconds
            watcher = site.app.api.state.watcher
            watcher.look()
            assert len(watcher.health) >= 4
            found = f"best {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s"
            print(f"\noverview with {DECISIONS} decisions stored: {found}")  # noqa: T201

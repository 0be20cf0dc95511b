"""A store with many experiments and decisions, filled by the database itself: quick, not drawn."""

from __future__ import annotations

from sqlalchemy import text
from tests.service.support import published

from deniable.service.service import Deniable

_DECISIONS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)
INSERT INTO decisions (experiment_id, id, visitor, salt, segment, shown, table_number, role,
                       version, decided_at, writer_id, seq, commitment, hash)
SELECT :experiment, randomblob(16), randomblob(16), randomblob(16),
       i % 4, abs(random()) % 3, 1, 0, 1, 1, 1, i, zeroblob(32), zeroblob(32) FROM n
"""
_COUNTERS = """
WITH RECURSIVE s(s) AS (SELECT 0 UNION ALL SELECT s + 1 FROM s WHERE s < 3),
               a(a) AS (SELECT 0 UNION ALL SELECT a + 1 FROM a WHERE a < 2)
INSERT INTO counters (experiment_id, table_number, role, segment, arm, metric, writer_id,
                      shows, rewarded, value, square)
SELECT :experiment, 1, 0, s, a, 0, 1, :shows, :shows, :shows / 10 * 1000000, :shows / 10 * 1000000
FROM s, a
"""


def fill(service: Deniable, experiments: int, decisions: int) -> None:
    """Running experiments of 3 arms and 4 segments that share the decisions; SQLite only."""
    service.firm.set(budget=10_000)
    for number in range(experiments):
        made = service.experiments.create(
            f"experiment-{number}",
            arms=["a", "b", "c"],
            segments=["p", "q", "r", "s"],
            budget=1 + number % 3,
            strategy=("dynamic", "constant")[number % 2],
            planned_visitors=1_000_000,
        )
        service.experiments.start(made.key)
        published(service, made.key)  # figures for people are as of the last table
        share, values = decisions // experiments, {"experiment": bytes.fromhex(made.id)}
        with service._store.begin() as connection:
            connection.execute(text(_DECISIONS), {**values, "number": share})
            connection.execute(text(_COUNTERS), {**values, "shows": share // 12})

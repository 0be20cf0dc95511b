"""What the tests of the promise share: teaching an experiment, and reading what it published."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from tests.service.support import published

from deniable.privacy.tables import Row, decoded_table
from deniable.service.service import Deniable
from deniable.storage.schema import decisions

MOST = 2**64


def taught(
    service: Deniable, key: str, best: Mapping[str, str], *, visitors: int, name: str = "t"
) -> None:
    """Visitors of each segment, of whom those who see the best arm click; then the next table."""
    for segment, arm in best.items():
        shown = service.decide_batch(
            key, [(f"{name}{segment}{i}", segment) for i in range(visitors)]
        )
        service.reward_batch([(one.id, int(one.arm == arm)) for one in shown])
    published(service, key)


def rows_of(service: Deniable, key: str) -> list[Row]:
    """Every row of every table that was ever published; first that of unlisted segments."""
    width = len(service.experiments.get(key).arms)
    published = [decoded_table(table.rows, width) for table in service.experiments.tables(key)]
    return [row for table in published for row in (table.unlisted, *table.rows)]


def entries_of(service: Deniable, key: str) -> list[tuple[int, int, int, int]]:
    """(table, role, segment, shown) of every decision, in order."""
    identity = bytes.fromhex(service.experiments.get(key).id)
    columns = (decisions.c.table_number, decisions.c.role, decisions.c.segment, decisions.c.shown)
    with service._store.read() as connection:
        rows = connection.execute(
            select(*columns).where(decisions.c.experiment_id == identity).order_by(decisions.c.seq)
        ).all()
    return [(row[0], row[1], row[2], row[3]) for row in rows]

"""Looking up a visitor's decisions without ever drawing one."""

from __future__ import annotations

from sqlalchemy import select

from deniable.service.jobs import checked_visitor
from deniable.service.visitors import VisitorHash
from deniable.storage import experiments
from deniable.storage.records import Decision
from deniable.storage.schema import decisions
from deniable.storage.store import Store


class Lookups:
    """The part of `Deniable` that reads decisions."""

    _store: Store
    _key: bytes

    def stored_decisions(self, visitor: str) -> dict[str, Decision]:
        """Experiment key -> this visitor's decision, of those that run or are paused and have one.

        One statement for each such experiment, whatever it finds.
        """
        checked_visitor(visitor)
        found: dict[str, Decision] = {}
        with self._store.read() as connection:
            for experiment in experiments.everything(connection):
                if experiment.status not in ("running", "paused"):
                    continue
                identity = bytes.fromhex(experiment.id)
                row = connection.execute(
                    select(decisions.c.id, decisions.c.shown).where(
                        decisions.c.experiment_id == identity,
                        decisions.c.visitor == VisitorHash(self._key, identity)(visitor),
                    )
                ).one_or_none()
                if row is not None:
                    found[experiment.key] = Decision(row.id.hex(), experiment.arms[row.shown].key)
        return found

"""Scratch copies of experiments for `deniable audit live`: create, read back, remove."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from deniable.service.ids import DecisionIds
from deniable.service.table_making import first_table, recipe_of
from deniable.storage import commitments, experiments, promises, scratch, times
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.store import Store


@dataclass(frozen=True)
class StoredDraw:
    """A stored decision of a scratch copy, with indices of segment and arm."""

    id: str
    segment: int
    shown: int
    table: int
    role: int


class Scratch:
    """The part of `Deniable` that canaries use. It never changes the experiment itself."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key

    def make(self, key: str) -> tuple[Experiment, PublishedTable]:
        """Copy an experiment and its table: the one in force, or the first one of a draft."""

        def make(connection: Connection) -> tuple[Experiment, PublishedTable]:
            commitments.lock_chain(connection)
            for old in scratch.stale(connection):
                scratch.end(connection, old)
            experiment = experiments.by_key(connection, key)
            promises.check(connection, experiment)
            table = _table_in_force(connection, experiment)
            late_band = recipe_of(experiment).settled_band(json.loads(table.counts).get("floors"))
            return scratch.make(connection, experiment, table, late_band), table

        made = self._store.retried(make)
        with self._store.read() as connection:
            ended = scratch.ended(connection)
        self._sweep(ended)
        return made

    def stored(self, key: str, *, after: str = "", limit: int = 10_000) -> list[StoredDraw]:
        """Return its decisions after this one, in the order of the store."""
        with self._store.read() as connection:
            copy = scratch.by_key(connection, key)
            ids = DecisionIds(self._key, bytes.fromhex(copy.id))
            behind = ids.stored(bytes.fromhex(after)) if after else b""
            rows = scratch.stored(connection, copy, behind, limit)
        return [
            StoredDraw(ids.shown(row.id), row.segment, row.shown, row.table_number, row.role)
            for row in rows
        ]

    def remove(self, key: str) -> int:
        """Delete a copy and its decisions; return their number."""

        def end(connection: Connection) -> int:
            commitments.lock_chain(connection)
            return scratch.end(connection, scratch.by_key(connection, key))

        with self._store.read() as connection:
            identity = bytes.fromhex(scratch.by_key(connection, key).id)
        count = self._store.retried(end)
        self._sweep([identity])
        return count

    def _sweep(self, identities: Iterable[bytes]) -> None:
        """Delete what is left of copies that ended."""
        for identity in identities:
            while self._store.retried(partial(scratch.sweep, identity=identity)):
                pass


def _table_in_force(connection: Connection, experiment: Experiment) -> PublishedTable:
    if experiment.table_number:
        return experiments.published(connection, experiment, experiment.table_number)[0]
    nothing = [[0] * len(experiment.arms) for _ in experiment.segments]
    counts = {"shows": nothing, "rewards": nothing, "horizon": experiment.planned_visitors}
    return PublishedTable(
        number=1,
        version=experiment.version,
        strategy=experiment.strategy,
        published_at=times.as_datetime(commitments.moment(connection)),
        decisions=0,
        counts=json.dumps(counts, separators=(",", ":")).encode(),
        rows=first_table(experiment).encoded(),
    )

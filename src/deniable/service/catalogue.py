"""The experiments that a writer knows, kept as they are in the store.

An experiment's revision is checked in every batch, inside its transaction: what another process
changed (paused, stopped, an arm switched off) holds from the next decision on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection

from deniable.service.runtime import NEVER, Runtime
from deniable.storage import commitments, experiments
from deniable.storage.schema import experiments as table
from deniable.storage.store import HotTransaction, Store

REFRESH_SECONDS = 1.0
"""How old the other writers' counters may be."""


class Catalogue:
    """Runtimes by key and by the tag of their decisions' ids."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key
        self._by_key: dict[str, Runtime] = {}
        self._by_tag: dict[bytes, Runtime] = {}

    def get(self, key: str) -> Runtime | None:
        """What is known, current or not."""
        return self._by_key.get(key)

    def learn(self, keys: Iterable[str], tags: Iterable[bytes]) -> None:
        """Read the experiments that are asked for and not known yet."""
        new_keys = [key for key in keys if key not in self._by_key]
        new_tags = [tag for tag in tags if tag not in self._by_tag]
        if new_keys or new_tags:
            with self._store.read() as connection:
                self._keep(
                    connection, table.c.key.in_(new_keys) | table.c.tag.in_(_numbers(new_tags))
                )

    def current(
        self,
        transaction: HotTransaction,
        keys: Iterable[str],
        tags: Iterable[bytes],
        writer: int,
    ) -> list[Runtime]:
        """The known ones of these, as they are in this transaction, in the order of their ids."""
        wanted = {
            runtime.id: runtime
            for runtime in (
                *(self._by_key.get(key) for key in keys),
                *(self._by_tag.get(tag) for tag in tags),
            )
            if runtime is not None
        }
        heads = transaction.heads(sorted(wanted)) if wanted else {}
        stale = [i for i, head in heads.items() if head.revision != wanted[i].revision]
        if stale:
            with self._store.read() as connection:
                self._keep(connection, table.c.id.in_(stale))
        runtimes = [self._by_tag[identity[:4]] for identity in sorted(heads)]
        moment = time.monotonic()
        for runtime in runtimes:
            runtime.clock = heads[runtime.id].clock
            if moment - runtime.refreshed_at > REFRESH_SECONDS:
                runtime.count(transaction.counts(runtime.id), writer)
                runtime.refreshed_at = moment
        return runtimes

    def forget_counts(self) -> None:
        """Count every experiment anew before its next use."""
        for runtime in self._by_key.values():
            runtime.refreshed_at = NEVER

    def _keep(self, connection: Connection, condition: ColumnElement[bool]) -> None:
        ends = commitments.period_end(connection)
        for experiment in experiments.matching(connection, condition):
            runtime = Runtime(experiment, self._key, period_ends=ends)
            self._by_key[runtime.key] = runtime
            self._by_tag[runtime.id[:4]] = runtime


def _numbers(tags: Iterable[bytes]) -> list[int]:
    return [experiments.tag_of(tag) for tag in tags]

"""Looking up a visitor's decisions without ever drawing one."""

from __future__ import annotations

import hmac

from sqlalchemy import select, tuple_

from deniable.service.jobs import checked_visitor
from deniable.storage.records import Decision
from deniable.storage.schema import arms, decisions, experiments
from deniable.storage.store import Store

AT_ONCE = 5_000
"""Experiments in one statement; databases limit a statement's parameters."""


class Lookups:
    """The part of `Deniable` that reads decisions."""

    _store: Store
    _key: bytes

    def stored_decisions(self, visitor: str) -> dict[str, Decision]:
        """Experiment key -> this visitor's decision, of those that run or are paused and have one.

        Two statements, whatever they find: the experiments, then the decisions in all of them.
        """
        checked_visitor(visitor)
        named = visitor.encode()
        found: dict[str, Decision] = {}
        with self._store.read() as connection:
            open_ones = connection.execute(
                select(experiments.c.id).where(experiments.c.status.in_(("running", "paused")))
            ).scalars()
            # The same as `VisitorHash`, which is for many visitors of one experiment.
            pairs = [
                (identity, hmac.digest(self._key, identity + named, "sha256")[:16])
                for identity in open_ones
            ]
            for start in range(0, len(pairs), AT_ONCE):
                wanted = pairs[start : start + AT_ONCE]
                rows = connection.execute(
                    select(experiments.c.key, decisions.c.id, arms.c.key)
                    .join_from(
                        decisions, experiments, experiments.c.id == decisions.c.experiment_id
                    )
                    .join(
                        arms,
                        (arms.c.experiment_id == decisions.c.experiment_id)
                        & (arms.c.position == decisions.c.shown),
                    )
                    .where(tuple_(decisions.c.experiment_id, decisions.c.visitor).in_(wanted))
                    .order_by(experiments.c.created_at)
                )
                found |= {key: Decision(identity.hex(), arm) for key, identity, arm in rows}
        return found

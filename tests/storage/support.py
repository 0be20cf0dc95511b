"""Experiments, decisions, rewards and tables written straight into a store, as the service would."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, insert, select, update

from deniable.privacy.tables import Band, Table, band
from deniable.storage import (
    account,
    chain,
    commitments,
    experiments,
    promise_entries,
    times,
)
from deniable.storage.account_rules import HOUR
from deniable.storage.chain import GENESIS
from deniable.storage.records import MICRO, Arm, Experiment, Metric, Role
from deniable.storage.schema import answers, counters, decisions, metadata, rewards, tables, writers

NAT = 10**9
KEY = b"k" * 32
CAPS = (MICRO, 50 * MICRO)
"""Of the metrics that a draft has."""


def empty_store() -> Engine:
    """A store in memory at the present schema, with its empty chain of commitments."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(writers).values(id=0, lease_until=0, seq=0, head=GENESIS))
    return engine


def draft(
    connection: Connection,
    key: str,
    *,
    budget_nano: int = NAT,
    arm_budgets: Sequence[int] | None = None,
    names: Sequence[str] = ("x", "y"),
    layer: str | None = None,
    holdout: int = 0,
    metrics: Sequence[Metric] = (Metric(), Metric("spend", CAPS[1])),
) -> Experiment:
    """A new draft with its entry in the ledger."""
    planned = Experiment(
        id="",
        key=key,
        status="draft",
        arms=tuple(Arm(f"arm{i}", "", nano) for i, nano in enumerate(arm_budgets or (None, None))),
        segments=tuple(names),
        strategy="constant",
        budget_nano=budget_nano,
        planned_visitors=None,
        mask=None,
        sticky=True,
        layer=layer,
        slots=None,
        holdout=holdout,
        default_arm="arm0",
        attribution_seconds=3600,
        metrics=tuple(metrics),
        contexts=(),
        observed=True,
        version=1,
        winner=None,
        table_number=0,
        has_tombstones=False,
        created_at=times.as_datetime(times.now()),
        started_at=None,
        stopped_at=None,
        revision=1,
    )
    made = experiments.insert_draft(connection, planned)
    commitments.record(connection, "create", made, **promise_entries.create_detail(made))
    return made


load = experiments.by_key
changed = experiments.change


def fixed_band(experiment: Experiment) -> Band:
    return band(experiment.budgets)


def start(connection: Connection, experiment: Experiment, share: int = 1000) -> Experiment:
    """draft -> running, at the firm's cost, with its first table."""
    slots = None
    if experiment.layer is not None:
        slots = account.take_slots(connection, experiment.layer, share)
    detail = promise_entries.rows_detail(fixed_band(experiment), fixed_band(experiment).neutral)
    account.commit(connection, experiment, "start", slots, **detail)
    running = changed(
        connection,
        experiment,
        status="running",
        slots=slots,
        started_at=times.as_datetime(times.now()),
    )
    return publish(connection, running)


def publish(connection: Connection, experiment: Experiment) -> Experiment:
    """The next table: the neutral row for everybody."""
    fixed = fixed_band(experiment)
    table = Table((fixed.neutral,) * len(experiment.segments), fixed.neutral)
    counts, number, at = b"[]", experiment.table_number + 1, times.now()
    detail = promise_entries.table_detail(
        number, experiment.version, table, counts, 0, experiment.strategy, at
    )
    commitments.record(connection, "table", experiment, **detail)
    connection.execute(
        insert(tables).values(
            experiment_id=bytes.fromhex(experiment.id),
            number=number,
            version=experiment.version,
            strategy=experiment.strategy,
            published_at=at,
            decisions=0,
            counts=counts,
            rows=table.encoded(),
        )
    )
    return changed(connection, experiment, table_number=number)


def stop(connection: Connection, experiment: Experiment) -> Experiment:
    detail = promise_entries.stop_detail(
        None, account.last_hour(connection, bytes.fromhex(experiment.id))
    )
    commitments.record(connection, "stop", experiment, **detail)
    return changed(
        connection, experiment, status="stopped", stopped_at=times.as_datetime(times.now())
    )


@dataclass
class Writer:
    """A chain of decisions and rewards, extended as the service does it."""

    id: int = 7
    seq: int = 0
    head: bytes = GENESIS

    def begin(self, connection: Connection) -> None:
        values = {"id": self.id, "lease_until": 0, "seq": 0, "head": GENESIS}
        connection.execute(insert(writers).values(**values))

    def decide(
        self,
        connection: Connection,
        experiment: Experiment,
        visitor: bytes,
        segment: int,
        shown: int,
        role: Role = Role.MEMBER,
    ) -> bytes:
        """A new decision; returns its id."""
        self.seq += 1
        identity, salt = bytes.fromhex(experiment.id), os.urandom(16)
        decision, now = identity[:4] + os.urandom(12), times.now()
        committed = chain.salted_hash(visitor, salt, segment, shown)
        self.head = chain.decision_hash(
            self.head,
            identity,
            decision,
            experiment.version,
            experiment.table_number,
            role,
            now,
            self.id,
            self.seq,
            committed,
        )
        connection.execute(
            insert(decisions).values(
                experiment_id=identity,
                id=decision,
                visitor=visitor,
                salt=salt,
                segment=segment,
                shown=shown,
                version=experiment.version,
                decided_at=now,
                writer_id=self.id,
                seq=self.seq,
                hash=self.head,
                table_number=experiment.table_number,
                role=role,
            )
        )
        self._count(connection, identity, decision, 0, shows=1)
        self._answer(connection, identity, now // HOUR)
        self._end(connection)
        return decision

    def _answer(self, connection: Connection, experiment: bytes, hour: int) -> None:
        key = {"experiment_id": experiment, "writer_id": self.id}
        known = connection.execute(select(answers.c.hour).filter_by(**key)).scalar()
        connection.execute(delete(answers).filter_by(**key))
        connection.execute(insert(answers).values(**key, hour=max(hour, known or 0)))

    def reward(self, connection: Connection, decision: bytes, value: int, metric: int = 0) -> None:
        row = connection.execute(select(decisions).where(decisions.c.id == decision)).one()
        self.seq += 1
        now = times.now()
        committed = chain.reward_salted_hash(row.salt, metric, value)
        self.head = chain.reward_hash(
            self.head, row.experiment_id, decision, metric, now, self.id, self.seq, committed
        )
        connection.execute(
            insert(rewards).values(
                experiment_id=row.experiment_id,
                decision_id=decision,
                metric=metric,
                value=value,
                rewarded_at=now,
                writer_id=self.id,
                seq=self.seq,
                hash=self.head,
            )
        )
        share = value / CAPS[metric]
        added = {"rewarded": 1, "value": value, "square": round(share * share * MICRO)}
        self._count(connection, row.experiment_id, decision, metric, **added)
        self._end(connection)

    def _count(
        self, connection: Connection, identity: bytes, decision: bytes, metric: int, **added: int
    ) -> None:
        row = connection.execute(select(decisions).where(decisions.c.id == decision)).one()
        key: dict[str, Any] = {
            "experiment_id": identity,
            "table_number": row.table_number,
            "role": row.role,
            "segment": row.segment,
            "arm": row.shown,
            "metric": metric,
            "writer_id": self.id,
        }
        here = [counters.c[name] == value for name, value in key.items()]
        found = connection.execute(
            update(counters)
            .where(*here)
            .values({name: counters.c[name] + value for name, value in added.items()})
        )
        if not found.rowcount:
            zeros = {"shows": 0, "rewarded": 0, "value": 0, "square": 0}
            connection.execute(insert(counters).values(**key, **{**zeros, **added}))

    def _end(self, connection: Connection) -> None:
        connection.execute(
            update(writers).where(writers.c.id == self.id).values(seq=self.seq, head=self.head)
        )

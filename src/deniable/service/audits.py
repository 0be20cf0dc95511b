"""Audits of stored experiments: promise and decisions, handed to `deniable.audit` as plain data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, select

from deniable.audit.promise import AuditedTable, Promise
from deniable.privacy.tables import decoded_table
from deniable.storage import commitments, experiments, promises
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.schema import decisions, rewards
from deniable.storage.store import Store

if TYPE_CHECKING:
    import polars as pl

    from deniable.audit.report import Audit

_PAGE = 20_000
_COLUMNS = ("visitor", "segment", "shown", "table", "role", "version", "reward")


class Audits:
    """The part of `Deniable` that checks what it promised."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def promise(self, key: str) -> Promise:
        """What an experiment promises, over all its versions."""
        with self._store.read() as connection:
            return _promise(connection, experiments.by_key(connection, key))

    def run(self, key: str, *, record: bool = False) -> Audit:
        """Check an experiment's promise exactly and against all its decisions.

        Args:
            key: the experiment.
            record: enter the verdict into the ledger, where it can be shown but not changed.
        """
        from deniable.audit.decisions import DecisionLog
        from deniable.audit.report import audit

        with self._store.read() as connection:
            experiment = experiments.by_key(connection, key)
            promise = _promise(connection, experiment)
            frame = _frame(connection, experiment)
        found = audit(promise, DecisionLog.from_frame(frame, promise))
        if record:
            self._record_audit(experiment, found)
        return found

    def _record_audit(self, experiment: Experiment, found: Audit) -> None:
        broken = [check.name for check in found.checks if check.outcome == "broken"]

        def work(connection: Connection) -> None:
            commitments.lock_chain(connection)
            commitments.record(
                connection,
                "audit",
                experiment,
                sound=found.sound,
                verdict=found.verdict,
                decisions=found.decisions,
                broken=broken,
            )

        self._store.retried(work)


def _promise(connection: Connection, experiment: Experiment) -> Promise:
    """As the chain says it, not the row of the experiment, which can be changed."""
    chained = promises.promise_of(connection, experiment)
    off = experiments.versions_off(connection, experiment)
    everyone = range(len(chained.arms))
    return Promise(
        name=experiment.key,
        arms=tuple(key for key, _, _ in chained.arms),
        segments=chained.segments,
        budgets_nano=tuple(
            chained.budget_nano if budget is None else budget for _, budget, _ in chained.arms
        ),
        strategy=chained.strategy,
        cap=chained.metrics[0].cap_micro,
        trace_nano=chained.trace_nano,
        across_time=chained.across_time,
        versions={
            version: tuple(arm for arm in everyone if off.get(arm, version + 1) > version)
            for version in range(1, chained.version + 1)
        },
        one_band=chained.one_band,
        tables=tuple(
            _audited(table, len(chained.arms))
            for table in experiments.published(connection, experiment)
        ),
    )


def _audited(table: PublishedTable, n_arms: int) -> AuditedTable:
    counts = json.loads(table.counts)
    return AuditedTable(
        number=table.number,
        version=table.version,
        table=decoded_table(table.rows, n_arms),
        shows=tuple(map(tuple, counts["shows"])),
        rewards=tuple(map(tuple, counts["rewards"])),
        horizon=counts.get("horizon"),
        additions=counts.get("additions", 0),
        floors=None if counts.get("floors") is None else tuple(counts["floors"]),
    )


def _frame(connection: Connection, experiment: Experiment) -> pl.DataFrame:
    """All decisions that name a table and are not erased, oldest first.

    Decisions from before tables were published have no table to be compared with; the ledger's chain
    covers them.
    """
    import polars as pl

    whole = dict.fromkeys(_COLUMNS, pl.Int64)
    schema: dict[str, Any] = {**whole, "visitor": pl.Binary}
    with connection.execution_options(yield_per=_PAGE).execute(_query(experiment)) as found:
        pages = [
            pl.DataFrame([tuple(row) for row in page], schema=schema, orient="row")
            for page in found.partitions()
        ]
    return pl.concat(pages) if pages else pl.DataFrame(schema=schema)


def _query(experiment: Experiment) -> Select[Any]:
    return (
        select(
            decisions.c.visitor,
            decisions.c.segment,
            decisions.c.shown,
            decisions.c.table_number,
            decisions.c.role,
            decisions.c.version,
            rewards.c.value,
        )
        .outerjoin(
            rewards,
            (rewards.c.experiment_id == decisions.c.experiment_id)
            & (rewards.c.decision_id == decisions.c.id)
            & (rewards.c.metric == 0),
        )
        .where(
            decisions.c.experiment_id == bytes.fromhex(experiment.id),
            decisions.c.salt.is_not(None),
            decisions.c.table_number.is_not(None),
        )
        .order_by(decisions.c.decided_at, decisions.c.writer_id, decisions.c.seq)
    )

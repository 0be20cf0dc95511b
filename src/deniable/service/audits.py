"""Audits of stored experiments: promise and decisions, handed to `deniable.audit` as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, select

from deniable.audit.promise import Promise
from deniable.storage import commitments, experiments
from deniable.storage.records import Experiment
from deniable.storage.schema import decisions, rewards
from deniable.storage.store import Store

if TYPE_CHECKING:
    import polars as pl

    from deniable.audit.report import Audit

_PAGE = 20_000
_COLUMNS = ("visitor", "segment", "greedy", "shown", "clock", "risk_nano", "version", "reward")


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
    off = experiments.versions_off(connection, experiment)
    everyone = range(len(experiment.arms))
    return Promise(
        name=experiment.key,
        arms=tuple(arm.key for arm in experiment.arms),
        segments=experiment.segments,
        budgets_nano=tuple(
            experiment.budget_nano if arm.budget_nano is None else arm.budget_nano
            for arm in experiment.arms
        ),
        dynamic=experiment.strategy == "dynamic",
        versions={
            version: tuple(arm for arm in everyone if off.get(arm, version + 1) > version)
            for version in range(1, experiment.version + 1)
        },
    )


def _frame(connection: Connection, experiment: Experiment) -> pl.DataFrame:
    """All decisions that are not erased, oldest first, as `DecisionLog.from_frame` wants them."""
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
    stored = [decisions.c[name] for name in _COLUMNS[:-1]]
    reward = rewards.c.value.label("reward")
    return (
        select(*stored, reward)
        .outerjoin(
            rewards,
            (rewards.c.experiment_id == decisions.c.experiment_id)
            & (rewards.c.decision_id == decisions.c.id),
        )
        .where(
            decisions.c.experiment_id == bytes.fromhex(experiment.id),
            decisions.c.salt.is_not(None),
        )
        .order_by(decisions.c.decided_at, decisions.c.writer_id, decisions.c.seq)
    )

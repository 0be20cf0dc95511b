"""Scratch copies: an experiment's promise and one table, only for the canaries of an audit.

A copy is chained by a `scratch` entry, which commits nothing to the firm's account. Its decisions
are in separate chains with negative numbers. The entry `scratch_end` names the ends of those
chains; everything else of the copy is then deleted, the decisions in small transactions that do not
block traffic. Copies appear in no list, page or total.
"""

from __future__ import annotations

import json
import os

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from deniable._types import JsonObject
from deniable.errors import UnknownNameError
from deniable.privacy.tables import Band, decoded_table
from deniable.storage import commitments, experiments, promise_entries, times
from deniable.storage.records import SCRATCH_PREFIX, Experiment, PublishedTable
from deniable.storage.schema import StoredRow, arms, counters, decisions, segments, tables, writers
from deniable.storage.schema import commitments as chained
from deniable.storage.schema import experiments as rows_of_experiments

LIFE_MICROSECONDS = 6 * 3_600_000_000
"""A copy that was not removed for this long is removed by the next audit."""

_PAGE, _SWEPT = 5_000, 20


def make(
    connection: Connection, experiment: Experiment, table: PublishedTable, late_band: Band | None
) -> Experiment:
    """Create a scratch copy of an experiment, with a table in force. The chain must be locked.

    It has neither layer nor holdout, so all canaries are members.
    """
    identity, now = os.urandom(16), commitments.moment(connection)
    key = SCRATCH_PREFIX + os.urandom(8).hex()
    positions = {arm.key: place for place, arm in enumerate(experiment.arms)}
    connection.execute(
        insert(rows_of_experiments).values(
            id=identity,
            tag=experiments.tag_of(identity),
            key=key,
            status="scratch",
            strategy=experiment.strategy,
            budget_nano=experiment.budget_nano,
            planned_visitors=experiment.planned_visitors,
            trace_nano=experiment.trace_nano,
            across_time=experiment.across_time,
            layer=None,
            holdout=0,
            metrics=json.dumps([metric.plain for metric in experiment.metrics]),
            table_number=0,
            has_tombstones=False,
            default_arm=positions[experiment.default_arm],
            attribution_seconds=experiment.attribution_seconds,
            version=experiment.version,
            exhausted=False,
            revision=1,
            created_at=now,
            started_at=now,
        )
    )
    for owned in (arms, segments):
        source = connection.execute(
            select(owned).where(owned.c.experiment_id == bytes.fromhex(experiment.id))
        )
        copied = [{**row._mapping, "experiment_id": identity} for row in source]
        connection.execute(insert(owned), copied)
    copy = experiments.by_key(connection, key)
    made_from = json.loads(table.counts)
    rows = len(made_from["shows"])
    commitments.record(connection, "scratch", copy, **_detail(experiment, copy, rows))
    wanted = made_from.get("scores")
    if wanted is not None:
        commitments.record(connection, "scores", copy, **wanted)
    detail = promise_entries.table_detail(
        1,
        copy.version,
        decoded_table(table.rows, len(copy.arms)),
        table.counts,
        table.decisions,
        table.strategy,
        now,
        late_band,
    )
    commitments.record(connection, "table", copy, **detail)
    return experiments.add_table(
        connection,
        copy,
        PublishedTable(
            number=1,
            version=copy.version,
            strategy=table.strategy,
            published_at=times.as_datetime(now),
            decisions=table.decisions,
            counts=table.counts,
            rows=table.rows,
        ),
    )


def _detail(experiment: Experiment, copy: Experiment, rows: int) -> JsonObject:
    """Return the complete promise; `rows` segments have their own row in the table in force."""
    return {
        **promise_entries.create_detail(copy),
        "of": experiment.key,
        "status": "scratch",
        "version": copy.version,
        "off": [arm.key for arm in copy.arms if not arm.active],
        "later": list(copy.segments[rows:]),
    }


def by_key(connection: Connection, key: str) -> Experiment:
    """Return the scratch copy with this key; raise UnknownNameError also for other experiments."""
    found = experiments.by_key(connection, key)
    if found.status != "scratch":
        raise UnknownNameError("scratch copy", key)
    return found


def stale(connection: Connection) -> list[Experiment]:
    """Return copies that were not removed in time."""
    old = rows_of_experiments.c.created_at < times.now() - LIFE_MICROSECONDS
    return experiments.matching(connection, (rows_of_experiments.c.status == "scratch") & old)


def end(connection: Connection, copy: Experiment) -> int:
    """End a copy; return its number of decisions, which `sweep` deletes. The chain must be locked."""
    identity = bytes.fromhex(copy.id)
    mine = decisions.c.experiment_id == identity
    count, used = 0, set()
    for row in connection.execute(
        select(decisions.c.writer_id, func.count()).where(mine).group_by(decisions.c.writer_id)
    ):
        used.add(row[0])
        count += row[1]
    ends = connection.execute(select(writers).where(writers.c.id.in_(used))).all()
    chains = {str(row.id): f"{row.seq}:{row.head.hex()}" for row in ends}
    commitments.record(connection, "scratch_end", copy, decisions=count, chains=chains)
    ended = writers.c.id.in_(used) | (writers.c.seq == 0)
    connection.execute(delete(writers).where(writers.c.id < 0, ended))
    for owned in (counters, tables, arms, segments):
        connection.execute(delete(owned).where(owned.c.experiment_id == identity))
    connection.execute(delete(rows_of_experiments).where(rows_of_experiments.c.id == identity))
    return count


def ended(connection: Connection) -> list[bytes]:
    """Return ids of the copies that ended last; some of their decisions may be left."""
    query = select(chained.c.experiment_id).where(chained.c.kind == "scratch_end")
    return list(connection.execute(query.order_by(chained.c.seq.desc()).limit(_SWEPT)).scalars())


def in_force() -> ColumnElement[bool]:
    """Condition that a decision is not a leftover of a copy that ended."""
    c = decisions.c
    return (
        (c.writer_id > 0)
        | c.writer_id.in_(select(writers.c.id))
        | c.experiment_id.in_(select(rows_of_experiments.c.id))
    )


def sweep(connection: Connection, identity: bytes) -> bool:
    """Delete some decisions of a copy that ended; return False if none are left."""
    mine = decisions.c.experiment_id == identity
    some = select(decisions.c.id).where(mine).limit(_PAGE)
    return connection.execute(delete(decisions).where(mine, decisions.c.id.in_(some))).rowcount > 0


def stored(connection: Connection, copy: Experiment, after: bytes, limit: int) -> list[StoredRow]:
    """Return decisions of a copy after this id, in the order of ids."""
    query = (
        select(
            decisions.c.id,
            decisions.c.segment,
            decisions.c.shown,
            decisions.c.table_number,
            decisions.c.role,
        )
        .where(decisions.c.experiment_id == bytes.fromhex(copy.id), decisions.c.id > after)
        .order_by(decisions.c.id)
        .limit(limit)
    )
    return list(connection.execute(query))

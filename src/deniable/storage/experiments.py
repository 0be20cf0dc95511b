"""Experiments in the store: read them, insert drafts, and change them with a new revision."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ScalarSelect,
    Text,
    Update,
    bindparam,
    delete,
    insert,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from deniable._types import JsonObject
from deniable.errors import UnknownNameError, WrongStateError
from deniable.privacy.tables import encoded_size, stored_table
from deniable.storage import times
from deniable.storage.records import Arm, Experiment, Metric, PublishedTable
from deniable.storage.schema import (
    Query,
    StoredRow,
    arms,
    experiments,
    labels,
    samples,
    segments,
    tables,
)

_AT_ONCE = 1_000
"""Tables in one statement: stores take some ten thousand parameters."""


def by_key(connection: Connection, key: str, *, lock: bool = False) -> Experiment:
    """Return one experiment, or raise UnknownNameError.

    Args:
        connection: inside a transaction.
        key: its name.
        lock: lock it until the transaction ends (SQLite already locks the whole file). What changes
            arms or segments locks the chain before, so these are as new as the row that was waited for.
    """
    found = _found(connection, _LOCKED if lock else _BY_KEY, key=key)
    if not found:
        raise UnknownNameError("experiment", key)
    return found[0]


def everything(connection: Connection) -> list[Experiment]:
    """Return all experiments, oldest first."""
    return _found(connection, _ALL)


def insert_draft(connection: Connection, draft: Experiment) -> Experiment:
    """Insert a new draft with new ids; raise WrongStateError if its key is in use."""
    identity = os.urandom(16)
    created = replace(draft, id=identity.hex())
    names = ("created_at", "has_tombstones", "key", "revision", "status")
    fixed = _columns(created, (*names, "table_number", "version"))
    row = {"id": identity, "tag": tag_of(identity), **fixed, **_columns(created, _CHOSEN)}
    try:
        connection.execute(_INSERT, row)
    except IntegrityError:
        raise WrongStateError(f"an experiment {draft.key!r} exists already") from None
    _insert_arms(connection, identity, 0, draft.arms)
    _insert_segments(connection, identity, 0, draft.segments)
    return created


def redraft(connection: Connection, experiment: Experiment, draft: Experiment) -> Experiment:
    """Replace everything except the key, id and time of a draft."""
    identity = bytes.fromhex(experiment.id)
    for owned in (arms, segments):
        connection.execute(delete(owned).where(owned.c.experiment_id == identity))
    _insert_arms(connection, identity, 0, draft.arms)
    _insert_segments(connection, identity, 0, draft.segments)
    chosen = {name: getattr(draft, name) for name in _CHOSEN}
    return change(
        connection, replace(experiment, arms=draft.arms, segments=draft.segments), **chosen
    )


def discard(connection: Connection, experiment: Experiment) -> None:
    """Delete a draft, which never drew an arm."""
    identity = bytes.fromhex(experiment.id)
    for owned in (arms, segments, samples, labels):
        connection.execute(delete(owned).where(owned.c.experiment_id == identity))
    connection.execute(delete(experiments).where(experiments.c.id == identity))


_CHOSEN = (
    "strategy",
    "budget_nano",
    "planned_visitors",
    "mask",
    "sticky",
    "layer",
    "holdout",
    "metrics",
    "contexts",
    "observed",
    "default_arm",
    "attribution_seconds",
)
"""What users choose, apart from the key, arms and segments."""


def _columns(experiment: Experiment, names: Iterable[str]) -> JsonObject:
    """Return some fields of an experiment as they are stored; `_experiment` is the way back."""
    columns: JsonObject = {}
    for name in names:
        value = getattr(experiment, name)
        if name == "metrics":
            value = json.dumps([metric.plain for metric in value])
        elif name == "contexts":
            value = json.dumps(value)
        elif name in ("default_arm", "winner") and value is not None:
            value = next(i for i, arm in enumerate(experiment.arms) if arm.key == value)
        elif isinstance(value, datetime):
            value = times.as_stored(value)
        columns[name] = value
    return columns


def _insert_arms(connection: Connection, identity: bytes, first: int, new: Sequence[Arm]) -> None:
    rows = [
        {
            "experiment_id": identity,
            "position": position,
            "key": arm.key,
            "label": arm.label,
            "budget_nano": arm.budget_nano,
            "weight": arm.weight,
        }
        for position, arm in enumerate(new, first)
    ]
    connection.execute(_INSERT_ARMS, rows)


def _insert_segments(
    connection: Connection, identity: bytes, first: int, names: Sequence[str]
) -> None:
    rows = [
        {"experiment_id": identity, "position": position, "name": name}
        for position, name in enumerate(names, first)
    ]
    if rows:
        connection.execute(_INSERT_SEGMENTS, rows)


def change(connection: Connection, experiment: Experiment, **fields: Any) -> Experiment:
    """Set fields of an experiment and raise its revision, so that every writer rereads it.

    Returns the experiment as it is then, if it was read in this transaction.
    """
    changed = replace(experiment, revision=experiment.revision + 1, **fields)
    new = {f"new_{name}": value for name, value in _columns(changed, fields).items()}
    connection.execute(_change(*fields), {"identity": bytes.fromhex(experiment.id), **new})
    return changed


@cache
def _change(*columns: str) -> Update:
    values: dict[str, ColumnElement[object]] = {n: bindparam(f"new_{n}") for n in columns}
    return (
        update(experiments)
        .where(experiments.c.id == bindparam("identity"))
        .values(revision=experiments.c.revision + 1, **values)
    )


def switch_off(connection: Connection, experiment: Experiment, arm: str) -> Experiment:
    """Create a new version of the experiment without this arm for new visitors."""
    connection.execute(
        update(arms)
        .where(arms.c.experiment_id == bytes.fromhex(experiment.id), arms.c.key == arm)
        .values(off_since_version=experiment.version + 1)
    )
    left = tuple(replace(one, active=one.active and one.key != arm) for one in experiment.arms)
    return change(connection, replace(experiment, arms=left), version=experiment.version + 1)


def add_arm(connection: Connection, experiment: Experiment, arm: Arm) -> Experiment:
    """Create a new version of the experiment with this arm appended."""
    _insert_arms(connection, bytes.fromhex(experiment.id), len(experiment.arms), [arm])
    more = replace(experiment, arms=(*experiment.arms, arm))
    return change(connection, more, version=experiment.version + 1)


def add_segment(connection: Connection, experiment: Experiment, name: str) -> Experiment:
    """Append this segment to the experiment."""
    _insert_segments(connection, bytes.fromhex(experiment.id), len(experiment.segments), [name])
    return change(connection, replace(experiment, segments=(*experiment.segments, name)))


def add_context(connection: Connection, experiment: Experiment, name: str) -> Experiment:
    """Append this context to the experiment."""
    return change(connection, experiment, contexts=(*experiment.contexts, name))


def add_table(connection: Connection, experiment: Experiment, table: PublishedTable) -> Experiment:
    """Store a table and put it into force; return the experiment with it."""
    identity = bytes.fromhex(experiment.id)
    connection.execute(
        _ADD_TABLE,
        {
            "experiment_id": identity,
            "number": table.number,
            "version": table.version,
            "strategy": table.strategy,
            "published_at": times.as_stored(table.published_at),
            "decisions": table.decisions,
            "counts": table.counts,
            "rows": table.rows,
        },
    )
    connection.execute(_PUT_INTO_FORCE, {"identity": identity, "number": table.number})
    return replace(experiment, table_number=table.number)


def published(
    connection: Connection, experiment: Experiment, number: int | None = None
) -> list[PublishedTable]:
    """Return the tables of an experiment, oldest first, or only the one with this number.

    All of them are in the experiment's current shape (`stored_table`); `promise_entries.table_problem`
    compares what is stored with the chain.
    """
    which = {"identity": bytes.fromhex(experiment.id), "number": number}
    rows = connection.execute(_TABLES if number is None else _TABLE, which)
    return [_published(experiment, row) for row in rows]


def in_force(connection: Connection, wanted: Sequence[Experiment]) -> dict[str, PublishedTable]:
    """Experiment key -> its table in force, of those that were started."""
    started = {bytes.fromhex(one.id): one for one in wanted if one.table_number}
    places = [(identity, one.table_number) for identity, one in started.items()]
    found = {}
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        query = select(tables).where(tuple_(tables.c.experiment_id, tables.c.number).in_(some))
        for row in connection.execute(query):
            experiment = started[row.experiment_id]
            found[experiment.key] = _published(experiment, row)
    return found


def _published(experiment: Experiment, row: StoredRow) -> PublishedTable:
    return PublishedTable(
        number=row.number,
        version=row.version,
        strategy=row.strategy,
        published_at=times.as_datetime(row.published_at),
        decisions=row.decisions,
        counts=row.counts,
        rows=_in_shape(row.rows, row.counts, len(experiment.rows), len(experiment.arms)),
    )


def _in_shape(rows: bytes, counts: bytes, n_rows: int, n_arms: int) -> bytes:
    if len(rows) == encoded_size(n_rows, n_arms):  # usually nothing was added since
        return rows
    return stored_table(rows, counts, n_rows, n_arms).encoded()


def counts_in_force(connection: Connection, experiment: Experiment) -> bytes:
    """Return the counts that the table in force was made from."""
    which = {"identity": bytes.fromhex(experiment.id), "number": experiment.table_number}
    counts: bytes = connection.execute(_TABLE, which).one().counts
    return counts


def published_at(connection: Connection, experiment: Experiment) -> dict[int, int]:
    """Return table number -> stored time of publication."""
    rows = connection.execute(_PUBLISHED_AT, {"identity": bytes.fromhex(experiment.id)})
    return {row.number: row.published_at for row in rows}


def versions_off(connection: Connection, experiment: Experiment) -> dict[int, int]:
    """Return arm index -> the version from which it is off."""
    rows = connection.execute(
        select(arms.c.position, arms.c.off_since_version).where(
            arms.c.experiment_id == bytes.fromhex(experiment.id),
            arms.c.off_since_version.is_not(None),
        )
    )
    return {row.position: row.off_since_version for row in rows}


def tag_of(identity: bytes) -> int:
    """Return the first four bytes of an experiment's id, with which its decision ids begin."""
    return int.from_bytes(identity[:4], "big", signed=True)


def by_ids(connection: Connection, ids: Sequence[bytes]) -> list[Experiment]:
    """Return the experiments with these ids, oldest first."""
    if len(ids) == 1:  # the common case, after every publication
        return _found(connection, _BY_ID, identity=ids[0])
    return _found(connection, _BY_IDS, ids=list(ids))


def by_names(connection: Connection, keys: Sequence[str], tags: Sequence[int]) -> list[Experiment]:
    """Return the experiments with these keys or tags, oldest first."""
    return _found(connection, _BY_NAMES, keys=list(keys), tags=list(tags))


class _JsonRows(FunctionElement[str]):
    """Aggregates rows to JSON, a list of lists, in the order of the first column, which is left out.

    A table's columns and rows are arms and segments by their position, so the order is vital.
    """

    type = Text()
    inherit_cache = True


@compiles(_JsonRows, "postgresql")
def _json_rows(element: _JsonRows, compiler: SQLCompiler, **options: Any) -> str:
    position, *columns = (compiler.process(column, **options) for column in element.clauses)
    rows = f"json_build_array({', '.join(columns)}) ORDER BY {position}"
    return f"CAST(json_agg({rows}) AS TEXT)"


@compiles(_JsonRows, "sqlite")
def _json_rows_sqlite(element: _JsonRows, compiler: SQLCompiler, **options: Any) -> str:
    # Aggregates take an ORDER BY since 3.44. All versions follow the order of the subquery.
    _, *columns = (compiler.process(column, **options) for column in element.clauses)
    # A row that was changed by hand may hold bytes anywhere, which JSON cannot. It must be read all the
    # same: this statement may be for other experiments, too.
    quoted = (f"CASE typeof({c}) WHEN 'blob' THEN quote({c}) ELSE {c} END" for c in columns)
    return f"json_group_array(json_array({', '.join(quoted)}))"


def _owned(*columns: Column[Any]) -> ScalarSelect[str]:
    """Return a subquery for what an experiment has in a table, in order of position."""
    table = columns[0].table
    rows = (
        select(table.c.position, *columns)
        .where(table.c.experiment_id == experiments.c.id)
        .order_by(table.c.position)
        .correlate(experiments)
        .subquery()
    )
    return select(_JsonRows(*rows.c)).scalar_subquery()


_ARMS = _owned(
    arms.c.key, arms.c.label, arms.c.budget_nano, arms.c.off_since_version, arms.c.weight
)
_SEGMENTS = _owned(segments.c.name)


def _whole(condition: ColumnElement[bool]) -> Query:
    """Return the statement that reads matching experiments with their arms and segments."""
    return (
        select(experiments, _ARMS.label("arms"), _SEGMENTS.label("segments"))
        .where(condition)
        .order_by(experiments.c.created_at, experiments.c.key)
    )


def _found(connection: Connection, statement: Query, **parameters: object) -> list[Experiment]:
    return [_experiment(row) for row in connection.execute(statement, parameters)]


def _experiment(row: StoredRow) -> Experiment:
    own = tuple(
        Arm(key, label, budget_nano, off_since is None, weight)
        for key, label, budget_nano, off_since, weight in json.loads(row.arms or "[]")
    )
    return Experiment(
        id=row.id.hex(),
        key=row.key,
        status=row.status,
        arms=own,
        segments=tuple(name for (name,) in json.loads(row.segments or "[]")),
        strategy=row.strategy,
        budget_nano=row.budget_nano,
        planned_visitors=row.planned_visitors,
        mask=row.mask,
        sticky=row.sticky,
        layer=row.layer,
        slots=row.slots,
        holdout=row.holdout,
        default_arm=own[row.default_arm].key,
        attribution_seconds=row.attribution_seconds,
        metrics=tuple(Metric(*one) for one in json.loads(row.metrics)),
        contexts=tuple(json.loads(row.contexts)),
        observed=row.observed,
        version=row.version,
        winner=None if row.winner is None else own[row.winner].key,
        table_number=row.table_number,
        has_tombstones=row.has_tombstones,
        created_at=times.as_datetime(row.created_at),
        started_at=times.maybe_datetime(row.started_at),
        stopped_at=times.maybe_datetime(row.stopped_at),
        revision=row.revision,
    )


# Statements are built once: building takes longer than running.
_ALL = _whole(true())
_BY_KEY = _whole(experiments.c.key == bindparam("key"))
_LOCKED = _BY_KEY.with_for_update()
_BY_ID = _whole(experiments.c.id == bindparam("identity"))
_BY_IDS = _whole(experiments.c.id.in_(bindparam("ids", expanding=True)))
_BY_NAMES = _whole(
    experiments.c.key.in_(bindparam("keys", expanding=True))
    | experiments.c.tag.in_(bindparam("tags", expanding=True))
)
_INSERT, _INSERT_ARMS, _INSERT_SEGMENTS = insert(experiments), insert(arms), insert(segments)
_TABLES = (
    select(tables).where(tables.c.experiment_id == bindparam("identity")).order_by(tables.c.number)
)
_TABLE = _TABLES.where(tables.c.number == bindparam("number"))
_PUBLISHED_AT = select(tables.c.number, tables.c.published_at).where(
    tables.c.experiment_id == bindparam("identity")
)
_ADD_TABLE = insert(tables)
_PUT_INTO_FORCE = (
    update(experiments)
    .where(experiments.c.id == bindparam("identity"))
    .values(table_number=bindparam("number"))
)

"""Finding experiments: search, filters, order and paging, in one statement per search.

Owner and tags are labels for people. They have no effect on what is promised or drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    exists,
    func,
    insert,
    select,
)

from deniable.storage.experiments import by_ids
from deniable.storage.records import Experiment, Role
from deniable.storage.schema import counters, experiments, labels

ORDERS = ("name", "status", "budget", "visitors", "started", "created")
MOST_LABELS = 200
"""Maximum number of owners, or tags, offered as filters."""


@dataclass(frozen=True)
class Labels:
    """Owner and tags of an experiment."""

    owner: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Search:
    """A search for experiments.

    Attributes:
        text: text in the key or a tag, ignoring case.
        statuses: any of these; empty for all.
        owner: exactly this one.
        tag: exactly this one.
        order: one of ORDERS.
        descending: largest or latest first.
        first: number of results to skip.
        limit: maximum number of results.
    """

    text: str = ""
    statuses: tuple[str, ...] = ()
    owner: str = ""
    tag: str = ""
    order: str = "created"
    descending: bool = True
    first: int = 0
    limit: int = 50


@dataclass(frozen=True)
class Found:
    """The experiments of one page, their labels by key, and the total number of matches."""

    experiments: tuple[Experiment, ...]
    labels: dict[str, Labels]
    total: int


def search(connection: Connection, wanted: Search) -> Found:
    """Return the matching experiments, in order."""
    column = _ORDER_BY[wanted.order]
    order = column.desc() if wanted.descending else column.asc()
    query = (
        select(experiments.c.id, func.count().over())
        .where(*_conditions(wanted))
        .order_by(order, experiments.c.key)
        .limit(wanted.limit)
        .offset(wanted.first)
    )
    rows = connection.execute(query).all()
    place = {row[0]: at for at, row in enumerate(rows)}
    found = sorted(by_ids(connection, list(place)), key=lambda e: place[bytes.fromhex(e.id)])
    by_id = labels_of(connection, list(place))
    named = {e.key: by_id.get(bytes.fromhex(e.id), Labels()) for e in found}
    return Found(tuple(found), named, rows[0][1] if rows else 0)


def keys(connection: Connection, most: int) -> list[str]:
    """The keys of so many experiments, newest first."""
    query = (
        select(experiments.c.key)
        .order_by(experiments.c.created_at.desc(), experiments.c.key)
        .limit(most)
    )
    return list(connection.execute(query).scalars())


def totals(connection: Connection) -> dict[str, int]:
    """Return the number of experiments per status."""
    query = select(experiments.c.status, func.count()).group_by(experiments.c.status)
    return {row[0]: row[1] for row in connection.execute(query)}


def labels_of(connection: Connection, ids: Sequence[bytes]) -> dict[bytes, Labels]:
    """Return labels by experiment id, for those that have any."""
    owners: dict[bytes, str] = {}
    tags: dict[bytes, list[str]] = {}
    query = select(labels).where(labels.c.experiment_id.in_(ids)).order_by(labels.c.value)
    for row in connection.execute(query):
        if row.kind == "owner":
            owners[row.experiment_id] = row.value
        else:
            tags.setdefault(row.experiment_id, []).append(row.value)
    return {
        identity: Labels(owners.get(identity, ""), tuple(tags.get(identity, ())))
        for identity in owners.keys() | tags.keys()
    }


def used(connection: Connection, kind: str) -> list[str]:
    """Return the owners, or tags, in use."""
    query = select(labels.c.value).where(labels.c.kind == kind).distinct()
    return list(connection.execute(query.order_by(labels.c.value).limit(MOST_LABELS)).scalars())


def set_labels(connection: Connection, experiment: Experiment, wanted: Labels) -> None:
    """Replace an experiment's labels."""
    forget_labels(connection, experiment)
    rows = [
        {"experiment_id": bytes.fromhex(experiment.id), "kind": kind, "value": value}
        for kind, value in _pairs(wanted)
    ]
    if rows:
        connection.execute(insert(labels), rows)


def forget_labels(connection: Connection, experiment: Experiment) -> None:
    """Delete an experiment's labels."""
    mine = labels.c.experiment_id == bytes.fromhex(experiment.id)
    connection.execute(delete(labels).where(mine))


def _pairs(wanted: Labels) -> Iterable[tuple[str, str]]:
    return [
        *((("owner", wanted.owner),) if wanted.owner else ()),
        *(("tag", t) for t in wanted.tags),
    ]


def _conditions(wanted: Search) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.statuses:
        conditions.append(experiments.c.status.in_(wanted.statuses))
    for kind, value in (("owner", wanted.owner), ("tag", wanted.tag)):
        if value:
            conditions.append(_has(kind, labels.c.value == value))
    if wanted.text:
        text = wanted.text.lower()
        named = func.lower(experiments.c.key).contains(text, autoescape=True)
        tagged = _has("tag", func.lower(labels.c.value).contains(text, autoescape=True))
        conditions.append(named | tagged)
    return conditions


def _has(kind: str, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(
        labels.c.experiment_id == experiments.c.id, labels.c.kind == kind, condition
    )


_VISITORS = (
    select(func.coalesce(func.sum(counters.c.shows), 0))
    .where(
        counters.c.experiment_id == experiments.c.id,
        counters.c.role == Role.MEMBER,
        counters.c.metric == 0,
    )
    .scalar_subquery()
)
_ORDER_BY: dict[str, ColumnElement[str] | ColumnElement[int]] = {
    "name": func.lower(experiments.c.key),
    "status": experiments.c.status,
    "budget": experiments.c.budget_nano,
    "visitors": _VISITORS,
    "started": func.coalesce(experiments.c.started_at, 0),
    "created": experiments.c.created_at,
}

"""Counts as they were released: everything that tells segments apart is read through here.

Who sees the counts before and after one visitor sees the visitor's segment, arm and reward in the
difference, however large the segment is. So figures change for many visitors at once: when a table
is published, which is never for one visitor. Until the next one they stay as they are.

- Decisions count once the table that they were drawn from has been replaced.
- Rewards count if they are inside the cut of the table in force (`table_counts`).
- After a stop there are no more tables. All decisions count, and rewards from the next day (UTC) on.

Counters add up everything that is stored, so later rewards are read one by one and subtracted. Rewards
of erased visitors stay in: nobody knows their cell any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, or_, select

from deniable.storage import times
from deniable.storage.account_rules import DAY
from deniable.storage.commitments import moment
from deniable.storage.counts import in_order, sums_of
from deniable.storage.records import MICRO, Cell, Experiment, Role
from deniable.storage.schema import decisions, rewards, tables
from deniable.storage.table_counts import chain_lengths, stored_cut


class Release(NamedTuple):
    """What is released of an experiment. Equal releases have equal counts.

    Attributes:
        revision: the experiment's revision, which says which segments and arms there are.
        tables: decisions drawn from tables below this number count.
        until: rewards before this time count; None while tables are published.
    """

    revision: int
    tables: int
    until: int | None


class LateReward(NamedTuple):
    """Rewards of one cell with the same value that are stored but not released."""

    table: int
    role: int
    segment: int
    arm: int
    metric: int
    number: int
    value: int
    square: int


def release_of(connection: Connection, experiment: Experiment) -> Release:
    """Return what is released of an experiment now."""
    if experiment.stopped_at is None:
        return Release(experiment.revision, experiment.table_number, None)
    today = moment(connection) // DAY * DAY
    until = max(today, times.as_stored(experiment.stopped_at))
    return Release(experiment.revision, experiment.table_number + 1, until)


def released_cells(connection: Connection, experiment: Experiment, release: Release) -> list[Cell]:
    """Return shows and clicks of every arm in every segment, in declared order; unlisted ones last."""
    found = sums_of(connection, experiment, release.tables)
    for late in late_rewards(connection, experiment, release):
        if late.role == Role.MEMBER and late.metric == 0:
            cell = found.setdefault((late.segment, late.arm), [0, 0, 0])
            cell[1] -= late.number
            cell[2] -= late.value
    return in_order(experiment, found)


def late_rewards(
    connection: Connection, experiment: Experiment, release: Release
) -> Iterator[LateReward]:
    """Yield the rewards of released decisions that are not released themselves."""
    caps = [metric.cap_micro for metric in experiment.metrics]
    late = _late(connection, experiment, release)
    if late is None:
        return
    places = (
        decisions.c.table_number,
        decisions.c.role,
        decisions.c.segment,
        decisions.c.shown,
        rewards.c.metric,
        rewards.c.value,
    )
    for table, role, segment, arm, metric, value, number in connection.execute(
        select(*places, func.count())
        .join_from(
            rewards,
            decisions,
            (decisions.c.experiment_id == rewards.c.experiment_id)
            & (decisions.c.id == rewards.c.decision_id),
        )
        .where(
            rewards.c.experiment_id == bytes.fromhex(experiment.id),
            late,
            rewards.c.value.is_not(None),
            decisions.c.shown.is_not(None),
            decisions.c.table_number < release.tables,
        )
        .group_by(*places)
    ):
        share = value / caps[metric]
        square = round(share * share * MICRO)
        yield LateReward(table, role, segment, arm, metric, number, number * value, number * square)


def _late(
    connection: Connection, experiment: Experiment, release: Release
) -> ColumnElement[bool] | None:
    """Return the condition that selects the rewards that are not released; None if all are."""
    if release.until is not None:
        return rewards.c.rewarded_at >= release.until
    identity = bytes.fromhex(experiment.id)
    counts = connection.execute(
        select(tables.c.counts).where(
            tables.c.experiment_id == identity, tables.c.number == release.tables
        )
    ).scalar()
    cut = {} if counts is None else stored_cut(json.loads(counts), "rewards")
    grown = [
        (rewards.c.writer_id == writer) & (rewards.c.seq > cut.get(writer, 0))
        for writer, length in chain_lengths(connection).items()
        if length > cut.get(writer, 0)
    ]
    return or_(*grown) if grown else None

"""Reads the counters of experiments: as cells for people, by table for results.

Samples of an experiment's totals are stored over time, at most a few hundred. When there are too many,
the one with the closest neighbours is deleted, so they stay evenly spread as the experiment gets older.
They contain nothing by segment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, delete, func, insert, select

from deniable.storage import times
from deniable.storage.records import Cell, Experiment, Role
from deniable.storage.schema import counters, experiments, samples
from deniable.storage.table_counts import ALL_TABLES


def cells(connection: Connection, experiment: Experiment) -> list[Cell]:
    """Return shows and clicks of every arm in every segment, over all writers, in declared order."""
    return in_order(experiment, sums_of(connection, experiment))


def sums_of(
    connection: Connection, experiment: Experiment, below: int = ALL_TABLES
) -> dict[tuple[int, int], list[int]]:
    """Return the members' shows, rewards and sum of rewards by segment and arm.

    Args:
        connection: to the store.
        experiment: the experiment.
        below: decisions drawn from tables below this number count.
    """
    places = (counters.c.segment, counters.c.arm)
    sums = (counters.c.shows, counters.c.rewarded, counters.c.value)
    query = (
        select(*places, *map(func.sum, sums))
        .where(
            counters.c.experiment_id == bytes.fromhex(experiment.id),
            counters.c.table_number < below,
            counters.c.role == int(Role.MEMBER),
            counters.c.metric == 0,
        )
        .group_by(*places)
    )
    return {
        (segment, arm): [int(number) for number in numbers]
        for segment, arm, *numbers in connection.execute(query)
    }


def in_order(experiment: Experiment, sums: Mapping[tuple[int, int], Sequence[int]]) -> list[Cell]:
    """Return sums by segment and arm as cells, in declared order; unlisted segments last."""
    names: list[tuple[int, str | None]] = [*enumerate(experiment.rows), (-1, None)]
    return [
        Cell(name, arm.key, *sums.get((segment, position), (0, 0, 0)))
        for segment, name in names
        for position, arm in enumerate(experiment.arms)
    ]


def totals(connection: Connection, experiment: Experiment) -> tuple[int, int]:
    """Return the numbers of stored decisions, and of rewards of the deciding metric."""
    sums = (func.sum(counters.c.shows), func.sum(counters.c.rewarded))
    query = select(*sums).where(
        counters.c.experiment_id == bytes.fromhex(experiment.id), counters.c.metric == 0
    )
    shows, rewarded = connection.execute(query).one()
    return int(shows or 0), int(rewarded or 0)


def decisions(connection: Connection) -> int:
    """Return the number of stored decisions, from the counters."""
    query = select(func.coalesce(func.sum(counters.c.shows), 0)).where(counters.c.metric == 0)
    return int(connection.execute(query).scalar_one())


def unobserved(connection: Connection) -> tuple[int, int]:
    """Return the numbers of started experiments for unobserved visits, and of their decisions."""
    mine = (~experiments.c.observed, experiments.c.status != "draft")
    started = connection.execute(select(func.count()).select_from(experiments).where(*mine))
    ids = select(experiments.c.id).where(*mine)
    query = select(func.coalesce(func.sum(counters.c.shows), 0)).where(
        counters.c.metric == 0, counters.c.experiment_id.in_(ids)
    )
    return int(started.scalar_one()), int(connection.execute(query).scalar_one())


def result_counts(
    connection: Connection, experiment: Experiment, tables: int
) -> tuple[tuple[int, int, int, int], Sequence[Sequence[int]]]:
    """Return the input of results, in the order of the counters' key, without zeros.

    Each writer's counters are separate rows: most cells have one writer, and summing here would
    take longer than everything else. There are tens of thousands of rows, and Python takes time for
    every value. So these are the driver's own tuples, with a single number for the cell.

    Args:
        connection: to the store.
        experiment: the experiment.
        tables: decisions drawn from tables below this number count.

    Returns:
        The numbers of roles, segments (plus one for unlisted ones, the first), arms and metrics;
        rows of the cell's index in an array of tables of these sizes, shows, value and square.
    """
    table = cast(counters.c.table_number, BigInteger)
    sizes = (len(Role), len(experiment.rows) + 1, len(experiment.arms), len(experiment.metrics))
    places = (counters.c.role, counters.c.segment + 1, counters.c.arm, counters.c.metric)
    cell: ColumnElement[int] = table
    for size, place in zip(sizes, places, strict=True):
        cell = cell * size + place
    query = (
        select(cell, counters.c.shows, counters.c.value, counters.c.square)
        .where(
            counters.c.experiment_id == bytes.fromhex(experiment.id),
            counters.c.table_number < tables,
            (counters.c.shows > 0) | (counters.c.value > 0),  # a square is never above its value
        )
        .order_by(
            counters.c.table_number,
            counters.c.role,
            counters.c.segment,
            counters.c.arm,
            counters.c.metric,
        )
    )
    return sizes, connection.execute(query).cursor.fetchall()


# -- samples of the totals over time ---------------------------------------------------------------

MOST_SAMPLES = 240
"""Maximum samples per experiment."""


@dataclass(frozen=True)
class Sample:
    """Totals over all segments at one moment.

    Attributes:
        taken_at: time of the sample.
        shows: shows of each arm, in declared order.
        clicks: clicks of each arm.
        lost: estimated clicks lost against always showing each segment its best arm.
    """

    taken_at: datetime
    shows: tuple[int, ...]
    clicks: tuple[int, ...]
    lost: float


def samples_of(connection: Connection, experiment: Experiment) -> list[Sample]:
    """Return the samples of one experiment, oldest first."""
    rows = connection.execute(
        select(samples.c.taken_at, samples.c.figures)
        .where(samples.c.experiment_id == bytes.fromhex(experiment.id))
        .order_by(samples.c.taken_at)
    )
    return [_sample(row.taken_at, row.figures, len(experiment.arms)) for row in rows]


def latest_samples(connection: Connection) -> dict[str, tuple[int, int, int]]:
    """Return the stored times of the first and last sample, and their number, by experiment id."""
    rows = connection.execute(
        select(
            samples.c.experiment_id,
            func.min(samples.c.taken_at),
            func.max(samples.c.taken_at),
            func.count(),
        ).group_by(samples.c.experiment_id)
    )
    return {identity.hex(): (first, last, count) for identity, first, last, count in rows}


def add_sample(connection: Connection, experiment: Experiment, sample: Sample) -> None:
    """Store a sample."""
    figures = json.dumps([sample.shows, sample.clicks, round(sample.lost, 3)])
    connection.execute(
        insert(samples).values(
            experiment_id=bytes.fromhex(experiment.id),
            taken_at=times.as_stored(sample.taken_at),
            figures=figures,
        )
    )


def thin_samples(connection: Connection, experiment: Experiment) -> None:
    """Delete samples until there are not too many, each time the one with the closest neighbours."""
    mine = samples.c.experiment_id == bytes.fromhex(experiment.id)
    query = select(samples.c.taken_at).where(mine).order_by(samples.c.taken_at)
    known = list(connection.execute(query).scalars())
    while len(known) > MOST_SAMPLES:
        crowded = min(range(1, len(known) - 1), key=lambda i: known[i + 1] - known[i - 1])
        connection.execute(delete(samples).where(mine, samples.c.taken_at == known.pop(crowded)))


def _sample(taken_at: int, figures: str, n_arms: int) -> Sample:
    shows, clicks, lost = json.loads(figures)
    later = [0] * (n_arms - len(shows))  # arms added since
    moment = times.as_datetime(taken_at)
    return Sample(moment, tuple(shows + later), tuple(clicks + later), lost)

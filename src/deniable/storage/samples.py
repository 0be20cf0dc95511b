"""Samples of an experiment's totals over time: at most a few hundred.

When there are too many, the one with the closest neighbours is deleted, so they stay evenly spread
as the experiment gets older. They contain nothing by segment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from deniable.storage import times
from deniable.storage.records import Experiment
from deniable.storage.schema import samples

MOST = 240
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


def of(connection: Connection, experiment: Experiment) -> list[Sample]:
    """Return the samples of one experiment, oldest first."""
    rows = connection.execute(
        select(samples.c.taken_at, samples.c.figures)
        .where(samples.c.experiment_id == bytes.fromhex(experiment.id))
        .order_by(samples.c.taken_at)
    )
    return [_sample(row.taken_at, row.figures, len(experiment.arms)) for row in rows]


def latest(connection: Connection) -> dict[str, tuple[int, int, int]]:
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


def add(connection: Connection, experiment: Experiment, sample: Sample) -> None:
    """Store a sample."""
    figures = json.dumps([sample.shows, sample.clicks, round(sample.lost, 3)])
    connection.execute(
        insert(samples).values(
            experiment_id=bytes.fromhex(experiment.id),
            taken_at=times.as_stored(sample.taken_at),
            figures=figures,
        )
    )


def thin(connection: Connection, experiment: Experiment) -> None:
    """Delete samples until there are not too many, each time the one with the closest neighbours."""
    mine = samples.c.experiment_id == bytes.fromhex(experiment.id)
    query = select(samples.c.taken_at).where(mine).order_by(samples.c.taken_at)
    known = list(connection.execute(query).scalars())
    while len(known) > MOST:
        crowded = min(range(1, len(known) - 1), key=lambda i: known[i + 1] - known[i - 1])
        connection.execute(delete(samples).where(mine, samples.c.taken_at == known.pop(crowded)))


def _sample(taken_at: int, figures: str, n_arms: int) -> Sample:
    shows, clicks, lost = json.loads(figures)
    later = [0] * (n_arms - len(shows))  # arms added since
    moment = times.as_datetime(taken_at)
    return Sample(moment, tuple(shows + later), tuple(clicks + later), lost)

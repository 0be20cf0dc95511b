"""A quick check, from counters alone, that arms were shown as often as the published tables say."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from deniable.privacy.serving import SPACE
from deniable.privacy.tables import decoded_table
from deniable.storage import experiments
from deniable.storage.records import Experiment, Role
from deniable.storage.schema import counters


@dataclass(frozen=True)
class DrawCheck:
    """The decisions of one experiment compared with the tables they were drawn from.

    Attributes:
        decisions: number of decisions compared.
        rewarded: how many of them have a reward, whatever its value.
        shown: how often each arm was shown.
        expected: how often each arm should have been shown on average, per the tables.
        variance: variance of that number, per arm.
    """

    decisions: int
    rewarded: int
    shown: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]


def draw_check(connection: Connection, experiment: Experiment) -> DrawCheck:
    """Compare every decision that names a table with that table, however many there are."""
    width = len(experiment.arms)
    shown, expected, variance = [0] * width, [0.0] * width, [0.0] * width
    tables = {
        table.number: decoded_table(table.rows, width)
        for table in experiments.published(connection, experiment)
    }
    drawn: dict[tuple[int, int], int] = {}
    rewarded = 0
    keys = (counters.c.table_number, counters.c.role, counters.c.segment, counters.c.arm)
    for number, role, segment, arm, shows, answered in connection.execute(
        select(*keys, func.sum(counters.c.shows), func.sum(counters.c.rewarded))
        .where(
            counters.c.experiment_id == bytes.fromhex(experiment.id),
            counters.c.metric == 0,
            counters.c.table_number > 0,
        )
        .group_by(*keys)
    ):
        row = (number, segment if role == Role.MEMBER else -1)
        drawn[row] = drawn.get(row, 0) + int(shows)
        shown[arm] += int(shows)
        rewarded += int(answered)
    for (number, segment), decisions in drawn.items():
        for arm, entry in enumerate(tables[number].row(segment)):
            chance = entry / SPACE
            expected[arm] += decisions * chance
            variance[arm] += decisions * chance * (1 - chance)
    return DrawCheck(sum(shown), rewarded, tuple(shown), tuple(expected), tuple(variance))

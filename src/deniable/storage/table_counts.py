"""What a table is made from: the decisions up to a number, and the rewards up to another.

Each writer numbers its own decisions of an experiment, 1, 2, 3 and so on in the order of its hash
chain. A *cut* says for each writer how far it was counted. A table has two of them. Both are stored
with its counts, and so they are chained:

- The cut of the decisions says how many of each writer's first decisions count. It adds up to exactly
  the number at which the table was due. What was decided after that number but before the table was
  in force enters a later table, whichever cell it is in.
- The cut of the rewards is the length of each writer's chain when the table was made. Rewards up to
  there count if their decision is inside the first cut.

Where counts began again from zero (entry `restart`), decisions drawn from earlier tables do not count.

A cut never falls from one table to the next. If several writers have decisions after the due number,
writers with small ids are taken first, whatever was decided. So an auditor who reads the chains can
count again (`audit.recount`).

Counters add up everything that is stored. The few decisions after the cut are read one by one and
subtracted. One that was erased between its decision and the table stays in: nobody knows its cell
any more. All this happens while nobody can store a decision of the experiment. So a table can also
name how many decisions were stored at all, drawn from earlier tables, and only those drawn from the
table in force have to be counted to know when the next one is due.
"""

from __future__ import annotations

from typing import TypeAlias

from sqlalchemy import Connection, bindparam, case, func, select

from deniable._types import JsonObject
from deniable.storage.records import Experiment, Role
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    counters,
    decisions,
    rewarded_decisions,
    rewards,
    writers,
)

Cut: TypeAlias = dict[int, int]
"""Writer -> how far it was counted: a number of decisions, or the length of its chain."""

ALL_TABLES = 2**31 - 1
"""Larger than any table number."""


def stored_decisions(connection: Connection, experiment: Experiment, before: Cut) -> Cut:
    """Return how many decisions each writer has stored, of every role.

    Args:
        connection: inside a transaction.
        experiment: the experiment.
        before: the same when the table in force was published (`stored` in its counts).
    """
    which = {"identity": bytes.fromhex(experiment.id), "number": experiment.table_number}
    found = dict(before)
    for writer, shows in connection.execute(_FROM_TABLE, which).all():
        found[writer] = found.get(writer, 0) + int(shows)
    return {writer: count for writer, count in found.items() if count}


def chain_lengths(connection: Connection) -> Cut:
    """Return the length of each writer's chain."""
    return {writer: length for writer, length in connection.execute(_CHAINS).all() if length}


def cut_at(number: int, every: Cut, before: Cut) -> Cut:
    """Return the cut that adds up to a number of decisions, between an earlier cut and all stored.

    >>> cut_at(7, {5: 5, 9: 6}, before={5: 2, 9: 1})
    {5: 5, 9: 2}
    """
    left, cut = number - sum(before.values()), {}
    for writer in sorted(every):
        known = before.get(writer, 0)
        cut[writer] = known + min(left, every[writer] - known)
        left -= cut[writer] - known
    return {writer: count for writer, count in cut.items() if count}


def table_counts(
    connection: Connection,
    experiment: Experiment,
    every: Cut,
    cut: Cut,
    closed: int,
    since: int = 0,
) -> JsonObject:
    """Return shows and sums of rewards of members by segment and arm, with the cuts they are made of.

    A show counts if its table is closed or it has a reward.

    Args:
        connection: inside a transaction in which nobody else stores decisions of the experiment.
        experiment: the experiment.
        every: all stored decisions.
        cut: the decisions to count.
        closed: the last table whose attribution window has closed; ALL_TABLES without a window.
        since: decisions drawn from this table or an earlier one do not count.
    """
    identity = bytes.fromhex(experiment.id)
    shows = [[0] * len(experiment.arms) for _ in experiment.rows]
    values = [[0] * len(experiment.arms) for _ in experiment.rows]
    cells = connection.execute(_BY_CELL, {"identity": identity, "closed": closed, "since": since})
    for segment, arm, count, value in cells.all():
        shows[segment][arm], values[segment][arm] = int(count), int(value)
    for writer, count in every.items():
        after = count - cut.get(writer, 0)
        if not after:
            continue
        which = {"identity": identity, "writer": writer, "after": after}
        for number, role, segment, arm, value in connection.execute(_NEWEST, which):
            # An erased decision has neither segment nor arm.
            if role != Role.MEMBER or segment is None or segment < 0 or number <= since:
                continue
            shows[segment][arm] -= number <= closed or value is not None
            values[segment][arm] -= value or 0
    return {
        "shows": shows,
        "rewards": values,
        "cut": {
            "decisions": sorted(cut.items()),
            "rewards": sorted(chain_lengths(connection).items()),
            "stored": sorted(every.items()),
        },
    }


def stored_cut(counts: JsonObject, what: str) -> Cut:
    """Read a cut from a table's counts: `decisions`, `rewards`, or `stored` decisions."""
    return {int(writer): int(count) for writer, count in counts["cut"][what]}


# Built once, because building a statement takes longer than running it.
_COUNTED = (counters.c.experiment_id == bindparam("identity"), counters.c.metric == 0)
_FROM_TABLE = (
    select(counters.c.writer_id, func.sum(counters.c.shows))
    .where(*_COUNTED, counters.c.table_number == bindparam("number"))
    .group_by(counters.c.writer_id)
)
_CHAINS = select(writers.c.id, writers.c.seq).where(writers.c.id > COMMITMENT_CHAIN)
_BY_CELL = (
    select(
        counters.c.segment,
        counters.c.arm,
        func.sum(
            case(
                (counters.c.table_number <= bindparam("closed"), counters.c.shows),
                else_=counters.c.rewarded,
            )
        ),
        func.sum(counters.c.value),
    )
    .where(
        *_COUNTED,
        counters.c.role == int(Role.MEMBER),
        counters.c.segment >= 0,
        counters.c.table_number > bindparam("since"),
    )
    .group_by(counters.c.segment, counters.c.arm)
)
_NEWEST = (
    select(
        decisions.c.table_number,
        decisions.c.role,
        decisions.c.segment,
        decisions.c.shown,
        rewards.c.value,
    )
    .select_from(rewarded_decisions)
    .where(
        decisions.c.experiment_id == bindparam("identity"),
        decisions.c.writer_id == bindparam("writer"),
    )
    .order_by(decisions.c.seq.desc())
    .limit(bindparam("after"))
)

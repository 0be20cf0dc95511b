"""The next table of an experiment: made from its counts, checked, stored and chained.

A table is a function of the counts stored with it, and these are a function of the decisions and
rewards in its cuts (`storage.table_counts`). It is checked in exact arithmetic before it is stored,
and stored and chained before anything is drawn from it.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sqlalchemy import Connection

from deniable.privacy.epochs import LEAST_NEW, due_at, epochs_of, last_due
from deniable.privacy.tables import Row, Table, decoded_table, neutral_row
from deniable.service.experiment_state import system_bytes
from deniable.storage import commitments, experiments, promise_entries, promises, times
from deniable.storage.records import Experiment, PublishedTable, rows_by_context
from deniable.storage.table_counts import (
    ALL_TABLES,
    Cut,
    cut_at,
    stored_cut,
    stored_decisions,
    table_counts,
)
from deniable.strategies.recipe import Recipe

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Growth(NamedTuple):
    """What is stored of an experiment, and how that compares with its table in force.

    Attributes:
        stored: all stored decisions.
        made_of: those that the table in force was made from.
        due: the last number of decisions at which a table was due; None if none was.
        look_after: how many more decisions a process may store before it looks again. If several
            processes store decisions, each looks more often than one alone would have to.
    """

    stored: Cut
    made_of: Cut
    due: int | None
    look_after: int


class Look(NamedTuple):
    """What came of a look: the table that was published, if any, and when to look again."""

    table: PublishedTable | None
    look_after: int


def growth(connection: Connection, experiment: Experiment) -> Growth:
    """Return how far a started experiment has grown."""
    in_force = json.loads(experiments.counts_in_force(connection, experiment))
    made_of = stored_cut(in_force, "decisions")
    stored = stored_decisions(connection, experiment, stored_cut(in_force, "stored"))
    epochs = epochs_of(len(experiment.arms), len(experiment.rows))
    before, now = sum(made_of.values()), sum(stored.values())
    due = last_due(before, now, epochs)
    left = due_at(due, epochs) - now
    writers = sum(count > made_of.get(writer, 0) for writer, count in stored.items())
    return Growth(
        stored,
        made_of,
        due if due > before else None,
        left if writers <= 1 else max(1, left // (2 * writers)),
    )


def publish_due(connection: Connection, key: str) -> Look:
    """Publish the next table of a running or paused experiment, if it is due.

    The transaction holds the ledger and the experiment from its first statement on. So no other
    process publishes, nobody changes the experiment, and none of its decisions are stored until the
    table is in force.
    """
    commitments.lock_chain(connection)
    experiment = experiments.by_key(connection, key, lock=True)
    if experiment.status not in ("running", "paused"):
        return Look(None, LEAST_NEW)
    grown = growth(connection, experiment)
    if grown.due is None:
        return Look(None, grown.look_after)
    cut = cut_at(grown.due, grown.stored, grown.made_of)
    made = next_table(connection, experiment, grown.stored, cut)
    store_table(connection, experiment, made)
    return Look(made, grown.look_after)


def put_first_table(connection: Connection, experiment: Experiment) -> Experiment:
    """Publish a version's first table, due or not, from all that is stored.

    The transaction must hold the ledger and the experiment (start, switch off, add an arm).
    """
    stored = growth(connection, experiment).stored if experiment.table_number else {}
    made = next_table(connection, experiment, stored, stored)
    return store_table(connection, experiment, made)


def restart_unbounded(connection: Connection) -> list[Experiment]:
    """Begin the counts of all live experiments without a fixed band again, each with a new first table.

    Some of their visitors may be drawn a second time. A table that contains the own record would
    tell more than the budget allows; a fixed band bounds it. The transaction must hold the ledger.
    """
    restarted = []
    for known in experiments.everything(connection):
        if known.status not in ("running", "paused") or recipe_of(known).fixed_band() is not None:
            continue
        experiment = experiments.by_key(connection, known.key, lock=True)
        detail = promise_entries.restart_detail(experiment.table_number)
        commitments.record(connection, "restart", experiment, **detail)
        restarted.append(put_first_table(connection, experiment))
    return restarted


def next_table(
    connection: Connection, experiment: Experiment, stored: Cut, cut: Cut
) -> PublishedTable:
    """Make the next table of an experiment from the decisions in a cut.

    Args:
        connection: inside a transaction that holds the experiment.
        experiment: the experiment.
        stored: all its decisions.
        cut: the decisions that the table is made from.

    Raises:
        BrokenPromiseError: the row disagrees with the chain. A table made from a changed row would
            be chained, and would stay in force after the row was changed back.
    """
    promise = promises.check(connection, experiment)
    now = commitments.moment(connection)
    recipe = recipe_of(experiment)
    closed = _last_closed(connection, experiment, now)
    since = promise.restarts[-1] if promise.restarts else 0
    counts = table_counts(connection, experiment, stored, cut, closed, since)
    # All inputs of a strategy are stored with the table and chained through its digest.
    counts["horizon"] = recipe.horizon
    # Documents print the chain's head. Without salt, somebody who knows all other visitors could try
    # out the last one's segment.
    counts["salt"] = system_bytes(16).hex()
    seen = recipe.counts(counts["shows"], counts["rewards"])
    made = recipe.table(seen)
    promises.check_table(promise, made)
    return PublishedTable(
        number=experiment.table_number + 1,
        version=experiment.version,
        strategy=experiment.strategy,
        published_at=times.as_datetime(now),
        decisions=sum(cut.values()),
        counts=_encode(counts).encode(),
        rows=made.encoded(),
    )


def _last_closed(connection: Connection, experiment: Experiment, now: int) -> int:
    """Return the last table whose shows count without a reward.

    A table's attribution window closes when that time has passed since the next one replaced it.
    """
    if not experiment.attribution_seconds:
        return ALL_TABLES
    since = now - experiment.attribution_seconds * 1_000_000
    published = experiments.published_at(connection, experiment)
    return max((number - 1 for number, at in published.items() if at <= since), default=0)


def recipe_of(experiment: Experiment) -> Recipe:
    """Return how the tables of the current version are made from counts."""
    return Recipe(
        experiment.strategy,
        budgets=experiment.budgets,
        active=experiment.active,
        cap=experiment.metrics[0].cap_micro,
        horizon=experiment.planned_visitors,
        by_context=rows_by_context(experiment.contexts, experiment.segments),
    )


def first_table(experiment: Experiment) -> Table:
    """Return the table before any visits, checked exactly."""
    empty = [[0] * len(experiment.arms) for _ in experiment.rows]
    recipe = recipe_of(experiment)
    return recipe.table(recipe.counts(empty, empty))


def first_neutral(experiment: Experiment) -> Row:
    """Return the neutral row of an experiment that starts."""
    weighted = neutral_row([arm.weight for arm in experiment.arms])
    return promises.fixed_neutral(recipe_of(experiment).fixed_band(), weighted)


def store_table(connection: Connection, experiment: Experiment, made: PublishedTable) -> Experiment:
    """Store and chain a table, from which the next transaction draws; return the experiment with it."""
    detail = promise_entries.table_detail(
        made.number,
        made.version,
        decoded_table(made.rows, len(experiment.arms)),
        made.counts,
        made.decisions,
        made.strategy,
        times.as_stored(made.published_at),
    )
    commitments.record(connection, "table", experiment, **detail)
    return experiments.add_table(connection, experiment, made)

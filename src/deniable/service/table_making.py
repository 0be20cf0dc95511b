"""The next table of an experiment: made from its counts, checked, stored and chained.

A table is a function of the counts stored with it. It is checked in exact arithmetic before it is
stored, and stored and chained before anything is drawn from it.
"""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy import Connection

from deniable.privacy.tables import Table, decoded_table
from deniable.service.table_inputs import counts_now
from deniable.storage import commitments, experiments, promise_entries, promises, times
from deniable.storage.promise_entries import newest_scores, scores_detail
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.sums import Sums, sums
from deniable.strategies.making import Recipe

_encode = json.JSONEncoder(separators=(",", ":")).encode


def next_table(
    connection: Connection, experiment: Experiment, found: Sums | None = None
) -> PublishedTable:
    """Make the next table of an experiment from the stored counts.

    Args:
        connection: inside a transaction.
        experiment: the experiment.
        found: the sums of its counters, if already read.

    Raises:
        BrokenPromiseError: the row disagrees with the chain. A table made from a changed row would
            be chained, and would stay in force after the row was changed back.
    """
    found = sums(connection, experiment) if found is None else found
    promise = promises.check(connection, experiment)
    now = commitments.moment(connection)
    recipe = recipe_of(experiment)
    counts = counts_now(connection, experiment, now, found)
    wanted = None
    if recipe.kind.follows_scores:
        wanted = newest_scores(connection, experiment)
        counts["scores"] = None if wanted is None else scores_detail(wanted)
    # All inputs of a strategy are stored with the table and chained through its digest.
    counts["horizon"] = recipe.horizon
    counts["rule"] = recipe.kind.rule
    counts["additions"] = experiment.table_number  # the first table is made without noise
    seen = recipe.counts(counts["shows"], counts["rewards"], counts["additions"], wanted)
    late = promise.band if recipe.fixed_band() is None else None
    late = late or recipe.late_band(seen)
    counts["floors"] = None if late is None else list(late.floors)
    made = recipe.table(seen, late)
    promises.check_table(replace(promise, band=late or promise.band), made)
    return PublishedTable(
        number=experiment.table_number + 1,
        version=experiment.version,
        strategy=experiment.strategy,
        published_at=times.as_datetime(now),
        decisions=found.decisions,
        counts=_encode(counts).encode(),
        rows=made.encoded(),
    )


def recipe_of(experiment: Experiment) -> Recipe:
    """Return how the tables of the current version are made from counts."""
    return Recipe(
        experiment.strategy,
        budgets=experiment.budgets,
        active=experiment.active,
        cap=experiment.metrics[0].cap_micro,
        horizon=experiment.planned_visitors,
        across_time=experiment.across_time,
        trace_nano=experiment.trace_nano,
    )


def first_table(experiment: Experiment) -> Table:
    """Return the table before any visits, checked exactly."""
    empty = [[0] * len(experiment.arms) for _ in experiment.segments]
    recipe = recipe_of(experiment)
    return recipe.table(recipe.counts(empty, empty))


def put_first_table(connection: Connection, experiment: Experiment) -> None:
    """Publish a table in a transaction that holds the chain (start, switch off, add an arm)."""
    store_table(connection, experiment, next_table(connection, experiment))


def put_into_force(
    connection: Connection, experiment: Experiment, made: PublishedTable
) -> PublishedTable | None:
    """Store and chain a table that was made outside this transaction, unless the experiment changed."""
    commitments.lock_chain(connection)
    locked = experiments.held(connection, experiment)
    live = locked.status in ("running", "paused")
    unchanged = (made.number, made.version) == (locked.table_number + 1, locked.version)
    unchanged &= len(experiment.segments) == locked.segments
    if not live or not unchanged:  # stopped meanwhile, or its arms or segments changed
        return None
    if recipe_of(experiment).kind.follows_scores:
        newest = newest_scores(connection, experiment)
        if json.loads(made.counts)["scores"] != (newest and scores_detail(newest)):
            return None  # new scores arrived meanwhile; the table that is due will use those
    store_table(connection, experiment, made)
    return made


def store_table(connection: Connection, experiment: Experiment, made: PublishedTable) -> None:
    """Store and chain a table; the next transaction draws from it."""
    recipe = recipe_of(experiment)
    settled = None
    if recipe.kind.offers_across_time:
        settled = recipe.settled_band(json.loads(made.counts)["floors"])
    detail = promise_entries.table_detail(
        made.number,
        made.version,
        decoded_table(made.rows, len(experiment.arms)),
        made.counts,
        made.decisions,
        made.strategy,
        times.as_stored(made.published_at),
        settled,
    )
    commitments.record(connection, "table", experiment, **detail)
    experiments.add_table(connection, experiment, made)

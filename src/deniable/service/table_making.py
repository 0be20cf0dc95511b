"""The next table of an experiment: made from its counts, checked, stored and chained.

A table is a function of the counts stored with it. It is checked in exact arithmetic before it is
stored, and stored and chained before anything is drawn from it.

Without a trace budget, the counts are the sums of the counters. With one, each decision enters the sums
exactly once, with noise, and a table never depends on anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.privacy.noise import discrete_laplace
from deniable.privacy.tables import Table, decoded_table
from deniable.storage import commitments, experiments, promise_entries, promises, times
from deniable.storage.counts import table_counts
from deniable.storage.promise_entries import newest_scores, scores_detail
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.sums import Sums, sums
from deniable.strategies.recipe import Recipe

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


def put_first_table(connection: Connection, experiment: Experiment) -> Experiment:
    """Publish a table in a transaction that holds the chain (start, switch off, add an arm)."""
    return store_table(connection, experiment, next_table(connection, experiment))


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


def store_table(connection: Connection, experiment: Experiment, made: PublishedTable) -> Experiment:
    """Store and chain a table, from which the next transaction draws; return the experiment with it."""
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
    return experiments.add_table(connection, experiment, made)


# -- the counts ------------------------------------------------------------------------------------


def counts_now(connection: Connection, experiment: Experiment, now: int, found: Sums) -> JsonObject:
    """Return the counts for a table made now, where `found` are the sums of its counters."""
    if experiment.trace_nano is not None or experiment.attribution_seconds is not None:
        return _counts(connection, experiment, now)
    width = len(experiment.arms)
    starts = range(0, len(found.shows), width)
    return {
        "shows": [found.shows[start : start + width].tolist() for start in starts],
        "rewards": [found.rewards[start : start + width].tolist() for start in starts],
    }


def _counts(connection: Connection, experiment: Experiment, now: int) -> JsonObject:
    """Return the counts for an experiment with an attribution window or a trace budget.

    A show counts once its attribution window has closed or its reward has arrived, whichever is
    first. The window of a table's decisions closes with the most recent of them. With a trace
    budget, each decision is counted exactly once, with noise (MATH section 13).
    """
    width, height = len(experiment.arms), len(experiment.segments)
    found = table_counts(connection, experiment)
    ends = _ends(experiments.published_at(connection, experiment), now)
    window = (experiment.attribution_seconds or 0) * 1_000_000
    closed = {number for number, end in ends.items() if now >= end + window}
    if experiment.trace_nano is None:
        shows = [[0] * width for _ in range(height)]
        rewards = [[0] * width for _ in range(height)]
        for (number, segment, arm), (shown, rewarded, value, _) in found.items():
            if segment >= 0:
                shows[segment][arm] += shown if number in closed else rewarded
                rewards[segment][arm] += value
        return {"shows": shows, "rewards": rewards}
    return _noisy_counts(connection, experiment, found, closed)


def _ends(published: Mapping[int, int], now: int) -> dict[int, int]:
    """Map table numbers to when they were replaced; `now` for the last, and for earlier decisions."""
    numbers = sorted(published)
    ends = {number: published[after] for number, after in pairwise(numbers)}
    first = published[numbers[0]] if numbers else now
    return {0: first, **ends, **({numbers[-1]: now} if numbers else {})}


def _padded(sums: list[list[int]], height: int, width: int) -> list[list[int]]:
    """Pad sums with zeros for arms and segments added since."""
    rows = [row + [0] * (width - len(row)) for row in sums]
    return rows + [[0] * width for _ in range(height - len(rows))]


def _noisy_counts(
    connection: Connection,
    experiment: Experiment,
    found: Mapping[tuple[int, int, int], tuple[int, int, int, int]],
    closed: set[int],
) -> JsonObject:
    """Return the noisy sums of the table in force plus everything new since then, with fresh noise.

    `entered` records which part of each table's decisions is in the sums. Once a table has closed,
    nothing more is added for it.
    """
    assert experiment.trace_nano is not None
    width, height = len(experiment.arms), len(experiment.segments)
    before = experiments.published(connection, experiment, experiment.table_number)
    if before:
        last = json.loads(before[0].counts)
        shows = _padded(last["shows"], height, width)
        rewards = _padded(last["rewards"], height, width)
        entered = {tuple(row[:3]): tuple(row[3:]) for row in last["entered"]}
    else:
        shows = [[0] * width for _ in range(height)]
        rewards = [[0] * width for _ in range(height)]
        entered = {}
    new_shows = [[0] * width for _ in range(height)]
    new_rewards = [[0] * width for _ in range(height)]
    for cell, (shown, rewarded, value, _) in found.items():
        number, segment, arm = cell
        old_shows, old_value, frozen = entered.get(cell, (0, 0, 0))
        if segment < 0 or frozen:
            continue
        now_shows = shown if number in closed else rewarded
        new_shows[segment][arm] += now_shows - old_shows
        new_rewards[segment][arm] += value - old_value
        entered[cell] = (now_shows, value, int(number in closed))
    if before:  # no decisions precede the first table, so it needs no noise
        cap = experiment.metrics[0].cap_micro
        for segment in range(height):
            for arm in range(width):
                shows[segment][arm] += new_shows[segment][arm] + discrete_laplace(
                    4 * 10**9, experiment.trace_nano
                )
                rewards[segment][arm] += new_rewards[segment][arm] + discrete_laplace(
                    4 * 10**9 * cap, experiment.trace_nano
                )
    return {
        "shows": shows,
        "rewards": rewards,
        "entered": [[*cell, *state] for cell, state in sorted(entered.items())],
    }

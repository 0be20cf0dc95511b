"""The counts that the next table of an experiment is made from.

Without a trace budget they are the sums of the counters. With one, each decision enters the sums
exactly once, with noise, and a table never depends on anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.privacy.noise import discrete_laplace
from deniable.storage import experiments
from deniable.storage.counts import table_counts
from deniable.storage.records import Experiment
from deniable.storage.sums import Sums


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

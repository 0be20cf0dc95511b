"""An experiment's results over time, as records for charts: narrowing lifts, rates, traffic.

Like the verdict, they omit what is not yet reliable, and segments with small cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deniable._types import Record
from deniable.analysis.evidence import Evidence, first_state
from deniable.analysis.result_records import Results
from deniable.analysis.results import ALPHA, results_of
from deniable.analysis.small_cells import visible_segments
from deniable.inference.intervals import Intervals, combine, of_sums, segment_shares
from deniable.inference.state import State, update_all

MOST_POINTS = 40
"""Maximum points per curve; tables in between are skipped."""

MOST_SEGMENTS = 6
"""Maximum number of segments with their own chart: the largest."""


@dataclass(frozen=True)
class ResultHistory:
    """Records for charts; lifts in percentage points if rewards are shares, else in the metric's unit.

    Attributes:
        results: the current verdict.
        arms: all arms, in declared order.
        lifts: segment (None for all), arm, visitors, estimate, low and high, oldest first.
        traffic: visitors, arm, and share of the visitors since the previous point, oldest first.
        places: segments with lifts: None (all) first, then the largest in declared order.
    """

    results: Results
    arms: tuple[str, ...]
    lifts: tuple[Record, ...]
    traffic: tuple[Record, ...]
    places: tuple[str | None, ...]


def result_history(evidence: Evidence, results: Results | None = None) -> ResultHistory:
    """Return all records for charts of an experiment's results."""
    experiment = evidence.experiment
    names = [arm.key for arm in experiment.arms]
    default = names.index(experiment.default_arm)
    pairs = [(default, arm) for arm in range(len(names)) if arm != default]
    visible = visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms])
    n_pairs = len(names) * (len(names) - 1) // 2
    n_shown = n_pairs * (len(experiment.rows) + (len(experiment.rows) > 1))
    each = ALPHA / len(experiment.metrics) / n_shown
    lifts: list[Record] = []
    traffic: list[Record] = []
    state, start = first_state(evidence, pairs), 0
    for end in _cuts(len(evidence.numbers)):
        part = slice(start, end)
        sums = (evidence.probabilities, evidence.shows, evidence.rewards[0], evidence.squares[0])
        state = update_all(state, *(one[part] for one in sums))
        start = end
        lifts += _lifts(evidence, state, each, visible, names)
        shown = evidence.shows[part].sum(axis=(0, 1))
        if shown.sum():
            total = int(state.shows.sum())
            shares = shown / shown.sum()
            traffic += [
                {"visitors": total, "arm": name, "share": float(share)}
                for name, share in zip(names, shares, strict=True)
            ]
    largest = sorted(visible, key=lambda j: -float(state.visitors[j]))[:MOST_SEGMENTS]
    places: list[str | None] = [None] if len(experiment.rows) > 1 else []
    places += [experiment.rows[j] for j in sorted(largest)]
    drawn = {record["segment"] for record in lifts}
    return ResultHistory(
        results=results_of(evidence) if results is None else results,
        arms=tuple(names),
        lifts=tuple(lifts),
        traffic=tuple(traffic),
        places=tuple(place for place in places if place in drawn),
    )


def _cuts(n_tables: int) -> list[int]:
    """Return after how many tables each point is drawn."""
    return sorted({int(n) for n in np.linspace(0, n_tables, MOST_POINTS + 1)[1:] if n >= 1})


def _lifts(
    evidence: Evidence, state: State, each: float, visible: list[int], names: list[str]
) -> list[Record]:
    experiment = evidence.experiment
    cap = experiment.metrics[0].cap
    scale = 100 if cap == 1 else cap  # percentage points
    planned = state.planned_between
    found = of_sums(state.between, planned, state.rate, each, -1.0, exact=False)
    records = []

    def record(
        place: str | None, visitors: float, row: int, at: tuple[int, ...], of: Intervals
    ) -> None:
        if of.ready[at]:
            values = (of.estimate[at], of.low[at], of.high[at])
            ends = zip(("estimate", "low", "high"), (scale * float(v) for v in values), strict=True)
            arm = names[state.pairs[row][1]]
            records.append({"segment": place, "arm": arm, "visitors": int(visitors), **dict(ends)})

    for row in range(len(state.pairs)):
        for j in visible:
            record(experiment.rows[j], state.visitors[j], row, (j, row), found)
    if len(experiment.rows) > 1 and state.visitors.sum():
        weights = segment_shares(state, None)[:, None]
        whole = combine(state.between, weights, planned, state.rate, each, -1.0, exact=False)
        for row in range(len(state.pairs)):
            record(None, float(state.visitors.sum()), row, (row,), whole)
    return records

"""The input of inference, read from an experiment's counters: sums per table, no rows.

Within a table, the probability of every arm is constant, and so are the weights and guesses of a
score. The state in `deniable.inference.state` is therefore a function of the sums per table, and
nothing else is kept. Each table is one batch. It is included once the attribution windows of all
its decisions have closed and no more rewards can arrive; including rewarded visitors first would
inflate every rate. Without an attribution window, it is included one table later, with the rewards that
were stored when the table in force was published (`storage.released`).

The strategy that made a table does not matter here.
"""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from deniable._validation import FloatArray
from deniable.inference.state import State, VisitorBatch, new_state, update, update_all
from deniable.privacy.exact import SPACE
from deniable.storage import commitments, experiments, times
from deniable.storage.counts import result_counts
from deniable.storage.records import MICRO, Experiment, PublishedTable, Role
from deniable.storage.released import LateReward, Release, late_rewards, release_of

IntArray: TypeAlias = NDArray[np.int64]

CACHED_EXPERIMENTS = 16
"""Experiments with cached counters: 2 MB each for 5 million decisions, 20 segments and 10 arms."""

USUAL_VISITORS = 100_000
"""Number of visitors assumed for planning intervals if the experiment does not specify it."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums of the settled tables. T tables, J segments, K arms, M metrics.

    Attributes:
        experiment: the experiment.
        moment: the store's time when it was read, in microseconds.
        numbers: the settled tables, oldest first.
        began: when each was published, in microseconds, (T,).
        ended: when each was replaced, (T,).
        probabilities: their rows, (T, J, K).
        in_force: the rows of the table in force, (J, K).
        shows: members of listed segments by table, segment and arm, (T, J, K).
        rewards: sums of their rewards in units of the cap, (M, T, J, K).
        squares: sums of their squared rewards, (M, T, J, K).
        groups: held-out visitors and all members, listed or not, by table, (T, 2).
        group_rewards: the same groups' rewards, (M, T, 2).
        group_squares: and squared rewards, (M, T, 2).
        all_shows: members among all released decisions, settled or not; the last row is for unlisted
            segments, (J + 1, K).
        began_with: number of segments and arms of the first table; more may have been added since.
        waiting: released members whose rewards may still come.
    """

    experiment: Experiment
    moment: int
    numbers: tuple[int, ...]
    began: FloatArray
    ended: FloatArray
    probabilities: FloatArray
    in_force: FloatArray
    shows: FloatArray
    rewards: FloatArray
    squares: FloatArray
    groups: FloatArray
    group_rewards: FloatArray
    group_squares: FloatArray
    all_shows: FloatArray
    began_with: tuple[int, int]
    waiting: int

    def batches(self, metric: int = 0) -> list[VisitorBatch]:
        """Return one batch per settled table, in the order of the decisions."""
        parts = (self.probabilities, self.shows, self.rewards[metric], self.squares[metric])
        return [VisitorBatch(*part) for part in zip(*parts, strict=True)]

    def state(self, metric: int = 0, pairs: list[tuple[int, int]] | None = None) -> State:
        """Return the complete inference state, with the table in force as the latest."""
        sums = (self.probabilities, self.shows, self.rewards[metric], self.squares[metric])
        state = update_all(first_state(self, pairs), *sums)
        nobody = np.zeros(self.in_force.shape)
        return update(state, VisitorBatch(self.in_force, nobody, nobody))

    def holdout_state(self, metric: int = 0) -> State:
        """Compare held-out visitors with members: two arms with fixed probabilities in one segment."""
        share = self.experiment.holdout / 1000
        planned = self.experiment.planned_visitors or USUAL_VISITORS
        state = new_state(1, 2, horizon=planned, typical=min(share, 1 - share))
        chances = np.broadcast_to([share, 1 - share], (len(self.numbers), 1, 2))
        parts = (self.groups, self.group_rewards[metric], self.group_squares[metric])
        return update_all(state, chances, *(part[:, None] for part in parts))


def first_state(evidence: Evidence, pairs: list[tuple[int, int]] | None = None) -> State:
    """Return the state before the first visitor, with the plans fixed when the experiment was created.

    They cover the segments and arms that it began with: a plan must not change once visitors have
    come.
    """
    experiment, (n_segments, n_arms) = evidence.experiment, evidence.began_with
    return new_state(
        len(experiment.rows),
        len(experiment.arms),
        horizon=max(1.0, (experiment.planned_visitors or USUAL_VISITORS) / n_segments),
        pairs=pairs,
        typical=min(1 / (n_arms - 1 + math.exp(experiment.budget)), 1 / len(experiment.arms)),
    )


class CounterCache:
    """Caches released counters. They are read again when more is released."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Release, IntArray]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, connection: Connection, experiment: Experiment) -> IntArray:
        """Return rows of table, role, segment, arm, metric, shows, value and square, one per cell.

        With an attribution window, results use only tables that no reward can change any more. So
        none of their rewards is left out.
        """
        windowed = experiment.attribution_seconds is not None
        release = release_of(connection, experiment)
        place = f"{experiment.id} {windowed}"
        known = self._known.get(place)
        if known is not None and known[0] == release and not windowed:
            return known[1]
        sizes, rows = result_counts(connection, experiment, release.tables)
        late = () if windowed else tuple(late_rewards(connection, experiment, release))
        cells = _by_cell(sizes, rows, late)
        with self._lock:
            self._known[place] = (release, cells)
            self._known.move_to_end(place)
            if len(self._known) > CACHED_EXPERIMENTS:
                self._known.popitem(last=False)
        return cells


def _by_cell(
    sizes: tuple[int, ...], rows: Sequence[Sequence[int]], late: Sequence[LateReward]
) -> IntArray:
    """Return the counters of each cell, added up over writers, without late rewards."""
    read = np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 4)
    if late:
        table, role, segment, arm, metric, _, value, square = np.array(late, dtype=np.int64).T
        inside = np.ravel_multi_index((role, segment + 1, arm, metric), sizes)
        cell = table * math.prod(sizes) + inside
        read = np.vstack([read, np.column_stack([cell, np.zeros_like(cell), -value, -square])])
        read = read[np.argsort(read[:, 0], kind="stable")]
    if not len(read):
        return np.empty((0, 8), dtype=np.int64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(read[:, 0])) + 1])
    number, inside = np.divmod(read[starts, 0], math.prod(sizes))
    role, segment, arm, metric = np.unravel_index(inside, sizes)
    sums = np.add.reduceat(read[:, 1:], starts)
    return np.column_stack([number, role, segment - 1, arm, metric, sums])


def evidence_of(
    connection: Connection, experiment: Experiment, cache: CounterCache | None = None
) -> Evidence:
    """Read the evidence from one consistent view of the store, as of the last release."""
    published = experiments.published(connection, experiment)
    counted = (cache or CounterCache()).read(connection, experiment)
    counted = counted[(counted[:, 1] == Role.MEMBER) | (counted[:, 1] == Role.HOLDOUT)]
    moment = commitments.moment(connection)
    table, role, segment, arm, metric = counted[:, :5].T
    ends = table_ends(experiment, published, moment)
    window = (experiment.attribution_seconds or 0) * MICRO
    if experiment.attribution_seconds is not None:
        settled = [one for one in published if moment >= ends[one.number] + window]
    else:  # rewards of the newest decisions may be on their way: they have one more epoch
        newest = None if experiment.stopped_at else experiment.table_number - 1
        settled = [one for one in published if one.number != newest]
    n_tables, n_metrics = len(settled), len(experiment.metrics)
    n_segments, n_arms = len(experiment.rows), len(experiment.arms)
    place = np.full(max([0, *(one.number for one in published)], default=0) + 1, -1)
    place[[one.number for one in settled]] = np.arange(n_tables)
    position = place[table]
    caps = np.array([one.cap_micro for one in experiment.metrics], dtype=float)
    sums = np.stack(
        [
            counted[:, 5].astype(float),
            counted[:, 6] / caps[metric],
            counted[:, 7] / MICRO,
        ]
    )
    member = role == Role.MEMBER
    listed = member & (segment >= 0)
    cells = np.zeros((3, n_metrics, n_tables, n_segments, n_arms))
    used = listed & (position >= 0)
    cells[:, metric[used], position[used], segment[used], arm[used]] = sums[:, used]
    shape = (n_metrics, n_tables, 2)
    closed = position >= 0
    at = np.ravel_multi_index((metric[closed], position[closed], member[closed].astype(int)), shape)
    groups = np.stack(
        [np.bincount(at, value[closed], math.prod(shape)).reshape(shape) for value in sums]
    )
    # Detecting tampered counters is the job of `ledger verify`; they must not crash a page.
    cells[1] = np.minimum(cells[1], cells[0, :1])
    groups[1] = np.minimum(groups[1], groups[0, :1])
    everything = np.zeros((n_segments + 1, n_arms))
    np.add.at(everything, (segment[member], arm[member]), sums[0][member])
    rows = _chances(settled, experiment)
    latest = _chances(published[-1:], experiment)
    return Evidence(
        experiment=experiment,
        moment=moment,
        numbers=tuple(one.number for one in settled),
        began=np.array([times.as_stored(one.published_at) for one in settled], dtype=float),
        ended=np.array([ends[one.number] for one in settled], dtype=float),
        probabilities=rows,
        in_force=latest[0] if len(latest) else np.full((n_segments, n_arms), 1 / n_arms),
        shows=cells[0, 0],
        rewards=cells[1],
        squares=_possible_squares(cells[0, 0], cells[1], cells[2]),
        groups=groups[0, 0],
        group_rewards=groups[1],
        group_squares=_possible_squares(groups[0, 0], groups[1], groups[2]),
        all_shows=everything,
        began_with=_shape_of(published[0]) if published else (n_segments, n_arms),
        waiting=int(sums[0][listed & (position < 0)].sum()),
    )


def table_ends(
    experiment: Experiment, published: list[PublishedTable], moment: int
) -> dict[int, int]:
    """Map table numbers to the last time a decision can have been drawn from them, in microseconds."""
    stop = moment if experiment.stopped_at is None else times.as_stored(experiment.stopped_at)
    ends = {one.number: times.as_stored(after.published_at) for one, after in pairwise(published)}
    return {**ends, **{one.number: stop for one in published[-1:]}}


def _chances(tables: list[PublishedTable], experiment: Experiment) -> FloatArray:
    """Decode the rows of many tables at once: each entry divided by 2^64.

    An entry is little-endian; its first eight bytes suffice unless it is 2^64 itself.
    """
    n_segments, n_arms = len(experiment.rows), len(experiment.arms)
    raw = np.frombuffer(b"".join(one.rows for one in tables), dtype=np.uint8)
    entries = raw.reshape(len(tables), n_segments + 1, n_arms, -1 if tables else 9)
    low = np.ascontiguousarray(entries[..., :8]).view("<u8")[..., 0]
    chances: FloatArray = low / float(SPACE) + entries[..., 8]
    return chances[:, 1:]  # the first row is for unlisted segments


def _shape_of(table: PublishedTable) -> tuple[int, int]:
    """Return the number of segments and arms when a table was made."""
    shows = json.loads(table.counts)["shows"]
    return len(shows), len(shows[0])


def _possible_squares(shows: FloatArray, rewards: FloatArray, squares: FloatArray) -> FloatArray:
    """Clip sums of squares to their possible range; each was rounded to millionths when stored."""
    with np.errstate(invalid="ignore", divide="ignore"):
        least = np.where(shows > 0, rewards * rewards / shows, 0.0)
    return np.clip(squares, np.minimum(least, rewards), rewards)

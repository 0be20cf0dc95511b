"""Watching: totals of many experiments, what happened to one, its totals over time, and a spot check.

Everything here reads counters or a bounded number of rows, however many decisions are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from deniable.service.export import DecisionLog
from deniable.storage import commitments, experiments, samples
from deniable.storage.records import Cell, Commitment, Experiment
from deniable.storage.samples import Sample
from deniable.storage.store import Store


@dataclass(frozen=True)
class SpotCheck:
    """Some decisions of one experiment, against the tables that they were drawn from.

    Attributes:
        decisions: how many were looked at.
        rewarded: how many of them had a response, success or not.
        shown: how often each arm was shown.
        expected: how often the tables say it should have been, on average.
        variance: of that, by arm.
    """

    decisions: int
    rewarded: int
    shown: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]


class Watching:
    """The part of `Deniable` that looks on while experiments run."""

    _store: Store

    def all_counts(self, wanted: Sequence[Experiment]) -> dict[str, list[Cell]]:
        """Experiment key -> shows and clicks of each arm in each segment. Private."""
        with self._store.read() as connection:
            return experiments.all_cells(connection, wanted)

    def events(self, key: str) -> list[Commitment]:
        """What happened to one experiment, oldest first."""
        with self._store.read() as connection:
            return commitments.entries(connection, experiments.by_key(connection, key))

    def samples(self, key: str) -> list[Sample]:
        """The totals of one experiment over time, oldest first."""
        with self._store.read() as connection:
            return samples.of(connection, experiments.by_key(connection, key))

    def sampled(self) -> dict[str, tuple[int, int, int]]:
        """Experiment id -> stored times of its first and last sample, and how many it has."""
        with self._store.read() as connection:
            return samples.latest(connection)

    def add_samples(self, taken: Sequence[tuple[Experiment, Sample]]) -> None:
        """Remember totals. Losing some to another process that does the same is no harm."""

        def add(connection: Connection) -> None:
            for experiment, sample in taken:
                samples.add(connection, experiment, sample)

        with suppress(IntegrityError):
            self._store.retried(add)

    def thin_samples(self, experiment: Experiment) -> None:
        """Drop some of an experiment's samples where it has too many."""
        self._store.retried(lambda connection: samples.thin(connection, experiment))

    def spot_check(self, experiment: Experiment, limit: int = 2_000) -> SpotCheck:
        """Compare some decisions with what their tables say.

        Which ones is decided by their random ids, never by what was drawn.
        """
        shown = [0] * len(experiment.arms)
        expected = [0.0] * len(experiment.arms)
        variance = [0.0] * len(experiment.arms)
        decisions = rewarded = 0
        drawn_alike: dict[tuple[int, int, int], list[Any]] = {}
        with self._store.read() as connection:
            log = DecisionLog(connection, experiment)
            for row in log.some(limit):
                decisions += 1
                rewarded += row.reward is not None
                shown[row.shown] += 1
                drawn_alike.setdefault((row.version, row.risk_nano, row.greedy), []).append(row)
            for rows in drawn_alike.values():
                for arm, chance in enumerate(log.propensities(rows[0])):
                    expected[arm] += len(rows) * chance
                    variance[arm] += len(rows) * chance * (1 - chance)
        return SpotCheck(decisions, rewarded, tuple(shown), tuple(expected), tuple(variance))

"""Reading experiments: settings, counters, tables, results, and totals over time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from deniable.storage import commitments, counts, experiments, listing
from deniable.storage.counts import Sample, add_sample, latest_samples, samples_of, thin_samples
from deniable.storage.listing import Found, Labels, Search
from deniable.storage.records import (
    Cell,
    Commitment,
    Experiment,
    PublishedTable,
)
from deniable.storage.released import Release, release_of, released_cells
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.analysis.evidence import CounterCache, Evidence
    from deniable.analysis.result_health import DrawCheck, ResultHealth
    from deniable.analysis.result_records import Results
    from deniable.analysis.summary import ExperimentSummary


MOST_RELEASED = 500
"""Experiments whose released counts are kept."""


class ExperimentViews:
    """The reading half of `Deniable.experiments`; also stores samples of totals."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._released_cells: dict[str, tuple[Release, list[Cell]]] = {}

    def get(self, key: str) -> Experiment:
        """Return one experiment, or raise UnknownNameError."""
        with self._store.read() as connection:
            return experiments.by_key(connection, key)

    def all(self) -> list[Experiment]:
        """Return all experiments, oldest first."""
        with self._store.read() as connection:
            return experiments.everything(connection)

    def find(self, wanted: Search) -> Found:
        """Return one page of a search, in order, with labels and the total number of matches."""
        with self._store.read() as connection:
            return listing.search(connection, wanted)

    def keys(self, most: int) -> list[str]:
        """The keys of so many experiments, newest first."""
        with self._store.read() as connection:
            return listing.keys(connection, most)

    def totals(self) -> dict[str, int]:
        """Return the number of experiments per status."""
        with self._store.read() as connection:
            return listing.totals(connection)

    def labels(self, key: str) -> Labels:
        """Return the owner and tags of an experiment."""
        with self._store.read() as connection:
            identity = bytes.fromhex(experiments.by_key(connection, key).id)
            return listing.labels_of(connection, [identity]).get(identity, Labels())

    def used_labels(self) -> tuple[list[str], list[str]]:
        """Return all owners and all tags in use."""
        with self._store.read() as connection:
            return listing.used(connection, "owner"), listing.used(connection, "tag")

    def counts(self, key: str) -> list[Cell]:
        """Return shows and clicks of each arm in each segment, over all writers, as stored now.

        Private: two looks tell what happened between them. Show `released_counts` to people.
        """
        with self._store.read() as connection:
            return counts.cells(connection, experiments.by_key(connection, key))

    def stored(self, key: str) -> tuple[int, int]:
        """Return how many decisions and rewards are stored, whatever their segments and arms."""
        with self._store.read() as connection:
            return counts.totals(connection, experiments.by_key(connection, key))

    def decisions(self) -> int:
        """Return the number of stored decisions of all experiments, from the counters."""
        with self._store.read() as connection:
            return counts.decisions(connection)

    def unobserved(self) -> tuple[int, float]:
        """Return the number of started experiments for unobserved visits, and their share of visits."""
        with self._store.read() as connection:
            started, visits = counts.unobserved(connection)
            return started, visits / max(counts.decisions(connection), 1)

    def released_counts(self, key: str) -> list[Cell]:
        """Return shows and clicks of each arm in each segment, as of the table in force."""
        return self.all_released_counts([self.get(key)])[key]

    def all_released_counts(self, wanted: Sequence[Experiment]) -> dict[str, list[Cell]]:
        """Return the same of many experiments, by key."""
        with self._store.read() as connection:
            return {one.key: self._released(connection, one) for one in wanted}

    def _released(self, connection: Connection, experiment: Experiment) -> list[Cell]:
        release = release_of(connection, experiment)
        known = self._released_cells.get(experiment.id)
        if known is not None and known[0] == release:
            return known[1]
        found = released_cells(connection, experiment, release)
        self._released_cells[experiment.id] = (release, found)
        while len(self._released_cells) > MOST_RELEASED:
            self._released_cells.pop(next(iter(self._released_cells)), None)
        return found

    def tables(self, key: str, number: int | None = None) -> list[PublishedTable]:
        """Return the published tables, oldest first, or only the one with this number. Private."""
        with self._store.read() as connection:
            return experiments.published(connection, experiments.by_key(connection, key), number)

    def tables_in_force(self, wanted: Sequence[Experiment]) -> dict[str, PublishedTable]:
        """Return the table in force of each started experiment, by key. Private."""
        with self._store.read() as connection:
            return experiments.in_force(connection, wanted)

    def events(self, key: str) -> list[Commitment]:
        """Return people's actions on one experiment, oldest first, without publications."""
        with self._store.read() as connection:
            experiment = experiments.by_key(connection, key)
            found = commitments.entries(connection, experiment)
        return [entry for entry in found if entry.kind != "table"]

    def draw_check(self, experiment: Experiment) -> DrawCheck:
        """Compare how often each arm was shown with the published tables."""
        from deniable.analysis.result_health import draw_check

        with self._store.read() as connection:
            return draw_check(connection, experiment)

    def evidence(self, key: str) -> Evidence:
        """Return the input of inference: sums by settled table. Private."""
        from deniable.analysis.evidence import evidence_of

        with self._store.read() as connection:
            return evidence_of(connection, experiments.by_key(connection, key), self._cache)

    def results(self, key: str) -> Results:
        """Return what an experiment has learned so far, valid at any look. Private."""
        from deniable.analysis.results import results_of

        return results_of(self.evidence(key))

    def summary(self, key: str) -> ExperimentSummary:
        """Return where an experiment stands: leaderboard, segments, history. Private."""
        from deniable.analysis.leaderboard import Leaderboard
        from deniable.analysis.summary import summarize

        with self._store.read() as connection:
            experiment = experiments.by_key(connection, key)
            board = Leaderboard(experiment, self._released(connection, experiment))
            published = experiments.in_force(connection, [experiment]).get(key)
            samples = samples_of(connection, experiment)
        return summarize(board, published, samples)

    def result_health(self, experiment: Experiment) -> ResultHealth:
        """Check whether an experiment's draws, rewards and rates are sound. Private."""
        from deniable.analysis.result_health import health_of

        with self._store.read() as connection:
            return health_of(connection, experiment)

    @cached_property
    def _cache(self) -> CounterCache:
        from deniable.analysis.evidence import CounterCache

        return CounterCache()

    def samples(self, key: str) -> list[Sample]:
        """Return the totals of one experiment over time, oldest first."""
        with self._store.read() as connection:
            return samples_of(connection, experiments.by_key(connection, key))

    def sampled(self) -> dict[str, tuple[int, int, int]]:
        """Return the stored times of the first and last sample and their number, by experiment id."""
        with self._store.read() as connection:
            return latest_samples(connection)

    def add_samples(self, taken: Sequence[tuple[Experiment, Sample]]) -> None:
        """Store totals. If another process stores the same ones first, these are dropped."""

        def add(connection: Connection) -> None:
            for experiment, sample in taken:
                add_sample(connection, experiment, sample)

        with suppress(IntegrityError):
            self._store.retried(add)

    def thin_samples(self, experiment: Experiment) -> None:
        """Delete some of an experiment's samples if it has too many."""
        self._store.retried(lambda connection: thin_samples(connection, experiment))

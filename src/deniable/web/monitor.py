"""The monitor: a thread that remembers totals over time, spot-checks what runs and, once a day, erases
the visitors whom the firm no longer keeps.

Pages read what it found, so none of them waits for it. Each process of a service has one; whoever
comes first takes a sample, and the others find it taken.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from datetime import UTC, datetime

from deniable.analysis.history import sample_now
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import Health, mismatch_chance
from deniable.errors import DeniableError
from deniable.service.service import Deniable
from deniable.storage import times
from deniable.storage.counts import MOST_SAMPLES
from deniable.storage.listing import Search
from deniable.storage.records import Experiment

_log = logging.getLogger("deniable.web")

SECONDS = 5.0
FIRST_SECONDS = 2.0
CHECK_SECONDS = 60
CHECKS_AT_ONCE = 4
RETENTION_SECONDS = 24 * 3600
SAMPLES_AT_ONCE = 20
MANY = 200
"""Experiments; the counters of more are not read for every page."""
MOST_COUNTED = 10_000
FEW = 500
"""Decisions; a check of fewer is made again at once."""


class Monitor(threading.Thread):
    """Looks at all experiments every few seconds.

    Args:
        service: what is watched.

    Attributes:
        health: experiment key -> the latest spot check.
    """

    def __init__(self, service: Deniable) -> None:
        super().__init__(name="deniable-monitor", daemon=True)
        self._service = service
        self._ended = threading.Event()
        self.health: dict[str, Health] = {}
        self._leaderboards: list[Leaderboard] | None = None
        self._retained_at = -math.inf

    def run(self) -> None:
        """See threading.Thread."""
        self._ended.wait(FIRST_SECONDS)  # whoever came first is answered first
        while not self._ended.is_set():
            try:
                self.look()
                self.retain()
            except DeniableError as error:  # the store is away; it may come back
                _log.warning("watching: %s", type(error).__name__)
            self._ended.wait(SECONDS)

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        if self.is_alive():
            self.join()

    def sample(self) -> list[Experiment]:
        """Take the samples that are due, of what runs or is paused."""
        live = [e for e in self._service.experiments.all() if e.status in ("running", "paused")]
        self._sample(live)
        return live

    def leaderboards(self) -> list[Leaderboard] | None:
        """The leaderboards of what runs or is paused.

        Of very many as the last look found them; None before the first one, which takes a while.
        """
        totals = self._service.experiments.totals()
        if totals.get("running", 0) + totals.get("paused", 0) <= MANY:
            return self._counted(None)
        return self._leaderboards

    def _counted(self, live: list[Experiment] | None) -> list[Leaderboard]:
        if live is None:
            search = Search(statuses=("running", "paused"), limit=MOST_COUNTED)
            live = list(self._service.experiments.find(search).experiments)
        counts = self._service.experiments.all_released_counts(live)
        return [Leaderboard(experiment, counts[experiment.key]) for experiment in live]

    def look(self) -> None:
        """Take the samples that are due, and check what was not checked for longest."""
        live = self.sample()
        if len(live) > MANY:
            self._leaderboards = self._counted(live)
        now = datetime.now(UTC)
        due = [e for e in live if self._checked_seconds_ago(e, now) >= CHECK_SECONDS]
        due.sort(key=lambda e: -self._checked_seconds_ago(e, now))
        for experiment in due[:CHECKS_AT_ONCE]:
            check = self._service.experiments.draw_check(experiment)
            if check.decisions:
                learned = self._service.experiments.result_health(experiment)
                self.health[experiment.key] = Health(check, mismatch_chance(check), now, learned)

    def retain(self) -> None:
        """Erase the visitors whom the firm no longer keeps; once a day."""
        if time.monotonic() - self._retained_at < RETENTION_SECONDS:
            return
        self._retained_at = time.monotonic()
        done = self._service.visitors.retain()
        if done is not None and done.decisions:
            _log.info("retention: %d decisions lost their visitor", done.decisions)

    def _checked_seconds_ago(self, experiment: Experiment, now: datetime) -> float:
        found = self.health.get(experiment.key)
        if found is None or found.check.decisions < FEW:
            return math.inf
        return (now - found.checked_at).total_seconds()

    def _sample(self, live: list[Experiment]) -> None:
        """Few at a time: whatever is written here, decisions wait for."""
        moment, taken = times.now(), self._service.experiments.sampled()
        due = []
        for experiment in live:
            first, last, count = taken.get(experiment.id, (0, 0, 0))
            if moment - last >= max(SECONDS * 1e6, (last - first) / MOST_SAMPLES):
                due.append((last, count, experiment))
        due = sorted(due, key=lambda one: one[0])[:SAMPLES_AT_ONCE]
        counts = (
            self._service.experiments.all_released_counts([e for _, _, e in due]) if due else {}
        )
        samples = []
        for _, count, experiment in due:
            board = Leaderboard(experiment, counts[experiment.key])
            if board.visitors:
                samples.append((experiment, sample_now(board, times.as_datetime(moment))))
            if count > MOST_SAMPLES:
                self._service.experiments.thin_samples(experiment)
        if samples:
            self._service.experiments.add_samples(samples)

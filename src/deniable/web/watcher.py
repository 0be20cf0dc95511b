"""The watcher: a thread that remembers totals over time and spot-checks what runs.

Pages read what it found, so none of them waits for it. Each process of a service has one; whoever
comes first takes a sample, and the others find it taken.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from deniable.errors import DeniableError
from deniable.service.result_health import DrawCheck, ResultHealth
from deniable.service.service import Deniable
from deniable.storage import times
from deniable.storage.counts import MOST_SAMPLES, Sample
from deniable.storage.listing import Search
from deniable.storage.records import Experiment
from deniable.web.standing import Standing

_log = logging.getLogger("deniable.web")

SECONDS = 5.0
FIRST_SECONDS = 2.0
CHECK_SECONDS = 60
CHECKS_AT_ONCE = 4
SAMPLES_AT_ONCE = 20
MANY = 200
"""Experiments; the standing of more is not counted for every page."""
MOST_COUNTED = 10_000
FEW = 500
"""Decisions; a check of fewer is made again at once."""
SUSPICIOUS = 1e-6
"""A mismatch less likely than this by chance is told as an alert; 200 experiments checked each
minute for ten years then raise some false alarms, not one a day."""


@dataclass(frozen=True)
class Health:
    """What a spot check found.

    Attributes:
        check: its figures.
        chance: that so large a mismatch between shown arms and tables comes by chance, at most.
        checked_at: when.
        learned: draws by table, delays, drift and novelty.
    """

    check: DrawCheck
    chance: float
    checked_at: datetime
    learned: ResultHealth | None = None

    @property
    def as_designed(self) -> bool:
        """Whether the arms come in the designed proportions."""
        by_table = self.learned is None or self.learned.as_designed
        return self.chance >= SUSPICIOUS and by_table

    @property
    def rewarded_share(self) -> float | None:
        """Share of the decisions that had a response, success or not."""
        return self.check.rewarded / self.check.decisions if self.check.decisions else None


class Watcher(threading.Thread):
    """Looks at all experiments every few seconds.

    Args:
        service: what is watched.

    Attributes:
        health: experiment key -> the latest spot check.
    """

    def __init__(self, service: Deniable) -> None:
        super().__init__(name="deniable-watcher", daemon=True)
        self._service = service
        self._ended = threading.Event()
        self.health: dict[str, Health] = {}
        self._standings: list[Standing] | None = None

    def run(self) -> None:
        """See threading.Thread."""
        self._ended.wait(FIRST_SECONDS)  # whoever came first is answered first
        while not self._ended.is_set():
            try:
                self.look()
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

    def standings(self) -> list[Standing] | None:
        """Where everything stands that runs or is paused.

        Of very many as the last look found it; None before the first one, which takes a while.
        """
        totals = self._service.experiments.totals()
        if totals.get("running", 0) + totals.get("paused", 0) <= MANY:
            return self._counted(None)
        return self._standings

    def _counted(self, live: list[Experiment] | None) -> list[Standing]:
        if live is None:
            search = Search(statuses=("running", "paused"), limit=MOST_COUNTED)
            live = list(self._service.experiments.find(search).experiments)
        counts = self._service.experiments.all_counts(live)
        return [Standing(experiment, counts[experiment.key]) for experiment in live]

    def look(self) -> None:
        """Take the samples that are due, and check what was not checked for longest."""
        live = self.sample()
        if len(live) > MANY:
            self._standings = self._counted(live)
        now = datetime.now(UTC)
        due = [e for e in live if self._checked_seconds_ago(e, now) >= CHECK_SECONDS]
        due.sort(key=lambda e: -self._checked_seconds_ago(e, now))
        for experiment in due[:CHECKS_AT_ONCE]:
            check = self._service.experiments.draw_check(experiment)
            if check.decisions:
                learned = self._service.experiments.result_health(experiment)
                self.health[experiment.key] = Health(check, mismatch_chance(check), now, learned)

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
        counts = self._service.experiments.all_counts([e for _, _, e in due]) if due else {}
        samples = []
        for _, count, experiment in due:
            standing = Standing(experiment, counts[experiment.key])
            if standing.visitors:
                samples.append((experiment, sample_of(standing, times.as_datetime(moment))))
            if count > MOST_SAMPLES:
                self._service.experiments.thin_samples(experiment)
        if samples:
            self._service.experiments.add_samples(samples)


def sample_of(standing: Standing, moment: datetime) -> Sample:
    """The totals of an experiment now."""
    shows = tuple(int(n) for n in standing.shows.sum(axis=0))
    clicks = tuple(int(n) for n in standing.clicks.sum(axis=0))
    return Sample(moment, shows, clicks, standing.lost)


def mismatch_chance(check: DrawCheck) -> float:
    """A bound on the probability of so uneven arms, were they drawn from their tables.

    For each arm the shown count is a sum of independent draws of known probabilities; Bernstein's
    inequality bounds its tail by ``2 exp(-d^2 / (2 variance + 2 d / 3))`` with d the distance from
    its mean, whatever the sample's size. The smallest is multiplied by the number of arms.

    >>> check = DrawCheck(100, 0, shown=(80, 20), expected=(50.0, 50.0), variance=(25.0, 25.0))
    >>> f"{mismatch_chance(check):.1e}"
    '1.0e-05'
    """
    smallest = 1.0
    for shown, expected, variance in zip(check.shown, check.expected, check.variance, strict=True):
        distance = abs(shown - expected)
        if distance > 0:
            smallest = min(
                smallest, 2 * math.exp(-(distance**2) / (2 * variance + 2 * distance / 3))
            )
    return min(1.0, smallest * len(check.shown))

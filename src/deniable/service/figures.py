"""Counters of a process's activity. They contain nothing about individual visitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deniable.service.jobs import DecideJob, Job


@dataclass
class Counts:
    """Counts since the start of this process. They reveal nothing about segments, arms or visitors.

    Attributes:
        decisions: answered decisions, including those of known visitors.
        new_decisions: decisions drawn and stored.
        unstored: decisions answered without the store because it failed.
        rewards: answered rewards.
        batches: committed transactions.
    """

    decisions: int = 0
    new_decisions: int = 0
    unstored: int = 0
    rewards: int = 0
    batches: int = 0

    def add(self, jobs: Sequence[Job]) -> None:
        """Count one finished batch."""
        self.batches += 1
        for job in jobs:
            if isinstance(job, DecideJob):
                self.decisions += len(job.answers)
            elif job.error is None:
                self.rewards += job.size


@dataclass
class Figures(Counts):
    """A snapshot of `Counts` with the state of the queue.

    Attributes:
        refused: jobs refused because the queue was full or they waited too long.
        queued: decisions and rewards now waiting.
        queue_age: how long the oldest of them has waited, in seconds.
        store_failing: whether the store currently fails to store decisions.
    """

    refused: int = 0
    queued: int = 0
    queue_age: float = 0.0
    store_failing: bool = False

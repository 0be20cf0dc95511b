"""What a process counts about itself: how much it did, never for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deniable.service.jobs import DecideJob, Job


@dataclass
class Counts:
    """Counts since the start of this process. They say nothing about segments, arms or visitors.

    Attributes:
        decisions: answered decisions, known visitors included.
        new_decisions: those that were drawn and stored.
        unstored: those answered without the store because it failed.
        rewards: answered rewards.
        batches: transactions.
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
    """`Counts` at one moment, with the state of the queue.

    Attributes:
        refused: jobs refused because the queue was full or they waited for too long.
        queued: decisions and rewards that wait now.
        queue_age: seconds that the oldest of them has waited.
        store_failing: whether the store does not take decisions now.
    """

    refused: int = 0
    queued: int = 0
    queue_age: float = 0.0
    store_failing: bool = False

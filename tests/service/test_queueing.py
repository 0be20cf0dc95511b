"""First come, first served; and who is refused when more comes than can be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from deniable.service.jobs import STANDING_SECONDS, BatchSize, DecideJob, Job, JobQueue

PATIENCE = 0.1
SIMULATED_SECONDS = 8


def _job(size: int = 1) -> DecideJob:
    return DecideJob("checkout", ("v",) * size, (None,) * size, lambda _job: None)


def _sizes(jobs: Iterable[Job]) -> int:
    return sum(job.size for job in jobs)


def test_everything_that_fits_is_one_batch_in_order() -> None:
    queue = JobQueue(1_000)
    jobs = [_job() for _ in range(50)]
    assert all(queue.put(job, 0.0) for job in jobs)
    assert queue.take(1_000, 0.0) == (jobs, [])
    assert (len(queue), queue.size, queue.age(9.0)) == (0, 0, 0.0)


def test_jobs_of_all_sizes_are_taken_in_order() -> None:
    queue = JobQueue(100_000)
    jobs = [_job(size) for size in (1, 90, 20, 500, 1, 100, 1)]
    for job in jobs:
        queue.put(job, 0.0)
    batches = []
    while queue.size:
        batches.append([job.size for job in queue.take(100, 0.0)[0]])
    assert batches == [[1, 90], [20], [500], [1], [100], [1]]


def test_a_full_queue_refuses_new_jobs() -> None:
    queue = JobQueue(1_000)
    assert all(queue.put(_job(100), 0.0) for _ in range(10))
    assert not queue.put(_job(), 0.0)
    queue.take(100, 0.0)
    assert queue.put(_job(), 0.0)
    assert not queue.put(_job(5_000), 0.0), "too large for any queue that is not empty"
    assert queue.size == 901


def test_a_job_larger_than_the_limit_is_taken_by_an_empty_queue() -> None:
    queue = JobQueue(10)
    job = _job(50)
    assert queue.put(job, 0.0)
    assert queue.take(20, 0.0) == ([job], [])


def test_a_burst_is_served_however_long_it_waited() -> None:
    """The store stood still for a second: nothing is refused when it goes on."""
    queue = JobQueue(10_000, PATIENCE)
    for _ in range(500):
        queue.put(_job(), 0.0)
    batch, shed = queue.take(1_000, 1.0)
    assert (len(batch), len(shed)) == (500, 0)


def test_overload_refuses_who_waited_too_long_and_serves_the_rest() -> None:
    """Twice what can be stored comes for ten seconds."""
    queue, now = JobQueue(100_000, PATIENCE), 0.0
    served: list[float] = []
    refused = 0
    for _ in range(200):
        for part in range(200):
            queue.put(_job(), now + part * 0.05 / 200)
        now += 0.05
        batch, shed = queue.take(100, now)
        served += [now - job.since for job in batch]
        refused += len(shed)
    assert queue.size < 4 * 200, "the queue does not grow"
    assert max(served[2_000:]) <= PATIENCE + 0.05 + 1e-9, "and the time of one batch"
    assert len(served) == 200 * 100, "what can be stored is stored"
    assert refused == 200 * 200 - len(served) - queue.size
    assert STANDING_SECONDS <= PATIENCE


def test_what_was_answered_meanwhile_is_forgotten() -> None:
    queue = JobQueue(1_000)
    answered, waiting = _job(), _job()
    answered.late = True
    queue.put(answered, 0.0)
    queue.put(waiting, 0.0)
    assert queue.take(10, 0.0) == ([waiting], [])
    assert queue.size == 0


def test_age_is_that_of_the_oldest() -> None:
    queue = JobQueue(1_000)
    queue.put(_job(), 1.0)
    queue.put(_job(5), 2.0)
    assert queue.age(4.0) == 3.0
    assert _sizes(queue.take(1, 4.0)[0]) == 1
    assert queue.age(4.0) == 2.0


@pytest.mark.parametrize("rate", [5_000.0, 20_000.0, 50_000.0])
@pytest.mark.parametrize("at_the_door", [False, True])
def test_three_times_the_load(rate: float, at_the_door: bool) -> None:
    """Queue and size of transactions together, on a clock of their own, with jobs of three sizes.

    Storing takes 1/rate for each decision, and 2 ms for the disk.
    """
    gaps = {size: size / (3 * rate * share) for size, share in ((1, 0.04), (50, 0.48), (500, 0.48))}
    due = dict(gaps)
    queue, batch_size, now = JobQueue(20_000, PATIENCE), BatchSize(most=5_000), 0.0
    took: list[float] = []
    stored, refused, shed = 0, Counter[int](), 0
    longest = 0
    while now < SIMULATED_SECONDS:
        while (size := min(due, key=due.__getitem__)) and due[size] <= now:
            crowded = at_the_door and queue.crowded(due[size])
            if crowded or not queue.put(_job(size), due[size]):
                refused[size] += 1
            due[size] += gaps[size]
        batch, late = queue.take(batch_size.limit, now)
        shed += len(late)
        seconds = 0.002 + _sizes(batch) / rate
        batch_size.measured(_sizes(batch), seconds)
        now += seconds
        took += [now - job.since for job in batch]
        stored += _sizes(batch)
        longest = max(longest, queue.size)
    took.sort()
    assert took[int(0.99 * len(took))] < 0.25
    assert stored > 0.85 * SIMULATED_SECONDS * rate, "nearly all that could be stored was"
    assert longest < 3 * rate, "less than a second's load is kept"
    if at_the_door:
        assert sum(refused.values()) > 0, "most are refused before they wait"


def test_what_would_only_wait_to_be_refused_is_refused_at_the_door() -> None:
    queue, now = JobQueue(100_000, PATIENCE), 0.0
    assert not queue.crowded(now), "nobody waits"
    for _ in range(40):  # ten times what can be stored, for two seconds
        for _ in range(100):
            queue.put(_job(10), now)
        now += 0.05
        queue.take(100, now)
    assert queue.crowded(now)
    while queue.size:
        queue.take(100_000, now)
    assert not queue.crowded(now)


def test_a_burst_is_not_refused_at_the_door() -> None:
    queue = JobQueue(10_000, PATIENCE)
    queue.put(_job(), 0.0)
    assert not queue.crowded(1.0)

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import pytest

from deniable.service.jobs import STANDING_SECONDS, TURN, BatchSize, DecideJob, FairQueue, Job

PATIENCE = 0.1
SIMULATED_SECONDS = 8


def _job(size: int = 1, caller: Hashable = "one") -> DecideJob:
    return DecideJob("checkout", ("v",) * size, (None,) * size, lambda _job: None, caller=caller)


def _sizes(jobs: Iterable[Job]) -> int:
    return sum(job.size for job in jobs)


def test_everything_that_fits_is_one_batch_in_order() -> None:
    queue = FairQueue(1_000)
    jobs = [_job() for _ in range(50)]
    assert [queue.put(job, 0.0) for job in jobs] == [[]] * 50
    assert queue.take(1_000, 0.0) == (jobs, [])
    assert (len(queue), queue.size, queue.age(9.0)) == (0, 0, 0.0)


def test_callers_share_evenly_whatever_they_send() -> None:
    """One sends ten times as much as the other; a third sends large batches."""
    queue = FairQueue(100_000)
    for number in range(2_000):
        queue.put(_job(caller="greedy"), 0.0)
        if number % 10 == 0:
            queue.put(_job(10, caller="modest"), 0.0)
        if number % 100 == 0:
            queue.put(_job(1_000, caller="batches"), 0.0)
    taken: Counter[object] = Counter()
    while sum(taken.values()) < 4_000:
        for job in queue.take(300, 0.0)[0]:
            taken[job.caller] += job.size
    assert abs(taken["greedy"] - taken["modest"]) <= TURN
    assert abs(taken["greedy"] - taken["batches"]) <= 1_000, "one batch more or less"


def test_single_visitors_are_not_crowded_out_by_batches_of_the_same_caller() -> None:
    queue = FairQueue(100_000)
    for _ in range(50):
        queue.put(_job(1_000), 0.0)
    singles = [_job() for _ in range(40)]
    for job in singles:
        queue.put(job, 0.0)
    taken: list[Job] = []
    for _ in range(2):
        taken += queue.take(1_000, 0.0)[0]
    assert set(singles) <= set(taken)


def test_a_full_queue_takes_from_the_longest_flow() -> None:
    queue = FairQueue(1_000)
    batches = [_job(100, "batches") for _ in range(10)]
    assert [queue.put(job, 0.0) for job in batches] == [[]] * 10
    late = _job(100, "batches")
    assert queue.put(late, 0.0) == [late], "who fills the queue is refused"
    single = _job(1, "single")
    assert queue.put(single, 0.0) == [batches[-1]], "and gives way to others"
    assert queue.size == 901
    assert queue.put(_job(5_000, "single"), 0.0)[-1].size == 5_000, "too large for any queue"
    assert queue.size == 901


def test_a_job_larger_than_the_limit_is_taken_by_an_empty_queue() -> None:
    queue = FairQueue(10)
    job = _job(50)
    assert queue.put(job, 0.0) == []
    assert queue.take(20, 0.0) == ([job], [])


def test_a_burst_is_served_however_long_it_waited() -> None:
    """The store stood still for a second: nothing is refused when it goes on."""
    queue = FairQueue(10_000, PATIENCE)
    for _ in range(500):
        queue.put(_job(), 0.0)
    batch, shed = queue.take(1_000, 1.0)
    assert (len(batch), len(shed)) == (500, 0)


def test_overload_refuses_who_waited_too_long_and_serves_the_rest() -> None:
    """Twice what can be stored comes for ten seconds."""
    queue, now = FairQueue(100_000, PATIENCE), 0.0
    served: list[float] = []
    refused = 0
    for _ in range(200):
        for part in range(200):
            queue.put(_job(caller=part % 4), now + part * 0.05 / 200)
        now += 0.05
        batch, shed = queue.take(100, now)
        served += [now - job.since for job in batch]
        refused += len(shed)
    assert queue.size < 4 * 200, "the queue does not grow"
    assert max(served[2_000:]) <= PATIENCE + 0.05 + 1e-9, "and the time of one batch"
    assert len(served) == 200 * 100, "what can be stored is stored"
    assert refused == 200 * 200 - len(served) - queue.size
    assert STANDING_SECONDS <= PATIENCE


def test_who_sends_little_is_served_while_who_sends_too_much_is_refused() -> None:
    """To store a large batch takes longer than anybody's patience, and they never end."""
    queue, now = FairQueue(100_000, PATIENCE), 0.0
    shed: Counter[object] = Counter()
    served: Counter[object] = Counter()
    for _ in range(100):
        for _ in range(5):
            queue.put(_job(1_000, "batches"), now)
            queue.put(_job(1, "single"), now)
        batch, refused = queue.take(200, now)
        now += 0.25 if batch[0].size > 200 else 0.005
        assert len({job.size for job in batch}) == 1, "large jobs are stored apart"
        served.update(job.caller for job in batch)
        shed.update(job.caller for job in refused)
    assert shed["single"] == 0
    assert served["single"] >= 490
    assert served["batches"] >= 45
    assert shed["batches"] > 200


def test_very_many_flows_are_bounded_too() -> None:
    """A thousand callers with one job each, twice what can be stored."""
    queue, now = FairQueue(100_000, PATIENCE), 0.0
    waited = 0.0
    for number in range(200):
        for part in range(200):
            queue.put(_job(caller=(number, part)), now)
        now += 0.05
        waited = max([waited, *(now - job.since for job in queue.take(100, now)[0])])
    assert waited <= PATIENCE + 0.05 + 1e-9


def test_what_was_answered_meanwhile_is_forgotten() -> None:
    queue = FairQueue(1_000)
    answered, waiting = _job(), _job()
    answered.late = True
    queue.put(answered, 0.0)
    queue.put(waiting, 0.0)
    assert queue.take(10, 0.0) == ([waiting], [])
    assert queue.size == 0


def test_age_is_that_of_the_oldest() -> None:
    queue = FairQueue(1_000)
    queue.put(_job(caller="a"), 1.0)
    queue.put(_job(5, caller="b"), 2.0)
    assert queue.age(4.0) == 3.0
    assert _sizes(queue.take(1, 4.0)[0]) == 1
    assert queue.age(4.0) == 2.0


@pytest.mark.parametrize("rate", [5_000.0, 20_000.0, 50_000.0])
def test_three_times_the_load(rate: float) -> None:
    """Queue and size of transactions together, on a clock of their own, with three kinds of callers.

    Storing takes 1/rate for each decision, and 2 ms for the disk.
    """
    sizes, shares = {"singles": 1, "small": 50, "large": 500}, {"singles": 0.04, "small": 0.48}
    gaps = {who: size / (3 * rate * shares.get(who, 0.48)) for who, size in sizes.items()}
    due = dict(gaps)
    queue, batch_size, now = FairQueue(20_000, PATIENCE), BatchSize(most=5_000), 0.0
    took: list[float] = []
    stored: Counter[object] = Counter()
    shed: Counter[object] = Counter()
    longest = 0
    while now < SIMULATED_SECONDS:
        while (who := min(due, key=due.__getitem__)) and due[who] <= now:
            shed.update(job.caller for job in queue.put(_job(sizes[who], who), due[who]))
            due[who] += gaps[who]
        batch, late = queue.take(batch_size.limit, now)
        shed.update(job.caller for job in late)
        seconds = 0.002 + _sizes(batch) / rate
        batch_size.measured(_sizes(batch), seconds)
        now += seconds
        took += [now - job.since for job in batch]
        for job in batch:
            stored[job.caller] += job.size
        longest = max(longest, queue.size)
    took.sort()
    assert took[int(0.99 * len(took))] < 0.25
    assert sum(stored.values()) > 0.85 * SIMULATED_SECONDS * rate, (
        "nearly all that could be stored was"
    )
    assert shed["singles"] < 0.01 * stored["singles"], "who sends little is served"
    assert stored["small"] == pytest.approx(stored["large"], rel=0.1), "the others share"
    assert longest < 3 * rate, "less than a second's load is kept"


def test_what_would_only_wait_to_be_refused_is_refused_at_the_door() -> None:
    queue, now = FairQueue(100_000, PATIENCE), 0.0
    assert not queue.crowded("greedy", 1, now), "nobody waits"
    for _ in range(40):  # ten times what can be stored, for two seconds
        for _ in range(100):
            queue.put(_job(10, "greedy"), now)
        queue.put(_job(1, "modest"), now)
        now += 0.05
        queue.take(100, now)
    assert queue.crowded("greedy", 10, now)
    assert queue.crowded("greedy", 50, now), "small batches are one flow"
    assert not queue.crowded("greedy", 1, now), "its singles do not stand behind its batches"
    assert not queue.crowded("greedy", 500, now)
    assert not queue.crowded("modest", 1, now)
    while queue.size:
        queue.take(100_000, now)
    assert not queue.crowded("greedy", 10, now)


def test_a_burst_is_not_refused_at_the_door() -> None:
    queue = FairQueue(10_000, PATIENCE)
    queue.put(_job(), 0.0)
    assert not queue.crowded("one", 1, 1.0)

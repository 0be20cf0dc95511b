"""Runs repetitions as tasks of half a second each, in worker processes or any executor.

A task is a list of spans of repetitions. The worker runs them until its time is up and returns the
rest, which is resubmitted. A repetition's numbers depend only on the seed, the job's key and its
own index, so neither the division into tasks nor their order nor the number of workers matters.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import NamedTuple

import numpy as np

from deniable._validation import FloatArray
from deniable.simulation.job import Counts, Outcome, SimulationJob, run_outcome
from deniable.strategies.kernel_rules import LearnerRule

TASK_SECONDS = 0.5
_TASKS_AHEAD = 2  # tasks submitted per worker, so that none is idle


class Span(NamedTuple):
    """Repetitions `first` to `stop` (exclusive) of the job with this index."""

    job: int
    first: int
    stop: int


class FinishedSpan(NamedTuple):
    """Finished repetitions of one job: counts of shape (repetitions, C, J, K).

    Rewards are None if they equal the clicks.
    """

    job: int
    first: int
    shows: Counts
    clicks: Counts
    rewards: FloatArray | None = None


def run_spans(
    jobs: Mapping[int, SimulationJob], spans: Sequence[Span], seed: int, seconds: float
) -> tuple[list[FinishedSpan], list[Span]]:
    """Run spans until the time is up, at least one repetition; return the finished and the rest."""
    deadline = time.perf_counter() + seconds
    batches: list[FinishedSpan] = []
    for position, span in enumerate(spans):
        outcomes: list[Outcome] = []
        for repetition in range(span.first, span.stop):
            if (outcomes or batches) and time.perf_counter() >= deadline:
                rest = [Span(span.job, repetition, span.stop), *spans[position + 1 :]]
                return _with(batches, span, outcomes), rest
            outcomes.append(run_outcome(jobs[span.job], seed, repetition))
        batches = _with(batches, span, outcomes)
    return batches, []


def run_jobs(
    jobs: Sequence[SimulationJob],
    spans: Sequence[Span],
    seed: int,
    executor: Executor | None = None,
    workers: int | None = None,
) -> Iterator[FinishedSpan]:
    """Yield finished batches in any order, until all spans are done.

    Args:
        jobs: the jobs that spans refer to by index.
        spans: the repetitions to run.
        seed: the run's seed.
        executor: where to run; None starts a pool of processes.
        workers: number of processes; None for one per processor. With 1, or if a learner cannot be
            sent to another process, everything runs in this process.
    """
    waiting = deque(spans)
    count = 1 if _only_here(jobs) else workers or os.cpu_count() or 1
    if executor is None:
        # The first slice runs here: a short run finishes before a pool would have started.
        seconds = float("inf") if count == 1 else TASK_SECONDS
        _compile_for(jobs)
        batches, left = run_spans(dict(enumerate(jobs)), list(waiting), seed, seconds)
        yield from batches
        waiting = deque(left)
    if waiting:
        with _pool(executor, count) as pool:
            yield from _run_on(pool, jobs, waiting, seed, count)


def _compile_for(jobs: Sequence[SimulationJob]) -> None:
    """Compile what the jobs need here, once, so that workers find it in the cache on disk."""
    kinds = {(type(job.rule), job.kernel, job.is_plain): job for job in jobs}
    for job in kinds.values():
        if not isinstance(job.rule, LearnerRule):
            run_outcome(replace(job, checkpoints=np.ones(1, np.int64)), 0, 0)


def _only_here(jobs: Sequence[SimulationJob]) -> bool:
    """Whether a learner cannot be pickled: a lambda, or one defined in a notebook."""
    learners = {job.rule.learner for job in jobs if isinstance(job.rule, LearnerRule)}
    main_is_a_file = hasattr(sys.modules["__main__"], "__file__")
    for learner in learners:
        try:
            pickle.dumps(learner)
        except (pickle.PicklingError, AttributeError, TypeError):
            return True
        if getattr(learner, "__module__", "") == "__main__" and not main_is_a_file:
            return True
    return False


def _run_on(
    pool: Executor, jobs: Sequence[SimulationJob], waiting: deque[Span], seed: int, workers: int
) -> Iterator[FinishedSpan]:
    running: set[Future[tuple[list[FinishedSpan], list[Span]]]] = set()
    try:
        while waiting or running:
            while waiting and len(running) < _TASKS_AHEAD * workers:
                part = _take(waiting, share=_TASKS_AHEAD * workers)
                used = {span.job: jobs[span.job] for span in part}
                running.add(pool.submit(run_spans, used, part, seed, TASK_SECONDS))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                batches, left = future.result()
                waiting.extendleft(reversed(left))
                yield from batches
    finally:
        for future in running:
            future.cancel()


def _take(waiting: deque[Span], share: int) -> list[Span]:
    """Take a fair share of what is waiting, in whole spans or, if few are left, in parts."""
    repetitions = sum(span.stop - span.first for span in waiting)
    wanted = max(1, -(-repetitions // share))
    part: list[Span] = []
    while waiting and wanted > 0 and len(part) < 500:
        span = waiting.popleft()
        size = min(wanted, span.stop - span.first)
        part.append(Span(span.job, span.first, span.first + size))
        if span.first + size < span.stop:
            waiting.appendleft(Span(span.job, span.first + size, span.stop))
        wanted -= size
    return part


@contextmanager
def _pool(executor: Executor | None, workers: int) -> Iterator[Executor]:
    if executor is not None:
        yield executor
        return
    with worker_processes(workers) as pool:
        yield pool


def _with(
    batches: list[FinishedSpan], span: Span, outcomes: Sequence[Outcome]
) -> list[FinishedSpan]:
    if not outcomes:
        return batches
    shows, clicks, rewards = zip(*outcomes, strict=True)
    earned = None if rewards[0] is None else np.stack(rewards)
    return [*batches, FinishedSpan(span.job, span.first, np.stack(shows), np.stack(clicks), earned)]


@contextmanager
def worker_processes(count: int) -> Iterator[Executor]:
    """Return an executor on `count` processes, which live until the block ends."""
    # Spawn, because a fork of a process with threads (Polars, Numba) can hang.
    spawned = get_context("spawn")
    with ProcessPoolExecutor(count, spawned, initializer=_end_with_parent) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Exit with the parent: otherwise, workers of a killed program would wait for tasks forever."""
    Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

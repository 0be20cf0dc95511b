"""Runs: policies in environments, with many repetitions, on all processors.

The same seed gives the same results, whatever the number of workers, the order, or how often a run
was interrupted and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from deniable import _validation as check
from deniable.errors import InvalidArgumentError
from deniable.simulation.environment import Environment
from deniable.simulation.job import Kernel, SimulationJob, is_compiled, make_job, points_of
from deniable.simulation.results import Described, SimulationResult, collect
from deniable.simulation.resume import RunFolder, missing
from deniable.simulation.workers import FinishedSpan, Span, run_jobs
from deniable.strategies.kernel_rules import IndexRule, Simulated

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the repetitions finished so far and their total."""


def no_progress(done: int, total: int) -> None:
    """Progress callback that does nothing."""


@dataclass(frozen=True)
class Case:
    """One policy in one environment, as part of a larger run.

    Attributes:
        environment: the ground truth; environments of one run must have different names.
        policy: how arms are chosen.
        horizon: T, if different from the environment's.
        checkpoints: visitors at which to record counts, in addition to the horizon.

    >>> from deniable.strategies.benchmarks import Random
    >>> Case(Environment([0.3, 0.2], horizon=10, name="page"), Random()).policy.label
    'random'
    """

    environment: Environment
    policy: Simulated
    horizon: int | None = None
    checkpoints: tuple[int, ...] = ()


def simulate(
    environment: Environment,
    policies: Sequence[Simulated],
    horizon: int | None = None,
    repetitions: int = 100,
    seed: int = 0,
    checkpoints: Sequence[int] = (),
    *,
    kernel: Kernel = "leap",
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
    folder: str | PathLike[str] | None = None,
    by_arm: bool = True,
) -> SimulationResult:
    """Run each policy in the environment.

    Args:
        environment: the ground truth.
        policies: policies with different labels; use `Custom` for your own.
        horizon: T, the number of visitors, if different from the environment's.
        repetitions: independent runs of each policy.
        seed: random seed.
        checkpoints: visitors at which to record counts, in addition to the horizon.
        kernel: "leap" (fast, with the exact distribution) or "step" (visitor by visitor). Custom
            policies, and rewards that are late or have values, always run visitor by visitor.
        executor: any executor, such as Dask's `Client.get_executor()`; None starts worker
            processes. A script that may start those must guard its entry point with
            `__name__ == "__main__"`.
        workers: number of processes; None for all processors, 1 for only this process.
        progress: called as repetitions finish; see `progress_bar`.
        folder: store finished batches here and resume from them.
        by_arm: also return counts by segment and arm.

    >>> from deniable.strategies.constant import Constant
    >>> page = Environment([0.324, 0.295], horizon=10**8)
    >>> result = simulate(page, [Constant(3)], repetitions=20, seed=1, workers=1)
    >>> round(result.summary()["mean"].item() / 1e6, 2)
    32.26
    """
    compared = check.listed("policies", policies, "a list of policies: [Constant(1)]")
    points = tuple(points_of(checkpoints))
    cases = [Case(environment, policy, horizon, points) for policy in compared]
    return simulate_many(
        cases,
        repetitions,
        seed,
        kernel=kernel,
        executor=executor,
        workers=workers,
        progress=progress,
        folder=folder,
        by_arm=by_arm,
    )


def simulate_many(
    cases: Iterable[Case],
    repetitions: int = 100,
    seed: int = 0,
    *,
    kernel: Kernel = "leap",
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
    folder: str | PathLike[str] | None = None,
    by_arm: bool = False,
) -> SimulationResult:
    """Run many cases at once, as one pool of work; arguments as in `simulate`.

    A case's random numbers depend on its environment's name, its policy's name, the seed and the
    repetition, but on no other case of the run. Learners of `Custom` all meet the same visitors, who
    click alike.

    >>> from deniable.strategies.benchmarks import Random
    >>> pages = [Environment([0.3, 0.2], horizon=10, name=name) for name in ("first", "second")]
    >>> result = simulate_many([Case(page, Random()) for page in pages], 2, workers=1)
    >>> result.frame["environment"].to_list()
    ['first', 'first', 'second', 'second']
    """
    listed = _cases(cases)
    count = check.whole("repetitions", repetitions, 1)
    entropy = check.whole("seed", seed, 0)
    used = None if workers is None else check.whole("workers", workers, 1)
    jobs = _jobs(listed, kernel)
    if not isinstance(folder, str | PathLike | None):
        raise InvalidArgumentError("folder", folder, "a path")
    if not callable(progress):
        raise InvalidArgumentError("progress", progress, "a function of (done, total)")
    if executor is not None and not hasattr(executor, "submit"):
        raise InvalidArgumentError("executor", executor, "a concurrent.futures.Executor, or None")
    store = None if folder is None else RunFolder(Path(folder), jobs, entropy)
    finished = [] if store is None else store.read(count)
    spans = missing(len(jobs), count, finished)
    _run(jobs, spans, entropy, executor, used, progress, store, finished, count)
    described = [
        Described(
            case.environment,
            case.policy.label,
            case.policy.risk_cap,
            job.checkpoints.tolist(),
            [*case.checkpoints, case.horizon or case.environment.horizon],
        )
        for case, job in zip(listed, jobs, strict=True)
    ]
    worlds = tuple({case.environment.name: case.environment for case in listed}.values())
    policies = tuple({case.policy.label: case.policy for case in listed}.values())
    frame, arms = collect(described, finished, by_arm=by_arm)
    return SimulationResult(frame, arms, worlds, policies)


def _cases(cases: Iterable[Case]) -> list[Case]:
    allowed = "a list of cases: [Case(environment, policy), ...]"
    listed = check.listed("cases", cases, allowed)
    for case in listed:
        if not isinstance(case, Case):
            raise InvalidArgumentError("cases", case, allowed)
    return listed


def _jobs(cases: Sequence[Case], kernel: Kernel) -> list[SimulationJob]:
    if not cases:
        raise InvalidArgumentError("policies", [], "1 or more policies")
    jobs = [
        make_job(
            case.environment,
            case.policy,
            case.horizon,
            case.checkpoints,
            kernel,
        )
        for case in cases
    ]
    labels = [f"{case.environment.name}: {case.policy.label}" for case in cases]
    check.distinct("policies", labels, 1)
    for discount in {job.rule.discount for job in jobs if isinstance(job.rule, IndexRule)}:
        from deniable.simulation.kernels.gittins_table import gittins_table

        gittins_table(discount)  # computed once here, then read from disk by all workers
    return jobs


def _run(
    jobs: Sequence[SimulationJob],
    spans: Sequence[Span],
    seed: int,
    executor: Executor | None,
    workers: int | None,
    progress: Progress,
    store: RunFolder | None,
    finished: list[FinishedSpan],
    repetitions: int,
) -> None:
    total = len(jobs) * repetitions
    done = sum(len(batch.shows) for batch in finished)
    progress(done, total)
    for batch in run_jobs(jobs, spans, seed, executor, workers):
        finished.append(batch)
        if store is not None:
            store.write([batch])
        done += len(batch.shows)
        progress(done, total)


def compiling_notice(
    environment: Environment, policies: Sequence[Simulated], kernel: Kernel = "leap"
) -> str | None:
    """Return a message to show while kernels compile in the first run after installation, or None."""
    jobs = [make_job(environment, policy, kernel=kernel) for policy in policies]
    return (
        None
        if all(is_compiled(job) for job in jobs)
        else "compiling the simulator (about 16 s, once)"
    )


@contextmanager
def progress_bar(
    title: str = "simulating", notice: str | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for `simulate(progress=...)` on standard error.

    Args:
        title: title of the bar.
        notice: shown until the first repetition is finished; see `compiling_notice`.

    ::

        with progress_bar() as progress:
            simulate(environment, policies, progress=progress)
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(notice or title, total=None)

        def update(done: int, total: int) -> None:
            started = title if done > 0 else notice or title
            bar.update(task, completed=done, total=total, description=started)

        yield update

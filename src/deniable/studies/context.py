"""The input of a study: its scale, its data, and cached simulations."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.simulation.run import no_progress

if TYPE_CHECKING:
    from deniable import Case, SimulationResult

DATA_FILES = {
    "asos": Path("asos", "asos_digital_experiments_dataset.parquet"),
    "open_bandit": Path("open_bandit", "item_ctr_random_policy.csv"),
}
"""Public data that studies use if it is in the data folder."""

BUDGETS = (0.05, 0.5, 1.0, 3.0, 5.0)
"""The privacy budgets of the paper's figures."""


PACKAGE = Path(__file__).parents[1]
"""The folder of the package's sources."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a digest of all files of the package, so that cached results match the code."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(f"{file.relative_to(PACKAGE).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _shifted(
    progress: Callable[[int, int], None], before: int, total: int, done: int, _: int
) -> None:
    progress(before + done, total)


@dataclass(frozen=True)
class Context:
    """Settings of a run.

    Attributes:
        kept: the folder of finished simulations, until their study is finished.
        quick: whether to use small numbers, to test that everything works.
        seed: random seed of all simulations.
        data: the folder of public data; None if there is none.
        workers: number of processes; None for one per processor.
        executor: where simulations run; None to run them in this process.
        progress: callback that receives the repetitions done and the total.
    """

    kept: Path
    quick: bool = False
    seed: int = 0
    data: Path | None = None
    workers: int | None = None
    executor: Executor | None = None
    progress: Callable[[int, int], None] = no_progress

    def scale(self, full: int, quick: int) -> int:
        """Return the number for this run's scale."""
        return quick if self.quick else full

    def data_file(self, name: str) -> Path | None:
        """Return a file of public data, or None if it does not exist; names are in DATA_FILES."""
        file = self.data / DATA_FILES[name] if self.data else None
        return file if file and file.is_file() else None

    def fingerprint(self, *parts: object) -> str:
        """Return the cache key: the package's sources, the seed, the scale, and these parts."""
        given = (source_digest(), self.seed, self.quick, *parts)
        return hashlib.sha256(repr(given).encode()).hexdigest()[:24]

    def simulate_each(
        self, batches: Sequence[Sequence[Case]], repetitions: int
    ) -> list[SimulationResult]:
        """Return the result of each batch of cases, caching each."""
        total = repetitions * sum(len(cases) for cases in batches)
        results, before = [], 0
        for cases in batches:
            shifted = partial(_shifted, self.progress, before, total)
            results.append(replace(self, progress=shifted).simulate(cases, repetitions))
            before += repetitions * len(cases)
            self.progress(before, total)
        return results

    def simulate(self, cases: Sequence[Case], repetitions: int) -> SimulationResult:
        """Run every case; see `deniable.simulate_many`.

        A run that is already on disk is read, not repeated. Its key contains everything that its
        numbers depend on, so that a changed parameter is a new run.
        """
        import polars as pl

        from deniable import SimulationResult, simulate_many

        file = self.kept / f"{self._key(cases, repetitions)}.parquet"
        if file.exists():
            frame = pl.read_parquet(file)
            return SimulationResult(frame, frame.clear())
        result = simulate_many(
            cases,
            repetitions,
            self.seed,
            executor=self.executor,
            workers=self.workers if self.executor else 1,
            progress=self.progress,
        )
        self.kept.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        result.frame.write_parquet(partial)
        os.replace(partial, file)  # files with their final name are complete
        return result

    def _key(self, cases: Sequence[Case], repetitions: int) -> str:
        parts: list[object] = [repetitions]
        for case in cases:
            world = case.environment
            parts += [world.name, case.policy, case.horizon or world.horizon, case.checkpoints]
            parts += [world.phases.tobytes(), world.shares.tobytes()]
            parts += [world.starts, world.delay, world.values.tobytes(), world.value_spread]
        return self.fingerprint(*parts)

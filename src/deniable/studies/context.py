"""What a study is given: its scale, its data, and simulations that are kept once they are run."""

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
"""Public data that studies use where the data folder has it."""

BUDGETS = (0.05, 0.5, 1.0, 3.0, 5.0)
"""The privacy budgets of the paper's figures."""


PACKAGE = Path(__file__).parents[1]
"""The folder of the package's sources."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """A digest of every file of the package, so that no result outlives the code it came from."""
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
    """How to run.

    Attributes:
        kept: the folder where finished simulations are kept until their study is finished.
        quick: whether small numbers will do: to see that all works, not to conclude from.
        seed: of every simulation.
        data: the folder of public data; None where there is none.
        workers: processes to use; None for one on each processor.
        executor: where simulations run; None to run them in this process.
        progress: told the repetitions done and their total.
    """

    kept: Path
    quick: bool = False
    seed: int = 0
    data: Path | None = None
    workers: int | None = None
    executor: Executor | None = None
    progress: Callable[[int, int], None] = no_progress

    def scale(self, full: int, quick: int) -> int:
        """The number for this run's scale."""
        return quick if self.quick else full

    def data_file(self, name: str) -> Path | None:
        """A file of public data, or None where it is not there; names are in DATA_FILES."""
        file = self.data / DATA_FILES[name] if self.data else None
        return file if file and file.is_file() else None

    def fingerprint(self, *parts: object) -> str:
        """What results are found by: the package's sources, the seed, the scale, and these parts."""
        given = (source_digest(), self.seed, self.quick, *parts)
        return hashlib.sha256(repr(given).encode()).hexdigest()[:24]

    def simulate_each(
        self, batches: Sequence[Sequence[Case]], repetitions: int
    ) -> list[SimulationResult]:
        """The result of each batch of cases; each is kept once it is run."""
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

        A run that is already on disk is read, not repeated. Its key holds everything that its
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
        os.replace(partial, file)  # whatever has its final name is whole
        return result

    def _key(self, cases: Sequence[Case], repetitions: int) -> str:
        parts: list[object] = [repetitions]
        for case in cases:
            world = case.environment
            parts += [world.name, case.policy, case.horizon or world.horizon, case.checkpoints]
            parts += [world.phases.tobytes(), world.shares.tobytes()]
            parts += [world.starts, world.delay, world.values.tobytes(), world.value_spread]
        return self.fingerprint(*parts)

"""All studies by name; what a study gets (`Context`) and what it gives (`StudyResult`).

A context has the scale, the public data and cached simulations. A result has paragraphs, figures with
their data, tables, and claims with verdicts.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

import deniable
from deniable.errors import InvalidArgumentError
from deniable.simulation.run import no_progress

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

    from deniable import Case, SimulationResult


NOT_OF_PAPER = ("not studied", "check")
"""Placeholders for the paper's number if a claim is ours."""

Verdict: TypeAlias = Literal["holds", "holds in part", "does not hold"]


PLURAL: dict[Verdict, str] = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or one of ours, and the finding here.

    Attributes:
        text: the claim.
        paper: the paper's number or word; "not studied" or "check" if the claim is not the paper's.
        ours: the number or finding here.
        verdict: whether it holds.
        why: the reason, or how it was resolved.
        settled: whether the paper is silent or contradicts itself here, so that a choice was made.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict
    why: str
    settled: bool = False

    @property
    def of_paper(self) -> bool:
        """Whether the paper makes this claim; others are counted separately."""
        return self.paper not in NOT_OF_PAPER


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart and the numbers behind it.

    Attributes:
        name: name of its files.
        caption: its caption.
        chart: an Altair chart, already in the house style.
        data: the data, tidy.
    """

    name: str
    caption: str
    chart: ChartType
    data: pl.DataFrame


@dataclass(frozen=True, eq=False)
class StudyResult:
    """The complete result of a study.

    Attributes:
        headline: the finding in one sentence.
        paragraphs: paragraphs for the report.
        figures: figures, in order.
        claims: claims, in order.
        tables: additional tables by name.
    """

    headline: str
    paragraphs: tuple[str, ...]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = ()
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


Run: TypeAlias = "Callable[[Context], StudyResult]"


def counted(claims: Iterable[Claim]) -> str:
    """Describe how many claims have each verdict.

    >>> counted([Claim("it pays", "not studied", "yes", "holds", "measured")] * 2)
    '2 hold'
    """
    verdicts = [claim.verdict for claim in claims]
    found = {verdict: verdicts.count(verdict) for verdict in PLURAL}
    return ", ".join(f"{count} {PLURAL[verdict]}" for verdict, count in found.items() if count)


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences, one per repetition, and its noise.

    Attributes:
        mean: mean of the differences.
        noise: exceeded by chance, on one side, once in 740 (three standard errors for large
            samples).
    """

    mean: float
    noise: float

    @property
    def clear(self) -> bool:
        """Whether it exceeds the noise, in either direction."""
        return abs(self.mean) > self.noise


def paired(one: ArrayLike, other: ArrayLike) -> Difference:
    """Return one minus the other, by repetition.

    >>> paired([5.0, 7.0, 6.0, 6.0], [1.0, 1.0, 2.0, 1.0]).clear
    True
    """
    from scipy.stats import t

    change = np.subtract(one, other, dtype=np.float64)
    if change.size < 2:
        return Difference(float(change.mean()), math.inf)
    error = float(change.std(ddof=1)) / math.sqrt(change.size)
    return Difference(float(change.mean()), float(t.isf(1 / 740, change.size - 1)) * error)


def judged(holds: bool, *, partly: bool = False) -> Verdict:
    """Return a verdict from the findings.

    >>> judged(False, partly=True)
    'holds in part'
    """
    if holds:
        return "holds"
    return "holds in part" if partly else "does not hold"


# -- what a study gets -----------------------------------------------------------------------------

DATA_FILES = {
    "asos": Path("asos", "asos_digital_experiments_dataset.parquet"),
    "open_bandit": Path("open_bandit", "item_ctr_random_policy.csv"),
}
"""Public data that studies use if it is in the data folder."""

BUDGETS = (0.05, 0.5, 1.0, 3.0, 5.0)
"""The privacy budgets of the paper's figures."""


SOURCES = (Path(deniable.__file__).parent, Path(__file__).parent)
"""The folders that results depend on: the package and this one."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a digest of the sources, so that cached results match the code."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix not in (".pyc", ".md"):
                digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
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
        """Return the cache key: the sources, the seed, the scale, and these parts."""
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


# -- all studies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """A study's entry in the report.

    Attributes:
        name: name on the command line, and of its folder and module.
        title: its heading.
        in_paper: whether it is in the paper.
    """

    name: str
    title: str
    in_paper: bool = True

    @property
    def run(self) -> Run:
        """The function of its module that computes it."""
        run: Run = import_module(f"research.{self.name}").run
        return run


STUDIES = (
    Study("beliefs", "What a budget means: belief bounds"),
    Study("strategies", "How a budget is spent: two strategies"),
    Study("website", "Website design"),
    Study("recommendations", "Recommendations"),
    Study("elasticity", "Elasticities of regret"),
    Study("illustration", "Two experiments share a budget"),
    Study("heterogeneity", "A budget for each arm"),
    Study("firm", "The firm's budget over its experiments"),
    Study("appendix", "The appendix: segments, composition, finite rounds"),
    Study("segments", "Segments that really differ", in_paper=False),
    Study("tracker", "What a tracker comes to believe", in_paper=False),
    Study("tightness", "How tight the bounds are", in_paper=False),
    Study("participation", "Visitors who meet only some experiments", in_paper=False),
    Study("groups", "Experiments that exclude each other", in_paper=False),
    Study("joint", "The joint strategy: what segments share is free", in_paper=False),
    Study("labels", "One label for life", in_paper=False),
)
"""All studies; `all` runs them in this order."""

BY_NAME = {study.name: study for study in STUDIES}


def chosen_studies(names: list[str]) -> list[Study]:
    """Return the studies with these names in the report's order; "all" means all.

    >>> [study.name for study in chosen_studies(["strategies", "beliefs"])]
    ['beliefs', 'strategies']
    """
    for name in names:
        if name != "all" and name not in BY_NAME:
            raise InvalidArgumentError("study", name, "all, " + ", ".join(BY_NAME))
    return [study for study in STUDIES if "all" in names or study.name in names]

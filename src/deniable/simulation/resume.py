"""Stores finished batches as Parquet files in a folder, so that a long run can be resumed.

A manifest identifies the run that the folder belongs to. Files are written under a temporary name
and renamed when complete, so that files with a final name are always complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.simulation.job import Counts, SimulationJob
from deniable.simulation.workers import FinishedSpan, Span

if TYPE_CHECKING:
    import polars as pl

_MANIFEST = "run.json"


class RunFolder:
    """A folder of finished batches of one run.

    Args:
        path: the folder; created if it does not exist.
        jobs: the run's jobs.
        seed: the run's seed.
    """

    def __init__(self, path: Path, jobs: Sequence[SimulationJob], seed: int) -> None:
        self._path = path
        self._jobs = jobs
        path.mkdir(parents=True, exist_ok=True)
        manifest = path / _MANIFEST
        fingerprint = _fingerprint(jobs, seed)
        if manifest.exists():
            if json.loads(manifest.read_text())["fingerprint"] != fingerprint:
                raise InvalidArgumentError(
                    "folder", str(path), "an empty folder, or one of a run with the same settings"
                )
        elif any(path.iterdir()):
            raise InvalidArgumentError("folder", str(path), "an empty folder, or one of a run")
        else:
            _write_text(manifest, json.dumps({"fingerprint": fingerprint, "jobs": len(jobs)}))

    def read(self, repetitions: int) -> list[FinishedSpan]:
        """Return the finished repetitions below `repetitions`, each once."""
        import polars as pl

        found: dict[tuple[int, int], FinishedSpan] = {}
        for file in sorted(self._path.glob("*.parquet")):
            table = pl.read_parquet(file)
            for (job, repetition), rows in table.group_by("job", "repetition"):
                index, number = int(str(job)), int(str(repetition))
                if number < repetitions:
                    counts = self._counts(index, rows)
                    found[index, number] = FinishedSpan(index, number, *counts)
        return list(found.values())

    def write(self, batches: Sequence[FinishedSpan]) -> None:
        """Store finished batches."""
        import polars as pl

        tables = [_table(batch) for batch in batches]
        if not tables:
            return
        first = batches[0]
        digest = hashlib.sha256(
            repr([(b.job, b.first, len(b.shows)) for b in batches]).encode()
        ).hexdigest()[:16]
        target = self._path / f"{first.job:05d}-{first.first:07d}-{digest}.parquet"
        partial = target.with_suffix(".partial")
        pl.concat(tables).write_parquet(partial)
        os.replace(partial, target)

    def _counts(self, job: int, rows: pl.DataFrame) -> tuple[Counts, Counts, FloatArray | None]:
        spec = self._jobs[job]
        shape = (1, spec.checkpoints.size, *spec.rates.shape)
        ordered = rows.sort("cell")
        rewards = ordered["rewards"]
        return (
            ordered["shows"].to_numpy().reshape(shape),
            ordered["clicks"].to_numpy().reshape(shape),
            None if rewards.has_nulls() else rewards.to_numpy().reshape(shape),
        )


def missing(n_jobs: int, repetitions: int, finished: Iterable[FinishedSpan]) -> list[Span]:
    """Return the repetitions that still have to run, as spans.

    >>> missing(1, 5, [FinishedSpan(0, 2, np.zeros((1, 1, 1, 2), int), np.zeros((1, 1, 1, 2), int))])
    [Span(job=0, first=0, stop=2), Span(job=0, first=3, stop=5)]
    """
    done: dict[int, set[int]] = {}
    for batch in finished:
        span = range(batch.first, batch.first + len(batch.shows))
        done.setdefault(batch.job, set()).update(span)
    spans: list[Span] = []
    for job in range(n_jobs):
        start: int | None = None
        for repetition in range(repetitions + 1):
            open_now = repetition < repetitions and repetition not in done.get(job, ())
            if open_now and start is None:
                start = repetition
            elif not open_now and start is not None:
                spans.append(Span(job, start, repetition))
                start = None
    return spans


def _table(batch: FinishedSpan) -> pl.DataFrame:
    import polars as pl

    count = batch.shows.shape[0]
    cells = batch.shows[0].size
    return pl.DataFrame(
        {
            "job": np.full(count * cells, batch.job, np.int64),
            "repetition": np.repeat(np.arange(batch.first, batch.first + count), cells),
            "cell": np.tile(np.arange(cells), count),
            "shows": batch.shows.ravel(),
            "clicks": batch.clicks.ravel(),
            "rewards": None if batch.rewards is None else batch.rewards.ravel(),
        },
        schema_overrides={"rewards": pl.Float64},
    )


def _fingerprint(jobs: Sequence[SimulationJob], seed: int) -> str:
    digest = hashlib.sha256(f"seed {seed}".encode())
    for job in jobs:
        digest.update(f"{job.key} {job.kernel} {job.rates.shape}".encode())
        digest.update(_pickled(job))
        digest.update(f"{job.value_spread} {job.rates_until.shape}".encode())
        arrays = (job.rates, job.arrival, job.checkpoints, job.rates_until, job.values, job.delays)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _pickled(job: SimulationJob) -> bytes:
    try:
        return pickle.dumps(job.rule, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        learner = getattr(job.rule, "learner", job.rule)
        allowed = "one that can be imported, for a run that is kept in a folder"
        raise InvalidArgumentError("learner", learner, allowed) from None


def _write_text(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)

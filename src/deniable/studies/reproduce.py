"""Runs studies into a folder, resumes interrupted runs, and writes the report."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import cpu_count
from pathlib import Path

from deniable.simulation.run import no_progress
from deniable.simulation.workers import worker_processes
from deniable.studies.context import DATA_FILES, Context
from deniable.studies.publish import FORMATS, Record, read_record, write_study, write_text
from deniable.studies.registry import STUDIES, Study
from deniable.studies.report import report_html, summary_markdown

UNFINISHED = "unfinished"
"""The folder, inside the study's, with the simulations of an unfinished study."""


@dataclass(frozen=True)
class Finished:
    """A finished study: its record, its run time, and whether it was found on disk."""

    study: Study
    record: Record
    seconds: float
    found: bool


def reproduce(
    studies: Sequence[Study],
    out: str | Path,
    *,
    quick: bool = False,
    seed: int = 0,
    data: Path | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    formats: Sequence[str] = FORMATS,
    started: Callable[[Study], None] = lambda study: None,
    finished: Callable[[Finished], None] = lambda done: None,
    progress: Callable[[int, int], None] = no_progress,
) -> list[Finished]:
    """Run studies and write `report.html` and `summary.md` over everything in the folder.

    Args:
        studies: the studies; see `registry.STUDIES`.
        out: the results folder; studies found there with the same parameters are not run again.
        quick: use small numbers: minutes become seconds.
        seed: the same seed gives the same tables, for any number of workers.
        data: the folder of public data; None if there is none.
        workers: number of processes; None for one per processor.
        executor: run simulations there instead of starting processes.
        formats: formats of the figures: svg, png and pdf; the report always has SVG.
        started: called before each study.
        finished: called after each.
        progress: callback that receives the repetitions of the current simulation.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    done: list[Finished] = []
    with _pool(executor, workers) as pool:
        context = Context(
            kept=folder,
            quick=quick,
            seed=seed,
            data=data,
            workers=workers,
            executor=pool,
            progress=progress,
        )
        for study in studies:
            started(study)
            done.append(_one(study, folder / study.name, context, formats))
            finished(done[-1])
    write_text(folder / "report.html", report_html(folder, STUDIES))
    write_text(folder / "summary.md", summary_markdown(folder, STUDIES))
    return done


def _one(study: Study, folder: Path, context: Context, formats: Sequence[str]) -> Finished:
    begun = time.monotonic()
    data = [file.read_bytes() for name in DATA_FILES if (file := context.data_file(name))]
    fingerprint = context.fingerprint(
        study.name, *(hashlib.sha256(each).hexdigest() for each in data)
    )
    known = read_record(folder)
    if known is not None and known.fingerprint == fingerprint:
        return Finished(study, known, time.monotonic() - begun, found=True)
    kept = folder / UNFINISHED
    result = study.run(replace(context, kept=kept))
    record = write_study(folder, result, fingerprint, quick=context.quick, formats=formats)
    # From here on the record is used; simulations are only kept for interrupted runs.
    shutil.rmtree(kept, ignore_errors=True)
    return Finished(study, record, time.monotonic() - begun, found=False)


@contextmanager
def _pool(executor: Executor | None, workers: int | None) -> Iterator[Executor | None]:
    count = workers or cpu_count() or 1
    if executor is not None or count == 1:
        yield executor
        return
    # One pool for all studies, because loading the kernels takes time.
    with worker_processes(count) as pool:
        yield pool

"""Reproduce: run studies into a folder, take up where a run was broken off, write the report."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from deniable.simulation.workers import worker_processes
from deniable.studies.context import DATA_FILES, Context, silent
from deniable.studies.publish import FORMATS, Record, read_record, write_study, write_text
from deniable.studies.registry import STUDIES, Study
from deniable.studies.report import report_html
from deniable.studies.summary import summary_markdown

KEPT = "simulations"
"""The folder of finished simulations, inside the results folder."""


@dataclass(frozen=True)
class Finished:
    """A study that is done: its record, the time it took, and whether it was found on disk."""

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
    progress: Callable[[int, int], None] = silent,
) -> list[Finished]:
    """Run studies and write `report.html` and `summary.md` over everything that the folder holds.

    Args:
        studies: which; see `registry.STUDIES`.
        out: the results folder; studies found there with the same parameters are not run again.
        quick: small numbers: minutes become seconds.
        seed: same seed, same tables, for any number of workers.
        data: the folder of public data; None where there is none.
        workers: processes; None for one on each processor.
        executor: run simulations there instead of on processes of its own.
        formats: of the figures, of svg, png and pdf; the report always has SVG.
        started: called before each study.
        finished: called after each.
        progress: told the repetitions of the simulation that is running.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEPT).mkdir(exist_ok=True)
    done: list[Finished] = []
    with _pool(executor, workers) as pool:
        context = Context(
            kept=folder / KEPT,
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
    fingerprint = _fingerprint(study, context)
    known = read_record(folder)
    if known is not None and known.fingerprint == fingerprint:
        return Finished(study, known, time.monotonic() - begun, found=True)
    result = study.run(replace(context, kept=context.kept / study.name))
    record = write_study(folder, result, fingerprint, quick=context.quick, formats=formats)
    return Finished(study, record, time.monotonic() - begun, found=False)


def _fingerprint(study: Study, context: Context) -> str:
    """Of everything that a study's numbers depend on: code, package, seed, scale and data."""
    digest = hashlib.sha256(f"{study.name} {context.seed} {context.quick}".encode())
    digest.update(version("deniable").encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for name in DATA_FILES:
        if file := context.data_file(name):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _pool(executor: Executor | None, workers: int | None) -> Iterator[Executor | None]:
    count = workers or cpu_count() or 1
    if executor is not None or count == 1:
        yield executor
        return
    # One pool for all studies: a process that has loaded the kernels is worth keeping.
    with worker_processes(count) as pool:
        yield pool

"""Runs studies into a folder, resumes interrupted runs, and writes the report.

A study's folder has its tables and figures as files, and one record from which the report is made.
Files are written under a temporary name and renamed when complete. The record is written last, so a
folder with a record is complete, and one without is started again.

`report.html` and `summary.md` are made from the records (`report.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from deniable._types import JsonObject
from deniable.charts.save import save_chart
from deniable.simulation.run import no_progress
from deniable.simulation.workers import worker_processes
from research.report import report_html, summary_markdown
from research.study import DATA_FILES, STUDIES, Claim, Context, Figure, Study, StudyResult

if TYPE_CHECKING:
    import polars as pl


RECORD = "study.json"
FORMATS = ("svg", "png", "pdf")
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
        studies: the studies; see `study.STUDIES`.
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
    found = [(study, known) for study in STUDIES if (known := read_record(folder / study.name))]
    write_text(folder / "report.html", report_html(folder, found))
    write_text(folder / "summary.md", summary_markdown(found))
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


# -- a study's folder ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FigureRecord:
    """A figure on disk: its name and its caption."""

    name: str
    caption: str


@dataclass(frozen=True)
class Record:
    """A finished study on disk.

    Attributes:
        fingerprint: of everything that its numbers depend on.
        quick: whether it was run at the small scale.
        headline, paragraphs, figures, claims, tables: what it says.
    """

    fingerprint: str
    quick: bool
    headline: str
    paragraphs: tuple[str, ...]
    figures: tuple[FigureRecord, ...]
    claims: tuple[Claim, ...]
    tables: tuple[str, ...]


def read_record(folder: Path) -> Record | None:
    """Read the record of a finished study; None if it is missing or of another version."""
    file = folder / RECORD
    if not file.exists():
        return None
    try:
        known: JsonObject = json.loads(file.read_text(encoding="utf-8"))
        return Record(
            fingerprint=known["fingerprint"],
            quick=known["quick"],
            headline=known["headline"],
            paragraphs=tuple(known["paragraphs"]),
            figures=tuple(FigureRecord(**figure) for figure in known["figures"]),
            claims=tuple(Claim(**claim) for claim in known["claims"]),
            tables=tuple(known["tables"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def write_study(
    folder: Path,
    result: StudyResult,
    fingerprint: str,
    *,
    quick: bool,
    formats: Sequence[str] = FORMATS,
) -> Record:
    """Write everything and return the record."""
    (folder / RECORD).unlink(missing_ok=True)
    tables = {figure.name: figure.data for figure in result.figures} | dict(result.tables)
    for name, frame in tables.items():
        _write_table(folder / "tables", name, frame)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in result.figures:
        _write_figure(folder / "figures", figure, formats)
    record = Record(
        fingerprint=fingerprint,
        quick=quick,
        headline=result.headline,
        paragraphs=result.paragraphs,
        figures=tuple(FigureRecord(figure.name, figure.caption) for figure in result.figures),
        claims=result.claims,
        tables=tuple(tables),
    )
    write_text(folder / RECORD, json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n")
    return record


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _write_figure(folder: Path, figure: Figure, formats: Sequence[str]) -> None:
    """Write the SVG, which the report needs, and derive the other formats from it."""
    import vl_convert

    svg = save_chart(figure.chart, folder / f"{figure.name}.svg").read_text(encoding="utf-8")
    if "png" in formats:
        (folder / f"{figure.name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=2))
    if "pdf" in formats:
        (folder / f"{figure.name}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))


def _write_table(folder: Path, name: str, frame: pl.DataFrame) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_csv(folder / f"{name}.csv")
    frame.write_parquet(folder / f"{name}.parquet")

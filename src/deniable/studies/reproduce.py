"""Runs studies into a folder, resumes interrupted runs, and writes the report.

A study's folder has its tables and figures as files, and one record from which the report is made.
Files are written under a temporary name and renamed when complete. The record is written last, so a
folder with a record is complete, and one without is started again.

The report is one self-contained, printable HTML file; `summary.md` has its claims.
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
from html import escape
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from deniable._types import JsonObject
from deniable.charts.save import inline_svg, save_chart
from deniable.simulation.run import no_progress
from deniable.simulation.workers import worker_processes
from deniable.studies.contract import DATA_FILES, Claim, Context, Figure, StudyResult, counted
from deniable.studies.registry import STUDIES, Study

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


# -- the report ------------------------------------------------------------------------------------

_MARK = {"holds": "✓", "holds in part": "◐", "does not hold": "✗"}
_TITLE = "A privacy budget for online experiments: the paper, reproduced"


def report_html(folder: Path, studies: Sequence[Study]) -> str:
    """Render the report over the studies in the folder, in order."""
    found = [(study, record) for study in studies if (record := read_record(folder / study.name))]
    quick = any(record.quick for _, record in found)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_TITLE}</title>",
            f"<style>{_STYLE}</style></head><body><main>",
            _opening(found, quick=quick),
            _contents(found),
            _differences(found),
            *(_section(folder, study, record) for study, record in found),
            "</main></body></html>\n",
        ]
    )


def _opening(found: Sequence[tuple[Study, Record]], *, quick: bool) -> str:
    every = [claim for _, record in found for claim in record.claims]
    claims = [claim for claim in every if claim.of_paper]
    ours = [claim for claim in every if not claim.of_paper]
    beyond = f" Further studies make {len(ours)} claims of their own: {counted(ours)}."
    warning = (
        '<p class="quick"><strong>Quick run.</strong> Small numbers of repetitions: it shows that '
        "everything works. Conclude from a full run.</p>"
        if quick
        else ""
    )
    return f"""<header><h1>{_TITLE}</h1>
<p class="lead">Experiments show visitors what works for people like them, and so tell a third-party
watcher who they are. A privacy budget bounds what one shown arm can tell. This report recomputes the
figures and claims of “A Privacy Budgeting Framework for Online Experimentation” (Ponte and Ferecatu)
and says of each claim whether it holds. Of {len(claims)} claims of
the paper, {counted(claims)}.{beyond if ours else ""}</p>{warning}</header>"""


def _contents(found: Sequence[tuple[Study, Record]]) -> str:
    parts = []
    for heading, in_paper in (("In the paper", True), ("Beyond the paper", False)):
        items = "".join(
            f'<li><a href="#{study.name}">{escape(study.title)}</a><br>{escape(record.headline)}</li>'
            for study, record in found
            if study.in_paper == in_paper
        )
        if items:
            parts.append(f"<div><h2>{heading}</h2><ul>{items}</ul></div>")
    return f'<nav aria-label="Contents">{"".join(parts)}</nav>'


def _differences(found: Sequence[tuple[Study, Record]]) -> str:
    """Return the most important claims: those that do not hold, and those that needed a choice."""
    claims = [
        claim
        for _, record in found
        for claim in record.claims
        if claim.of_paper and (claim.settled or claim.verdict != "holds")
    ]
    if not claims:
        return ""
    return (
        '<section id="differences"><h2>Where this differs from the paper</h2>'
        "<p>Claims that do not hold as written, and places where the paper is silent or says two "
        f"things, so that a choice was made.</p>{_claims(claims)}</section>"
    )


def _section(folder: Path, study: Study, record: Record) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in record.paragraphs)
    figures = "".join(
        _figure(
            folder / study.name / "figures" / f"{figure.name}.svg", study, index, figure.caption
        )
        for index, figure in enumerate(record.figures, start=1)
    )
    tables = ", ".join(
        f'<a href="{study.name}/tables/{name}.csv">{name}.csv</a>' for name in record.tables
    )
    beyond = "" if study.in_paper else '<p class="beyond">Beyond the paper</p>'
    return (
        f'<section id="{study.name}">{beyond}<h2>{escape(study.title)}</h2>'
        f'<p class="headline">{escape(record.headline)}</p>{paragraphs}{figures}'
        f'{_claims(record.claims)}<p class="files">Numbers: {tables}</p></section>'
    )


def _figure(file: Path, study: Study, index: int, caption: str) -> str:
    svg = inline_svg(file.read_text(encoding="utf-8"), f"{study.name}{index}-", caption)
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td>{escape(claim.text)}</td><td class="number">{escape(claim.paper)}</td>'
        f'<td class="number">{escape(claim.ours)}</td>'
        f'<td class="verdict {claim.verdict.replace(" ", "-")}">'
        f"<span>{_MARK[claim.verdict]}</span> {claim.verdict}</td><td>{escape(claim.why)}</td></tr>"
        for claim in claims
    )
    head = "<th>Claim</th><th>Paper</th><th>Here</th><th>Verdict</th><th>Why</th>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="claims">{table}</div>'


_STYLE = """
:root { color-scheme: light; --ink: #22262b; --soft: #5b636d; --line: #e2e5e9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 400 16px/1.6 system-ui, "Liberation Sans", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; font-weight: 650; margin: 0 0 1rem; max-width: 40rem;
  text-wrap: balance; }
h2 { font-size: 1.35rem; line-height: 1.3; font-weight: 650; margin: 0 0 .6rem; }
p { max-width: 44rem; margin: 0 0 1rem; }
.lead { font-size: 1.1rem; color: #3a4149; }
.quick { border-left: 4px solid #e69f00; background: #fdf6e7; padding: .6rem 1rem; }
a { color: var(--accent); }
nav { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr));
  gap: 1.5rem 3rem; margin: 2rem 0; padding: 1.2rem 0;
  border-block: 1px solid var(--line); }
nav h2 { font-size: .95rem; } nav ul { margin: 0; padding: 0; list-style: none; }
nav li { margin-bottom: .7rem; font-size: .9rem; line-height: 1.45; color: #3a4149; }
nav a { font-size: 1rem; } .headline { font-size: 1.05rem; font-weight: 600; }
section { margin-top: 3.5rem; }
.beyond { color: var(--soft); font-size: .85rem; margin: 0 0 .2rem; }
figure { margin: 1.6rem 0; } figure svg { max-width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 44rem; margin-top: .4rem; }
.claims { overflow-x: auto; margin: 1.6rem 0 .6rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; line-height: 1.45; }
th, td { text-align: left; vertical-align: top; padding: .55rem .9rem .55rem 0;
  border-bottom: 1px solid var(--line); min-width: 6rem; }
th { font-weight: 600; border-bottom: 1.5px solid var(--ink); }
td:first-child { min-width: 13rem; width: 25%; }
td:nth-child(2) { width: 14%; } td:nth-child(3) { width: 21%; }
td:last-child { min-width: 15rem; width: 30%; color: #3a4149; padding-right: 0; }
.number { font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; white-space: nowrap; }
.holds { color: #006b4f; } .holds-in-part { color: #8a5a00; } .does-not-hold { color: #b3261e; }
.files { font-size: .82rem; color: var(--soft); max-width: none; overflow-wrap: anywhere; }
@media print {
  @page { margin: 16mm 14mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .files { display: none; } nav { font-size: 9pt; } h2 { break-after: avoid; }
  figure, tr { break-inside: avoid; } thead { display: table-header-group; }
  section { margin-top: 1.6rem; } .claims { overflow: visible; } table { font-size: 7.5pt; }
  th, td { min-width: 0 !important; } a { color: inherit; text-decoration: none; }
}
"""


def summary_markdown(folder: Path, studies: Sequence[Study]) -> str:
    """Return the findings of the studies in the folder, in order."""
    found = [(study, record) for study in studies if (record := read_record(folder / study.name))]
    return "\n".join(_markdown_section(study, record) for study, record in found)


def _markdown_section(study: Study, record: Record) -> str:
    beyond = "" if study.in_paper else " (beyond the paper)"
    quick = "\nA quick run: it shows that everything works; conclude from a full one.\n"
    rows = "".join(map(_row, record.claims))
    table = (
        f"\n| claim | paper | here | verdict | why |\n|---|---|---|---|---|\n{rows}" if rows else ""
    )
    return (
        f"## {study.title}{beyond}\n{quick if record.quick else ''}\n**{record.headline}**\n{table}"
    )


def _row(claim: Claim) -> str:
    cells = (claim.text, claim.paper, claim.ours, claim.verdict, claim.why)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"

"""A study's folder: tables and figures as files, and one record from which the report is made.

Files are written under a temporary name and renamed when complete. The record is written last, so a
folder with a record is complete, and one without is started again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deniable._types import JsonObject
from deniable.charts.save import save_chart
from deniable.studies.contract import Claim, Figure, StudyResult

if TYPE_CHECKING:
    import polars as pl

RECORD = "study.json"
FORMATS = ("svg", "png", "pdf")


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

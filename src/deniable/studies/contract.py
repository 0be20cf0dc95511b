"""What a study hands back: paragraphs, figures with their data, tables, and claims with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import polars as pl

    from deniable.studies.context import Context

Verdict: TypeAlias = Literal["holds", "holds in part", "does not hold"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what came of it here.

    Attributes:
        text: what is claimed.
        paper: the paper's number or word.
        ours: the number or finding here.
        verdict: whether it holds.
        why: the reason, or how it was settled.
        settled: whether the paper is silent or contradicts itself here, so that a choice was made.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict
    why: str
    settled: bool = False


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart and the numbers behind it.

    Attributes:
        name: of its files.
        caption: what to see in it.
        chart: an Altair chart, in the house style already.
        data: what is drawn, tidy.
    """

    name: str
    caption: str
    chart: Any
    data: pl.DataFrame


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Everything that a study says.

    Attributes:
        headline: the finding in one sentence, for who reads nothing else.
        paragraphs: for the report.
        figures: in their order.
        claims: in their order.
        tables: further numbers by name.
    """

    headline: str
    paragraphs: tuple[str, ...]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = ()
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


Run: TypeAlias = "Callable[[Context], StudyResult]"


def judged(holds: bool, *, partly: bool = False) -> Verdict:
    """A verdict from what was found.

    >>> judged(False, partly=True)
    'holds in part'
    """
    if holds:
        return "holds"
    return "holds in part" if partly else "does not hold"

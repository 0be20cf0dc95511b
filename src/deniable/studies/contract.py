"""The output of a study: paragraphs, figures with their data, tables, and claims with verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

    from deniable.studies.context import Context

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

"""The report: one self-contained, printable HTML file, and its claims as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment
from markupsafe import Markup

from deniable.charts.save import inline_svg
from research.study import Claim, Study, counted

if TYPE_CHECKING:
    from research.reproduce import FigureRecord, Record

TITLE = "A privacy budget for online experiments: the paper, reproduced"
MARKS = {"holds": "✓", "holds in part": "◐", "does not hold": "✗"}
TEMPLATE = Path(__file__).with_name("report.html.j2")


def report_html(folder: Path, found: Sequence[tuple[Study, Record]]) -> str:
    """Render the studies of a folder, in order; the figures are read from their files."""

    def drawing(study: Study, figure: FigureRecord) -> Markup:
        svg = (folder / study.name / "figures" / f"{figure.name}.svg").read_text("utf-8")
        return Markup(inline_svg(svg, f"{study.name}-{figure.name}-", figure.caption))

    claims = [claim for _, record in found for claim in record.claims]
    of_paper = [claim for claim in claims if claim.of_paper]
    template = Environment(autoescape=True).from_string(TEMPLATE.read_text("utf-8"))
    return template.render(
        title=TITLE,
        marks=MARKS,
        counted=counted,
        drawing=drawing,
        found=found,
        quick=any(record.quick for _, record in found),
        of_paper=of_paper,
        ours=[claim for claim in claims if not claim.of_paper],
        different=[claim for claim in of_paper if claim.settled or claim.verdict != "holds"],
    )


def summary_markdown(found: Sequence[tuple[Study, Record]]) -> str:
    """The findings of the studies, in order."""
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

"""The parts of a report for people: what the command line prints and a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from altair.typing import ChartType


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and a table, which may be empty; folded: shown on request."""

    title: str
    text: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    folded: bool = False


def sections_html(sections: Sequence[Section], chart: ChartType) -> str:
    """Render the sections and the chart as one HTML fragment, static and self-contained."""
    import vl_convert

    shown = [_section_html(section) for section in sections if not section.folded]
    folded = [
        f"<details><summary>{escape(section.title)}</summary>{_section_html(section)}</details>"
        for section in sections
        if section.folded
    ]
    return "\n".join([*shown, vl_convert.vegalite_to_svg(chart.to_dict()), *folded])


def _section_html(section: Section) -> str:
    parts = [] if section.folded else [f"<h4>{escape(section.title)}</h4>"]
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.rows:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in section.rows
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "\n".join(parts)

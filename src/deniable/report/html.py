"""Renders reports as HTML: fragments for notebooks, and pages without scripts or external resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from deniable.report.content import Block, Section

if TYPE_CHECKING:
    from altair.typing import ChartType
    from jinja2 import Environment

SIGNED = ("Name", "Position", "Place and date", "Signature")
"""The lines below which a party signs."""


@dataclass(frozen=True)
class Page:
    """A report that stands alone.

    Attributes:
        title: its heading.
        byline: small print below the title.
        headline: the result, in a sentence or two.
        tone: "good" or "bad" if the headline is a verdict; empty otherwise.
        warning: who may see the page; may be empty.
        figures: the figures at the top: value, meaning, context.
        sections: in order.
    """

    title: str
    byline: str
    headline: str
    tone: str
    warning: str
    figures: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]


@cache
def environment(*packages: str) -> Environment:
    """Return the report's templates and those of the packages; everything is escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "deniable.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        newline_sequence="\n",
    )
    made.globals["signed"] = SIGNED
    made.tests["kind"] = is_kind
    return made


def is_kind(block: Block, name: str) -> bool:
    """Whether a block is of this class, for use in templates."""
    return type(block).__name__ == name


def page_html(page: Page) -> str:
    """Render a page."""
    return environment().get_template("report.html").render(page=page)


def text_html(value: object) -> str:
    """Render a value's repr, for notebooks without charts."""
    return f"<p>{escape(repr(value))}</p>"


def sections_html(sections: Sequence[Section], chart: ChartType) -> str:
    """Render the sections and the chart as one HTML fragment, static and self-contained."""
    import vl_convert
    from markupsafe import Markup

    drawn = Markup(vl_convert.vegalite_to_svg(chart.to_dict()))
    return environment().get_template("fragment.html").render(sections=sections, chart=drawn)

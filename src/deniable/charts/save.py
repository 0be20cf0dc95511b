"""Saves a chart as SVG, PNG, PDF, or HTML that works offline."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from altair.typing import ChartType
    from markupsafe import Markup

FORMATS = (".svg", ".png", ".pdf", ".html")


def check_chart_path(path: str | Path, argument: str = "chart") -> Path:
    """Validate the path's extension and folder; call it before long work."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InvalidArgumentError(argument, str(path), f"a file that ends in {', '.join(FORMATS)}")
    if not target.parent.is_dir():
        raise InvalidArgumentError(argument, str(path), "a file in a folder that exists")
    return target


def save_chart(chart: ChartType, path: str | Path, *, argument: str = "chart") -> Path:
    """Write the chart in the format of the file's extension and return its path.

    HTML files include the scripts of the installed renderer, so they need no network.
    """
    target = check_chart_path(path, argument)
    if target.suffix.lower() == ".html":
        target.write_text(chart.to_html(inline=True), encoding="utf-8")
    elif target.suffix.lower() == ".png":
        chart.save(str(target), format="png", scale_factor=2)
    else:
        chart.save(str(target), format=target.suffix.lower()[1:])
    return target


def chart_svg(chart: ChartType, prefix: str, label: str) -> Markup:
    """Return the chart in the house style, as an SVG for an HTML page; see `inline_svg`."""
    from markupsafe import Markup

    from deniable.charts.theme import themed

    drawn = io.StringIO()
    themed(chart).save(drawn, format="svg")
    return Markup(inline_svg(drawn.getvalue(), prefix, label))


def inline_svg(svg: str, prefix: str, label: str) -> str:
    """Prepare an SVG for inlining: its ids are made unique, and it scales to the page.

    >>> inline_svg('<svg width="9" height="4"><g id="a"/><use href="#a"/></svg>', "x-", "A")
    '<svg role="img" aria-label="A" viewBox="0 0 9 4" width="9"><g id="x-a"/><use href="#x-a"/></svg>'
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", body)
    opening, rest = body.split(">", 1)
    size = dict(re.findall(r'\b(width|height)="([\d.]+)"', opening))
    box = re.search(r'viewBox="([^"]+)"', opening)
    view = box.group(1) if box else f"0 0 {size['width']} {size['height']}"
    named = f'<svg role="img" aria-label="{escape(label, quote=True)}"'
    return f'{named} viewBox="{view}" width="{size["width"]}">{rest}'.strip()

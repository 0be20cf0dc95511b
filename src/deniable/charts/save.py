"""A chart as a file: SVG, PNG, PDF, or HTML that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deniable.errors import InvalidArgumentError

FORMATS = (".svg", ".png", ".pdf", ".html")


def check_chart_path(path: str | Path, argument: str = "chart") -> Path:
    """The path, once its ending and folder are known to be good; call it before long work."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InvalidArgumentError(argument, str(path), f"a file that ends in {', '.join(FORMATS)}")
    if not target.parent.is_dir():
        raise InvalidArgumentError(argument, str(path), "a file in a folder that exists")
    return target


def save_chart(chart: Any, path: str | Path, *, argument: str = "chart") -> Path:
    """Write the chart in the format of the file's ending and return its path.

    HTML carries its scripts inside, from the installed renderer: no network, no CDN.
    """
    target = check_chart_path(path, argument)
    if target.suffix.lower() == ".html":
        target.write_text(chart.to_html(inline=True), encoding="utf-8")
    elif target.suffix.lower() == ".png":
        chart.save(str(target), format="png", scale_factor=2)
    else:
        chart.save(str(target), format=target.suffix.lower()[1:])
    return target

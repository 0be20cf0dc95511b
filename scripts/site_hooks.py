"""What `make docs` adds to MkDocs: the API reference, and links to files outside of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

import deniable

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text, with the API reference written out where it belongs."""
    if page.file.src_path == "api.md":
        return f"{markdown}\n{reference()}"
    return OUTSIDE.sub(_named, markdown)


def reference() -> str:
    """One section for each module with public names, for mkdocstrings to fill from docstrings."""
    sections = []
    for module, names in sorted(deniable._HOME.items()):
        members = "".join(f"\n::: deniable.{module}.{name}\n" for name in names)
        sections.append(f"## `deniable.{module}`\n{members}")
    return "\n".join(sections)


def _named(link: re.Match[str]) -> str:
    """A link out of the site becomes the path in the source, which must exist."""
    text, path = link.groups()
    if not (ROOT / path).exists():
        raise PluginError(f"a link leads to {path}, which does not exist")
    return f"{text} (in the source: `{path}`)"

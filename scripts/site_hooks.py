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
    homes = {f"deniable.{module}": names for module, names in deniable._HOME.items()}
    for package in (deniable.theory, deniable.privacy, deniable.portfolio):
        for name in package.__all__:
            module = getattr(package, name).__module__
            homes[module] = (*homes.get(module, ()), name)
    sections = []
    for module, names in sorted(homes.items()):
        members = "".join(f"\n::: {module}.{name}\n" for name in sorted(set(names)))
        sections.append(f"## `{module}`\n{members}")
    return "\n".join(sections)


def _named(link: re.Match[str]) -> str:
    """A link out of the site becomes the path in the source, which must exist."""
    text, path = link.groups()
    if not (ROOT / path).exists():
        raise PluginError(f"a link leads to {path}, which does not exist")
    return f"{text} (in the source: `{path}`)"

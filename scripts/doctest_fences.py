"""A Griffe extension: doctests in docstrings become fenced code, so that Markdown leaves them alone."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.S | re.M)


class DoctestFences(griffe.Extension):
    """Wraps each run of examples in a fence."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    indent = example[1]
    return f"\n{indent}```pycon\n{example[0].rstrip()}\n{indent}```"

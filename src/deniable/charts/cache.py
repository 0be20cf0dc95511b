"""Cached specifications of charts without data, because making one requires loading Altair.

A file is named after the sources of all charts and strategies, the version of Altair, the function
and its arguments, so it cannot be stale. Arguments are arm names, which every visitor can see, and
numbers; no data is stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from deniable._compile import cache_folder, hash_of_sources
from deniable._types import Record
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    from altair.typing import ChartType

MOST_FILES = 2_000
"""Maximum number of files per release; further specifications are remade in every process."""


def specification(make: Callable[..., ChartType], *arguments: object) -> Record:
    """Return the chart that a function makes, as Vega-Lite. Do not modify it.

    Args:
        make: a function of this package that makes a chart without data.
        arguments: plain values that are fully described by their `repr`.
    """
    return _specification(make, arguments, tuple(STRATEGIES))


@lru_cache(maxsize=512)
def _specification(
    make: Callable[..., ChartType], arguments: tuple[object, ...], strategies: tuple[str, ...]
) -> Record:
    asked = (make.__module__, make.__qualname__, arguments, strategies)
    file = folder() / f"{sha256(repr(asked).encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError):  # missing or truncated: make it again
        kept: Record = json.loads(file.read_bytes())
        return kept
    made: Record = make(*arguments).to_dict(validate=False)
    with suppress(OSError):  # not writable: make it again at the next start
        _keep(file, made)
    return made


@cache
def folder() -> Path:
    """Return the folder of this release's specifications."""
    package = Path(__file__).parents[1]
    sources = [*(package / "charts").glob("*.py"), *(package / "strategies").glob("*.py")]
    release = f"{hash_of_sources(sorted(sources))}-{version('altair')}"
    return cache_folder() / "charts" / release


def _keep(file: Path, made: Record) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if len(os.listdir(file.parent)) < MOST_FILES:
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(made), "utf-8")
        draft.replace(file)

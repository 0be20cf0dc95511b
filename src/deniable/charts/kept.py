"""Specifications of charts without data, kept in the cache folder: making one takes Altair.

A file is named after the sources of all charts and strategies, the version of Altair, the function and
its arguments, so it cannot be stale. Arguments are names of arms, which every visitor can see, and
numbers; no data is kept.
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
"""Of one release; further specifications are made again in every process."""


def specification(make: Callable[..., ChartType], *arguments: object) -> Record:
    """The chart that a function makes, as Vega-Lite; do not change it.

    Args:
        make: a function of this package that makes a chart without data.
        arguments: plain ones, whose `repr` says all.
    """
    return _specification(make, arguments, tuple(STRATEGIES))


@lru_cache(maxsize=512)
def _specification(
    make: Callable[..., ChartType], arguments: tuple[object, ...], strategies: tuple[str, ...]
) -> Record:
    asked = (make.__module__, make.__qualname__, arguments, strategies)
    file = folder() / f"{sha256(repr(asked).encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError):  # never made, or cut off: made again
        kept: Record = json.loads(file.read_bytes())
        return kept
    made: Record = make(*arguments).to_dict(validate=False)
    with suppress(OSError):  # a folder that cannot be written to: made again at the next start
        _keep(file, made)
    return made


@cache
def folder() -> Path:
    """Where the specifications of this release are kept."""
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

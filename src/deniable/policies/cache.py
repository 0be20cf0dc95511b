"""Where computed things that are slow to compute are kept between runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """DENIABLE_CACHE, or `deniable` in the user's cache folder; it may not exist yet."""
    given = os.environ.get("DENIABLE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deniable"


def hash_of_sources(files: Iterable[Path]) -> str:
    """A short hash of the files' names and contents: what is named after it cannot be stale."""
    digest = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        digest.update(f"{file.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]

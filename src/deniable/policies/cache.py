"""Where computed things that are slow to compute are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """DENIABLE_CACHE, or `deniable` in the user's cache folder; it may not exist yet."""
    given = os.environ.get("DENIABLE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deniable"

"""How kernels are compiled, and where compiled code and slow results are cached.

A kernel is a function that Numba compiles when it is first called, and keeps on disk. Arithmetic is
IEEE's. Kernels are written so that no divisor is ever 0, because a check would cost a branch in each
inner loop.

Without Numba (installed by the extra `simulate`) kernels run as plain Python. That is good enough for
the tables of a few segments; the simulator asks for the extra instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deniable._extras import is_installed

Function = TypeVar("Function", bound=Callable[..., Any])

_IMPORTS = re.compile(r"^from deniable\.([\w.]+) import", re.MULTILINE)

if TYPE_CHECKING:

    def compiled(function: Function) -> Function:
        """The function itself, so that mypy checks the calls between kernels."""

else:

    def compiled(function: Function) -> Function:
        """The function, compiled by Numba when it is first called and cached on disk."""
        if not is_installed("numba"):
            return function
        from numba import config, njit

        # Numba looks at this setting while it decorates. It belongs to the user's own functions too,
        # so it is put back.
        before, config.CACHE_DIR = config.CACHE_DIR, str(kernel_folder())
        # Without the GIL, because a publisher solves in a thread next to the one that decides.
        options = {"error_model": "numpy", "nogil": True}
        try:
            return njit(function, cache=True, **options)
        except RuntimeError:  # nowhere to write: every process compiles for itself
            return njit(function, **options)
        finally:
            config.CACHE_DIR = before


def is_cached(name: str) -> bool:
    """Whether a kernel of this name was compiled before, by this version of the package."""
    return any(kernel_folder().rglob(f"*.{name}-*.nbi"))


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Return the folder of this version's compiled kernels.

    Numba's cache only checks a function's own file, and would keep using a caller that was compiled
    with an old version of a function or a constant from another file. So the folder is named after
    the contents of all files with kernels and of the modules that these import.
    """
    here = Path(__file__)
    sources = {here}
    for source in here.parent.rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        if "@compiled" in text:
            imported = (here.parent / name.replace(".", "/") for name in _IMPORTS.findall(text))
            sources |= {source, *(place.with_suffix(".py") for place in imported)}
    return cache_folder() / "kernels" / hash_of_sources(sorted(filter(Path.exists, sources)))


def cache_folder() -> Path:
    """Return DENIABLE_CACHE, or `deniable` in the user's cache folder; it may not exist yet."""
    given = os.environ.get("DENIABLE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "deniable"
    except RuntimeError:  # no HOME, and a user without an entry, as in some containers
        return Path(tempfile.gettempdir()) / f"deniable-{os.getuid()}"


def hash_of_sources(files: Iterable[Path]) -> str:
    """Return a short hash of the files' names and contents, for cache names that cannot be stale."""
    digest = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        digest.update(f"{file.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]

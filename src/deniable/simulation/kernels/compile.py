"""How kernels are compiled: cached on disk, IEEE arithmetic, no memory management.

Kernels are written so that no divisor is ever 0; the check would cost a branch in each inner loop.

Kernels never allocate: their callers in Python hand them every array. So reference counting is off,
which makes compiling twice as fast, and Numba refuses a kernel that allocates all the same.

Numba's cache looks at a function's own file only, and would go on using a caller compiled with an old
version of a function from another file. So the cache's folder is named after the contents of all files
with kernels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:

    def compiled(function: Function) -> Function:
        """The function itself, so that mypy checks the calls between kernels."""

else:

    def compiled(function: Function) -> Function:
        """The function, compiled by Numba when it is first called and cached on disk."""
        import numba

        usual = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(kernel_folder())
        try:
            return numba.njit(cache=True, error_model="numpy", no_cfunc_wrapper=True, _nrt=False)(
                function
            )
        finally:
            numba.config.CACHE_DIR = usual


def as_python(function: Function, **replaced: object) -> Function:
    """A kernel as plain Python, with some of what it calls replaced: for tests."""
    source = cast(Any, function).py_func
    made = type(source)(source.__code__, {**source.__globals__, **replaced}, source.__name__)
    return cast(Function, made)


def is_cached(name: str) -> bool:
    """Whether a kernel of this name was compiled before, by this version of the package."""
    return any(kernel_folder().rglob(f"*.{name}-*.nbi"))


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Where this version's compiled kernels are kept."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return cache_folder() / "kernels" / digest.hexdigest()[:16]


def cache_folder() -> Path:
    """DENIABLE_CACHE, or `deniable` in the user's cache folder; it may not exist yet."""
    given = os.environ.get("DENIABLE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deniable"

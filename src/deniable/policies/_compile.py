"""How kernels are compiled: cached on disk, IEEE arithmetic, no check for division by zero.

Kernels are written so that no divisor is ever 0; the check would cost a branch in each inner loop.

Numba's cache looks at a function's own file only, and would go on using a caller compiled with an old
version of a function from another file. So the cache's folder is named after the contents of all files
with kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from deniable.policies.cache import cache_folder, hash_of_sources

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]


def compiled(function: Function) -> Function:
    """The function, compiled by Numba when it is first called and cached on disk."""
    import numba

    settings: Any = numba.config
    usual = settings.CACHE_DIR
    settings.CACHE_DIR = str(kernel_folder())
    try:
        made = numba.njit(cache=True, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = usual
    return cast(Function, made)


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Where this version's compiled kernels are kept."""
    sources = [
        source
        for name in ("policies", "strategies", "simulation")
        for source in sorted((_PACKAGE / name).glob("*.py"))
        if b"@compiled" in source.read_bytes()
    ]
    return cache_folder() / "kernels" / hash_of_sources(sources)

"""How kernels are compiled, and where compiled code and slow results are kept.

Compiled code is cached on disk, with IEEE arithmetic. Kernels are written so that no divisor is ever 0;
the check would cost a branch in each inner loop.

The kernels of the simulator never allocate: their callers in Python hand them every array. So reference
counting is off for them (`compiled`), which makes compiling faster, and Numba refuses a kernel
that allocates all the same. Others may allocate (`compiled_with_arrays`). `_kernel_compiler.py` says how
compiling is made faster still.

Without Numba (it comes with the extra `simulate`) the simulator's kernels cannot be imported; the others
run as plain Python, slowly, so that the strategies work without an extra.

Numba's cache looks at a function's own file only, and would go on using a caller compiled with an old
version of a function from another file. So the cache's folder is named after the contents of all files
with kernels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deniable._extras import is_installed, require

Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:

    def compiled(function: Function) -> Function:
        """The function itself, so that mypy checks the calls between kernels."""

    def compiled_with_arrays(function: Function) -> Function:
        """The function itself, so that mypy checks the calls between kernels."""

else:

    def compiled(function: Function) -> Function:
        """The function, compiled by Numba when it is first called and cached on disk."""
        require("numba", extra="simulate")
        return _compiled(function, no_cfunc_wrapper=True, _nrt=False)

    def compiled_with_arrays(function: Function) -> Function:
        """Like `compiled`, for functions that make arrays; plain Python where there is no Numba."""
        # Without the GIL: a publisher solves in a thread beside the one that decides.
        return _compiled(function, nogil=True) if is_installed("numba") else function

    def _compiled(function: Function, **options: bool) -> Function:
        return update_wrapper(_Kernel(function, options), function)


class _Kernel:
    """A function that is compiled when Python calls it first, and as a part of kernels that call it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, bool]) -> None:
        self.py_func = function
        self._options = options

    def __call__(self, *arguments: object) -> object:
        return self._whole(*arguments)

    @cached_property
    def _whole(self) -> Any:
        from numba import config

        from deniable._kernel_compiler import WholeCompiler

        settings: Any = config
        usual = settings.CACHE_DIR
        settings.CACHE_DIR = str(kernel_folder())
        try:
            return self._dispatcher(WholeCompiler, cache=True)
        finally:
            settings.CACHE_DIR = usual

    @cached_property
    def _part(self) -> Any:
        from deniable._kernel_compiler import PartCompiler

        uncalled = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return self._dispatcher(PartCompiler, **uncalled)

    @property
    def _numba_type_(self) -> object:
        """What kernels that call this one see of it; Numba asks for it by this name."""
        return self._part._numba_type_

    def _dispatcher(self, compiler: type, **more: bool) -> Any:
        from numba import njit

        options: dict[str, Any] = {**self._options, **more, "pipeline_class": compiler}
        return njit(self.py_func, error_model="numpy", **options)


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
    here = Path(__file__)
    compilers = here, here.with_name("_kernel_compiler.py")
    sources = [
        source
        for source in sorted(here.parent.rglob("*.py"))
        if source in compilers or b"@compiled" in source.read_bytes()
    ]
    return cache_folder() / "kernels" / hash_of_sources(sources)


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

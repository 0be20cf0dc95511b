"""How kernels are compiled, and where compiled code and slow results are cached.

Compiled code is cached on disk and uses IEEE arithmetic. Kernels are written so that no divisor is
ever 0, because a check would cost a branch in each inner loop.

The simulator's kernels never allocate: their Python callers pass them every array. Reference
counting is therefore off for them (`compiled`), which makes compiling faster, and Numba rejects a
kernel that allocates anyway. Other kernels may allocate (`compiled_with_arrays`).
`_kernel_compiler.py` describes how compiling is made faster still.

Without Numba (installed by the extra `simulate`) the simulator's kernels cannot be imported. The
others run as plain Python, slowly, so that the strategies work without an extra.

Numba's cache only checks a function's own file, and would keep using a caller that was compiled
with an old version of a function or a constant from another file. The cache folder is therefore
named after the contents of all files with kernels and of the modules that these import. It does not
depend on where the package is, so that a second installation finds what the first one compiled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deniable._extras import is_installed, require

Function = TypeVar("Function", bound=Callable[..., Any])

_IMPORTS = re.compile(r"^from deniable\.([\w.]+) import", re.MULTILINE)

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
        # Without the GIL, because a publisher solves in a thread next to the one that decides.
        return _compiled(function, nogil=True) if is_installed("numba") else function

    def _compiled(function: Function, **options: bool) -> Function:
        return update_wrapper(_Kernel(function, options), function)


class _Kernel:
    """A function that is compiled on its first call from Python, or as part of a calling kernel."""

    def __init__(self, function: Callable[..., Any], options: dict[str, bool]) -> None:
        self.py_func = function
        self._options = options

    def __call__(self, *arguments: object) -> object:
        return self._whole(*arguments)

    @cached_property
    def _whole(self) -> Any:
        from deniable._kernel_compiler import WholeCompiler, keep_in

        made = self._dispatcher(WholeCompiler)
        keep_in(kernel_folder() / Path(self.py_func.__code__.co_filename).parent.name, made)
        return made

    @cached_property
    def _part(self) -> Any:
        from deniable._kernel_compiler import PartCompiler

        uncalled = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return self._dispatcher(PartCompiler, **uncalled)

    @property
    def _numba_type_(self) -> object:
        """The kernel's type as seen by calling kernels; Numba looks it up by this name."""
        return self._part._numba_type_

    def _dispatcher(self, compiler: type, **more: bool) -> Any:
        from numba import njit

        options: dict[str, Any] = {**self._options, **more, "pipeline_class": compiler}
        return njit(self.py_func, error_model="numpy", **options)


def as_python(function: Function, **replaced: object) -> Function:
    """Return a kernel as plain Python, with some of its callees replaced, for tests."""
    source = cast(Any, function).py_func
    made = type(source)(source.__code__, {**source.__globals__, **replaced}, source.__name__)
    return cast(Function, made)


def is_cached(name: str) -> bool:
    """Whether a kernel of this name was compiled before, by this version of the package."""
    return any(kernel_folder().rglob(f"*.{name}-*.nbi"))


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Return the folder of this version's compiled kernels."""
    here = Path(__file__)
    sources = {here, here.with_name("_kernel_compiler.py")}
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
    return (Path(base) if base else Path.home() / ".cache") / "deniable"


def hash_of_sources(files: Iterable[Path]) -> str:
    """Return a short hash of the files' names and contents, for cache names that cannot be stale."""
    digest = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        digest.update(f"{file.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]

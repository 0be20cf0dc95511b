"""How kernels are compiled: cached on disk, IEEE arithmetic, no check for division by zero.

Kernels are written so that no divisor is ever 0; the check would cost a branch in each inner loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function, compiled by Numba when it is first called and cached on disk."""
    return cast(Function, njit(cache=True, error_model="numpy")(function))

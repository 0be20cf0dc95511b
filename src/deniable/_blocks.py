"""Evaluates long arrays in blocks whose intermediate results stay in the CPU cache."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deniable._validation import FloatArray

BLOCK = 1 << 14
"""Elements per block: enough to amortise the cost of a call, few enough for the L2 cache."""


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that these broadcast to. Mostly all are equal, which is quick to see."""
    first = shapes[0]
    return first if all(shape == first for shape in shapes) else np.broadcast_shapes(*shapes)


def in_blocks(formula: Callable[..., FloatArray], *arguments: FloatArray) -> FloatArray:
    """Return formula(*arguments) for an elementwise formula; the arguments broadcast.

    >>> float(in_blocks(lambda x, y: x * y, np.arange(100_000.0), np.array(2.0)).sum())
    9999900000.0
    """
    shape = common_shape(*(argument.shape for argument in arguments))
    size = math.prod(shape)
    if size <= BLOCK:
        return formula(*arguments)
    flat = [a if a.ndim == 0 else np.broadcast_to(a, shape).reshape(-1) for a in arguments]
    result = np.empty(size)
    for start in range(0, size, BLOCK):
        part = slice(start, start + BLOCK)
        result[part] = formula(*(a if a.ndim == 0 else a[part] for a in flat))
    return result.reshape(shape)

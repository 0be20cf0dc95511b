"""Kernels as plain Python, so that a test can replace what they call."""

from __future__ import annotations

from typing import Any


def as_python(function: Any, **replaced: Any) -> Any:
    """Return a kernel as plain Python, with some of the names that it uses replaced."""
    source = getattr(function, "py_func", function)
    return type(source)(source.__code__, {**source.__globals__, **replaced}, source.__name__)

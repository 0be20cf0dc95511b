"""Shared argument checks: each returns the value in the form used by the formulas, or raises.

Numbers may be scalars or arrays; the result is always a float64 array of the same shape, and
`unwrap` turns a zero-dimensional result back into a scalar at the end of a formula.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.errors import InvalidArgumentError

FloatArray: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = np.float64 | NDArray[np.float64]
"""Result of a formula: a scalar for scalars, an array for arrays."""

_EXACT = 2**53  # integers below it are floats


def unwrap(values: FloatArray) -> Floats:
    """Convert a zero-dimensional array to a scalar; return other arrays unchanged."""
    return values[()] if values.ndim == 0 else values


def _floats(argument: str, value: ArrayLike, allowed: str) -> FloatArray:
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value  # what formulas pass on to each other
    if _has_a_boolean(value):
        raise InvalidArgumentError(argument, value, allowed)
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iuf" and not _only_large_integers(raw):
            raise InvalidArgumentError(argument, value, allowed)
        return raw.astype(np.float64, copy=False)
    except (ValueError, OverflowError):  # a ragged nested list, or an integer too large for a float
        raise InvalidArgumentError(argument, value, allowed) from None


def _has_a_boolean(value: object) -> bool:
    """Whether a boolean was passed as a number; in a list, NumPy would read it as 0 or 1."""
    if isinstance(value, list | tuple):
        return any(map(_has_a_boolean, value))
    return isinstance(value, bool | np.bool_)


def _only_large_integers(raw: NDArray[Any]) -> bool:
    """Python integers too large for int64 arrive as an object array."""
    return raw.dtype == object and all(type(item) is int for item in raw.flat)


def _require(argument: str, array: FloatArray, good: NDArray[np.bool_], allowed: str) -> None:
    if not good.all():
        first = float(array[~good].flat[0])
        shown = int(first) if first.is_integer() else first
        raise InvalidArgumentError(argument, shown, allowed)


def single(argument: str, array: FloatArray) -> float:
    """Return the only number, if an array makes no sense."""
    if array.ndim:
        raise InvalidArgumentError(argument, array.tolist(), "one number")
    return float(array)


def count(argument: str, value: ArrayLike, minimum: int) -> FloatArray:
    """Validate integers of at least `minimum`; 1e6 is valid, 2.5 and True are not."""
    given: object = value
    if type(given) is int and minimum <= given < _EXACT:
        return np.array(given, np.float64)
    allowed = f"a whole number, {minimum} or more"
    array = _floats(argument, value, allowed)
    good = np.isfinite(array) & (array >= minimum) & (array == np.floor(array))
    _require(argument, array, good, allowed)
    return array


def whole(argument: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Validate one integer and return it as an int."""
    bound = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
    allowed = f"a whole number, {bound}"
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidArgumentError(argument, value, allowed)
    if not isinstance(value, int) and not float(value).is_integer():
        raise InvalidArgumentError(argument, value, allowed)
    result = int(value)
    if result < minimum or (maximum is not None and result > maximum):
        raise InvalidArgumentError(argument, value, allowed)
    return result


def finite(argument: str, value: ArrayLike) -> FloatArray:
    """Validate finite numbers of either sign."""
    allowed = "finite numbers"
    array = _floats(argument, value, allowed)
    _require(argument, array, np.isfinite(array), allowed)
    return array


def nonnegative(argument: str, value: ArrayLike) -> FloatArray:
    """Validate finite numbers of at least 0, such as budgets."""
    allowed = "a finite number, 0 or more"
    array = _floats(argument, value, allowed)
    _require(argument, array, np.isfinite(array) & (array >= 0), allowed)
    return array


def budget(value: float) -> float:
    """Validate one privacy budget."""
    return single("budget", nonnegative("budget", value))


def risk(argument: str, value: ArrayLike) -> FloatArray:
    """Validate a privacy risk: 0 or more; infinity is the purely greedy mechanism."""
    allowed = "a number, 0 or more"
    array = _floats(argument, value, allowed)
    _require(argument, array, array >= 0, allowed)
    return array


def probability(argument: str, value: ArrayLike, *, open_at_zero: bool = False) -> FloatArray:
    """Validate numbers in [0, 1], or in (0, 1] if zero makes no sense."""
    allowed = "a number above 0, up to 1" if open_at_zero else "a number from 0 to 1"
    array = _floats(argument, value, allowed)
    good = (array > 0 if open_at_zero else array >= 0) & (array <= 1)
    _require(argument, array, good, allowed)
    return array


def arm_budgets(argument: str, value: Sequence[float] | FloatArray) -> FloatArray:
    """Validate one finite positive budget for each of at least two arms."""
    array = nonnegative(argument, value)
    if array.ndim != 1 or array.size < 2:
        raise InvalidArgumentError(argument, value, "one budget for each of 2 or more arms")
    if (array == 0).any() and not (array == 0).all():
        raise InvalidArgumentError(
            argument,
            value,
            "budgets above 0 for all arms, or 0 for all: an arm with 0 alone would always be shown",
        )
    return array


def listed(argument: str, value: object, allowed: str) -> list[Any]:
    """Return the items of a list, tuple, array or other iterable, but not of text or a mapping."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgumentError(argument, value, allowed)
    return list(value)


def distinct(argument: str, values: Iterable[Hashable], minimum: int) -> tuple[Hashable, ...]:
    """Validate at least `minimum` distinct, non-empty names."""
    names = tuple(values)
    if len(names) < minimum:
        raise InvalidArgumentError(argument, names, f"{minimum} or more names")
    if any(name is None or name == "" for name in names):
        raise InvalidArgumentError(argument, names, "names that are not empty")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(argument, names, "names that differ from each other")
    return names

"""Parses numbers as people type them: 1e6 visitors, 100,000 visitors, budgets .5,1,2.

Shared by the command line and the web pages. Messages repeat at most 40 characters of the input.
"""

from __future__ import annotations

import math
import re

from deniable.errors import InvalidArgumentError


def number(
    argument: str, text: str, least: float | None = None, most: float | None = None
) -> float:
    """Parse a finite number with a decimal point or comma; `1,000` is rejected as ambiguous.

    >>> number("budget", "1,5"), number("budget", " 2e-1 "), number("budget", "0,125")
    (1.5, 0.2, 0.125)
    """
    if re.fullmatch(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*", text, re.ASCII):
        raise InvalidArgumentError(argument, text[:40], "a number without a comma, 1000 or 1.0")
    try:
        found = float(text.replace(",", ".")) if len(text) <= 40 and text.isascii() else math.nan
    except ValueError:
        found = math.nan
    outside = (least is not None and found < least) or (most is not None and found > most)
    if not math.isfinite(found) or outside:
        raise InvalidArgumentError(argument, text[:40], f"a number{_range(least, most, '1.5')}")
    return found


def whole(argument: str, text: str, least: int | None = None, most: int | None = None) -> int:
    """Parse an integer, also with separators, a power of ten, or k and M for thousands and millions.

    >>> whole("visitors", "100,000"), whole("visitors", "1e5"), whole("visitors", "1.5M")
    (100000, 100000, 1500000)
    """
    plain = text.replace(",", "").replace(" ", "").replace("_", "")
    plain = re.sub(r"(?<=[0-9])[kK]$", "e3", re.sub(r"(?<=[0-9])[mM]$", "e6", plain))
    exact: float = math.nan
    if len(plain) <= 40 and plain.isascii():
        for kind in (int, float):
            try:
                exact = kind(plain)
                break
            except ValueError:
                continue
    outside = (least is not None and exact < least) or (most is not None and exact > most)
    if not math.isfinite(exact) or exact != int(exact) or outside:
        allowed = f"a whole number{_range(least, most, '100000 or 1e5')}"
        raise InvalidArgumentError(argument, text[:40], allowed)
    return int(exact)


def numbers(
    argument: str, text: str, least: float | None = None, most: float | None = None
) -> list[float]:
    """Parse numbers separated by commas, each with a decimal point if it is not an integer.

    >>> numbers("arm_budgets", ".5,1, 2")
    [0.5, 1.0, 2.0]
    """
    try:
        return [number(argument, part, least, most) for part in text.split(",")]
    except InvalidArgumentError:
        allowed = f"numbers{_range(least, most, '.5,1,2')}, separated by commas"
        raise InvalidArgumentError(argument, text[:40], allowed) from None


def toml_words(error: Exception) -> str:
    """Return what is wrong with a TOML file, and how it writes numbers.

    >>> toml_words(ValueError("Invalid value (at line 1, column 8)"))
    'Invalid value (at line 1, column 8); numbers are written as 0.05 and 10_000'
    """
    return f"{error}; numbers are written as 0.05 and 10_000"


def _range(least: float | None, most: float | None, example: str) -> str:
    if least is None and most is None:
        return f", such as {example}"
    low = "" if least is None else f" from {least:,.15g}"
    return low if most is None else f"{low} to {most:,.15g}"

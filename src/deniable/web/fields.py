"""Text from forms as values, and refusals in the words of the form."""

from __future__ import annotations

import math

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.service.http.problems import problem_of
from deniable.web.wording import capitalised


def number(argument: str, text: str) -> float:
    """A finite number, written with a point or a comma.

    >>> number("budget", "1,5")
    1.5
    """
    try:
        found = float(text.replace(",", "."))
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or len(text) > 40:
        raise InvalidArgumentError(argument, text[:40], "a number such as 1.5")
    return found


def whole(argument: str, text: str) -> int:
    """A whole number, also with separators.

    >>> whole("planned_visitors", "100,000")
    100000
    """
    plain = text.replace(",", "").replace(" ", "").replace("_", "")
    if not plain.isascii() or not plain.isdigit() or len(plain) > 18:
        raise InvalidArgumentError(argument, text[:40], "a whole number such as 100000")
    return int(plain)


def lines(text: str) -> list[str]:
    r"""The lines of a text that are not empty, without spaces around them.

    >>> lines("new \n\n old")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_words(error: DeniableError) -> str:
    """A refusal as a sentence; it does not repeat what was typed."""
    return capitalised(problem_of(error).detail) + "."

"""Text from forms as values, and refusals in the words of the form."""

from __future__ import annotations

from collections.abc import Mapping

from deniable import _numbers
from deniable._numbers import number as number
from deniable._numbers import numbers as numbers
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.service.http.messages import problem_of
from deniable.web.wording import capitalised


def whole(argument: str, text: str, least: int = 0, most: int = 10**18) -> int:
    """A count, also with separators.

    >>> whole("planned_visitors", "100,000")
    100000
    """
    return _numbers.whole(argument, text, least, most)


def lines(text: str) -> list[str]:
    r"""The lines of a text that are not empty, without spaces around them.

    >>> lines("new \n\n old")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_words(error: DeniableError) -> str:
    """A refusal as a sentence; it does not repeat what was typed."""
    return capitalised(problem_of(error).detail) + "."


def beside(
    error: DeniableError, names: Mapping[str, str], otherwise: str = "form"
) -> dict[str, str]:
    """A refusal by the field that it stands beside.

    Args:
        error: the refusal.
        names: the field of each argument.
        otherwise: where all other refusals stand.

    >>> beside(InvalidArgumentError("window_days", 0, "1 to 3650"), {"window_days": "days"})
    {'days': 'Expected 1 to 3650.'}
    """
    field = names.get(error.argument) if isinstance(error, InvalidArgumentError) else None
    if field is None or not isinstance(error, InvalidArgumentError):
        return {otherwise: in_words(error)}
    return {field: f"Expected {error.allowed}."}

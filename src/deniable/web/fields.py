"""Text from forms as values, and refusals in the words of the form."""

from __future__ import annotations

from deniable import _numbers
from deniable._numbers import number as number
from deniable.errors import DeniableError
from deniable.service.http.problems import problem_of
from deniable.web.wording import capitalised


def whole(argument: str, text: str) -> int:
    """A count, also with separators.

    >>> whole("planned_visitors", "100,000")
    100000
    """
    return _numbers.whole(argument, text, 0, 10**18)


def lines(text: str) -> list[str]:
    r"""The lines of a text that are not empty, without spaces around them.

    >>> lines("new \n\n old")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_words(error: DeniableError) -> str:
    """A refusal as a sentence; it does not repeat what was typed."""
    return capitalised(problem_of(error).detail) + "."

"""Text from forms as values, and refusals in the words of the form."""

from __future__ import annotations

from deniable._numbers import number as number
from deniable._numbers import whole as whole
from deniable.errors import DeniableError
from deniable.service.http.problems import problem_of
from deniable.web.wording import capitalised


def lines(text: str) -> list[str]:
    r"""The lines of a text that are not empty, without spaces around them.

    >>> lines("new \n\n old")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_words(error: DeniableError) -> str:
    """A refusal as a sentence; it does not repeat what was typed."""
    return capitalised(problem_of(error).detail) + "."

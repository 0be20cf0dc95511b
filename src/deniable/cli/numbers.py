"""Numbers as people type them: 1e6 visitors, .5,1,2 budgets."""

from __future__ import annotations

from deniable.errors import InvalidArgumentError


def whole_number(argument: str, text: str) -> int:
    """A whole number from 100000, 100_000 or 1e5.

    >>> whole_number("visitors", "1e5")
    100000
    """
    allowed = "a whole number, such as 100000 or 1e5"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        raise InvalidArgumentError(argument, text, allowed) from None
    if not value.is_integer():  # False for nan and the infinities as well
        raise InvalidArgumentError(argument, text, allowed)
    return int(value)


def number_list(argument: str, text: str) -> list[float]:
    """Numbers separated by commas.

    >>> number_list("arm_budgets", ".5,1, 2")
    [0.5, 1.0, 2.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(
            argument, text, "numbers separated by commas, such as .5,1,2"
        ) from None

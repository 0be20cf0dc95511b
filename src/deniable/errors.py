"""Every exception that Deniable raises on purpose.

::

    DeniableError
    ├── InvalidArgumentError     (also a ValueError)  a caller's mistake: argument, value, allowed
    ├── InsufficientBudgetError  a debit that does not fit: remaining, requested
    └── BrokenPromiseError       a serving table that would exceed its budget; never served
"""

from __future__ import annotations

from functools import partial

NANO = 1_000_000_000
"""Nano-nats in one nat; budgets are stored as integers of this unit."""


class DeniableError(Exception):
    """The base of all errors of this package."""


class InvalidArgumentError(DeniableError, ValueError):
    """An argument outside of what is allowed.

    Attributes:
        argument: the name of the argument, as the caller wrote it.
        value: what was given.
        allowed: what would have been accepted, in words.

    >>> raise InvalidArgumentError("n_arms", 1, "a whole number, 2 or more")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: n_arms=1: expected a whole number, 2 or more
    """

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument = argument
        self.value = value
        self.allowed = allowed
        super().__init__(argument, value, allowed)  # as given, so that the error can be pickled

    def __str__(self) -> str:
        return f"{self.argument}={_shown(self.value)}: expected {self.allowed}"


class InsufficientBudgetError(DeniableError):
    """A debit larger than what is left; nothing was debited.

    Attributes:
        remaining: what is left, in nano-nats.
        requested: what was asked for, in nano-nats.

    >>> raise InsufficientBudgetError(remaining=500_000_000, requested=1_000_000_000)
    Traceback (most recent call last):
    ...
    deniable.errors.InsufficientBudgetError: requested 1 nats of privacy budget, only 0.5 remain
    """

    def __init__(self, *, remaining: int, requested: int) -> None:
        self.remaining = remaining
        self.requested = requested
        super().__init__(
            f"requested {requested / NANO:.9g} nats of privacy budget, "
            f"only {remaining / NANO:.9g} remain"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), remaining=self.remaining, requested=self.requested), ()


class BrokenPromiseError(DeniableError):
    """A table whose exact worst ratio exceeds e^budget. It is never served."""


def _shown(value: object) -> str:
    """The value as a person would recognise it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

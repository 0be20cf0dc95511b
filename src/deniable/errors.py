"""All exceptions that Deniable raises deliberately.

::

    DeniableError
    ├── InvalidArgumentError     (also a ValueError)  a caller's mistake: argument, value, allowed
    ├── InvalidTableError        (also a ValueError)  a table with bad rows: all of them
    ├── InsufficientBudgetError  a debit that does not fit: remaining, requested
    ├── BrokenPromiseError       a serving table that would exceed its budget; never served
    ├── EntropyError             the operating system gave no random bytes; nothing can be drawn
    ├── MissingExtraError        (also an AttributeError)  an optional dependency: module, extra
    ├── UnknownNameError         (also a LookupError)  nothing has this name: kind, name
    ├── WrongStateError          what an experiment's state, or a name in use, forbids
    ├── MigrationNeededError     (also a WrongStateError)  the store's schema is older: stored, needed
    ├── ApprovalNeededError      (also a WrongStateError)  the firm asks for a second person
    ├── TooManyAttemptsError     too many wrong passwords: seconds to wait
    ├── OverloadedError          the queue is full: nothing was done, try again in a moment
    └── StoreUnavailableError    the store did not answer after retries: nothing was acknowledged
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

NANO = 1_000_000_000
"""Nano-nats per nat; budgets are stored as integers in nano-nats."""


class DeniableError(Exception):
    """Base class of all errors of this package.

    >>> issubclass(InvalidArgumentError, DeniableError)
    True
    """


def causes(error: BaseException) -> str:
    """Return the kinds of an error and of what caused it, with their codes, for logs.

    Codes are the SQLSTATE, SQLite's name of its error, or the name of the errno. Messages are left out,
    because they may quote a visitor's request. Those of StoreUnavailableError never do.

    >>> causes(OSError(28, "No space left on device"))
    'OSError ENOSPC'
    """
    kinds: list[str] = []
    found: BaseException | None = error
    while found is not None:
        code = (
            getattr(found, "sqlstate", None)
            or getattr(found, "sqlite_errorname", None)
            or errno.errorcode.get(getattr(found, "errno", None) or 0)
        )
        kind = str(found) if isinstance(found, StoreUnavailableError) else type(found).__name__
        kinds.append(f"{kind} {code}" if code else kind)
        found = found.__cause__
    return ", by ".join(dict.fromkeys(kinds))


class InvalidArgumentError(DeniableError, ValueError):
    """An argument has a value that is not allowed.

    Attributes:
        argument: name of the argument, as written by the caller.
        value: the given value.
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


class InvalidTableError(DeniableError, ValueError):
    """A table has invalid rows.

    Attributes:
        problems: (row number, problem) for every bad row; row 0 is the table itself.

    >>> raise InvalidTableError([(2, "row 2 (b): visitors is missing")])
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidTableError: 1 problem: row 2 (b): visitors is missing
    """

    def __init__(self, problems: Sequence[tuple[int, str]]) -> None:
        self.problems = tuple(problems)
        plural = "" if len(self.problems) == 1 else "s"
        told = "; ".join(message for _, message in self.problems)
        super().__init__(f"{len(self.problems)} problem{plural}: {told}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class InsufficientBudgetError(DeniableError):
    """A debit exceeds the remaining budget; nothing was debited.

    Attributes:
        remaining: the remaining amount, in nano-nats.
        requested: the requested amount, in nano-nats.

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


class EntropyError(DeniableError):
    """The operating system returned no random bytes, so nothing can be drawn."""


class MissingExtraError(DeniableError, AttributeError):
    """An optional dependency is not installed.

    It is an AttributeError, so that `hasattr(deniable, name)` and `help(deniable)` work without it.

    Attributes:
        module: the missing module.
        extra: the extra of this package that installs it.

    >>> raise MissingExtraError("numba", "simulate")
    Traceback (most recent call last):
    ...
    deniable.errors.MissingExtraError: numba is not installed: pip install 'deniable[simulate]'
    """

    def __init__(self, module: str, extra: str) -> None:
        self.module = module
        self.extra = extra
        super().__init__(module, extra)  # as given, so that the error can be pickled

    def __str__(self) -> str:
        return f"{self.module} is not installed: pip install 'deniable[{self.extra}]'"


class UnknownNameError(DeniableError, LookupError):
    """There is nothing of this kind with this name.

    >>> raise UnknownNameError("experiment", "checkout")
    Traceback (most recent call last):
    ...
    deniable.errors.UnknownNameError: no experiment is called 'checkout'
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"no {kind} is called {_shown(name)}")


class WrongStateError(DeniableError):
    """The current state forbids an action, such as starting twice or changing a promise."""


class MigrationNeededError(WrongStateError):
    """The store's schema is older than this version of Deniable.

    Attributes:
        stored: the store's revision.
        needed: the revision that this version needs.

    >>> raise MigrationNeededError("0001", "0002")
    Traceback (most recent call last):
    ...
    deniable.errors.MigrationNeededError: the store is at revision 0001, this version of Deniable
        needs 0002: back it up, then run `deniable migrate`
    """

    def __init__(self, stored: str, needed: str) -> None:
        self.stored = stored
        self.needed = needed
        super().__init__(stored, needed)  # as given, so that the error can be pickled

    def __str__(self) -> str:
        return (
            f"the store is at revision {self.stored}, this version of Deniable needs {self.needed}: "
            "back it up, then run `deniable migrate`"
        )


class ApprovalNeededError(WrongStateError):
    """The firm's rules require a second person. Nothing was done except leaving a request.

    Attributes:
        kind: kind of the action.
        words: description of the action.
        digest: a keyed hash of the exact action.

    >>> raise ApprovalNeededError("start", "start checkout: 3 nats", bytes(32))
    Traceback (most recent call last):
    ...
    deniable.errors.ApprovalNeededError: this needs a second person (start checkout: 3 nats):
        a privacy officer or an admin grants it under Settings, then do the same again
    """

    def __init__(self, kind: str, words: str, digest: bytes) -> None:
        self.kind = kind
        self.words = words
        self.digest = digest
        super().__init__(kind, words, digest)  # as given, so that the error can be pickled

    def __str__(self) -> str:
        return (
            f"this needs a second person ({self.words}): a privacy officer or an admin grants it "
            "under Settings, then do the same again"
        )


class TooManyAttemptsError(DeniableError):
    """There were too many wrong passwords recently; this one was not checked.

    Attributes:
        seconds: how long to wait.

    >>> raise TooManyAttemptsError(seconds=60)
    Traceback (most recent call last):
    ...
    deniable.errors.TooManyAttemptsError: too many wrong passwords: try again in 60 seconds
    """

    def __init__(self, *, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"too many wrong passwords: try again in {seconds} seconds")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), seconds=self.seconds), ()


class OverloadedError(DeniableError):
    """More is queued than can be answered in time. Nothing was done; the same for all callers."""


class StoreUnavailableError(DeniableError):
    """The store did not accept a change despite retries. The change was not acknowledged.

    Its message is logged, so it names the cause and never a value.
    """


def _shown(value: object) -> str:
    """Format the value in a recognisable form, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

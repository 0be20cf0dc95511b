"""The acting user, `user:NAME`, `key:LABEL` or `shell:NAME`, recorded in every ledger entry.

The actor belongs to the context (`contextvars`). It is set where a caller is authenticated and need
not be passed on. Work that the service does on its own has no actor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

ActorKind: TypeAlias = Literal["user", "key", "shell"]

_actor: ContextVar[str | None] = ContextVar("deniable_actor", default=None)
_WORDS = {"user": "{}", "key": "API key {}", "shell": "{} on the command line"}


def current() -> str | None:
    """Return the current actor; None if there is none."""
    return _actor.get()


def act_as(kind: ActorKind, name: str) -> None:
    """Set the actor for the rest of this context."""
    _actor.set(f"{kind}:{name}")


@contextmanager
def acting(kind: ActorKind, name: str) -> Iterator[None]:
    """Set the actor within this block.

    >>> with acting("user", "ada"):
    ...     current()
    'user:ada'
    >>> current() is None
    True
    """
    token = _actor.set(f"{kind}:{name}")
    try:
        yield
    finally:
        _actor.reset(token)


def in_words(actor: str | None) -> str:
    """Format an actor for people.

    >>> in_words("user:ada"), in_words("key:shop"), in_words("shell:root"), in_words(None)
    ('ada', 'API key shop', 'root on the command line', '')
    """
    if actor is None:
        return ""
    kind, _, name = actor.partition(":")
    return _WORDS.get(kind, "{}").format(name) if name else actor

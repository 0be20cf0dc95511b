"""Who acts: `user:NAME`, `key:LABEL` or `shell:NAME`, which every entry of the ledger then carries.

The actor belongs to the context (`contextvars`): whoever lets somebody in says who it is, and nothing
in between has to pass it on. Work that the service does by itself has no actor.
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
    """Who acts now; None: nobody in particular."""
    return _actor.get()


def act_as(kind: ActorKind, name: str) -> None:
    """From now on, in this context, this one acts."""
    _actor.set(f"{kind}:{name}")


@contextmanager
def acting(kind: ActorKind, name: str) -> Iterator[None]:
    """Within this block, this one acts.

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
    """An actor for people.

    >>> in_words("user:ada"), in_words("key:shop"), in_words("shell:root"), in_words(None)
    ('ada', 'API key shop', 'root on the command line', '')
    """
    if actor is None:
        return ""
    kind, _, name = actor.partition(":")
    return _WORDS.get(kind, "{}").format(name) if name else actor

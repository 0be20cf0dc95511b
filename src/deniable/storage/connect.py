"""From a URL to a store that is at the present schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import InvalidArgumentError
from deniable.storage.migrate import migrate
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.storage.memory import MemoryStore
    from deniable.storage.postgres import PostgresStore
    from deniable.storage.sqlite import SqliteStore

ALLOWED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"


def connect(url: str) -> Store:
    """The store at `url`, its tables made or migrated where needed."""
    store = _opened(url)
    try:
        migrate(store.engine)
    except BaseException:
        store.close()
        raise
    return store


def _opened(url: str) -> MemoryStore | SqliteStore | PostgresStore:
    if url == "memory:":
        from deniable.storage.memory import MemoryStore

        return MemoryStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from deniable.storage.sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        from deniable.storage.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidArgumentError("url", url.split("@")[-1], ALLOWED)

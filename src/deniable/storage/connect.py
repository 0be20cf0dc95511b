"""From a URL to a store that is at the present schema."""

from __future__ import annotations

from deniable.errors import InvalidArgumentError
from deniable.storage.migrate import migrate
from deniable.storage.store import Store

ALLOWED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"


def connect(url: str) -> Store:
    """The store at `url`, its tables made or migrated where needed."""
    if url == "memory:":
        from deniable.storage.memory import MemoryStore

        memory = MemoryStore()
        migrate(memory.engine)
        return memory
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from deniable.storage.sqlite import SqliteStore

        sqlite = SqliteStore(url.removeprefix("sqlite:///"))
        migrate(sqlite.engine)
        return sqlite
    if url.startswith(("postgresql://", "postgres://")):
        from deniable.storage.postgres import PostgresStore

        postgres = PostgresStore(url)
        migrate(postgres.engine)
        return postgres
    raise InvalidArgumentError("url", url.split("@")[-1], ALLOWED)

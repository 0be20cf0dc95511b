from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.postgres import PostgresServer
from tests.service.support import serving

from deniable.service.service import Deniable


@pytest.fixture
def service(store_url: str) -> Iterator[Deniable]:
    """A service with a firm of 100 nats, once on each kind of store."""
    with serving(store_url) as opened:
        yield opened


@pytest.fixture
def own_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop, crash and hang."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    try:
        server = PostgresServer()
    except (FileNotFoundError, PermissionError) as reason:
        pytest.skip(f"POSTGRESQL NOT TESTED: {reason}")
    server.start()
    yield server
    server.remove()

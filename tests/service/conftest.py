from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.support import serving

from deniable.service.service import Deniable


@pytest.fixture
def service(store_url: str) -> Iterator[Deniable]:
    """A service with a firm of 100 nats, once on each kind of store."""
    with serving(store_url) as opened:
        yield opened

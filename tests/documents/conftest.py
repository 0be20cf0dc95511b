"""The firm that documents are made about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.support import published

from deniable.service.service import Deniable
from deniable.service.service import open as open_service


@pytest.fixture
def service() -> Iterator[Deniable]:
    """Two experiments, one of them with visitors and three tables, and a firm of 6 nats."""
    with open_service("memory:") as opened:
        opened.firm.set(budget=6)
        opened.experiments.create(
            "checkout", arms=["old", "new", "bold"], segments=["new", "back"], budget=2
        )
        opened.experiments.start("checkout")
        opened.experiments.create("search", arms=["a", "b"], segments=["x", "y"], budget=0.5)
        opened.experiments.start("search")
        shown = opened.decide_batch(
            "checkout", [(f"v{n}", ("new", "back")[n % 2]) for n in range(300)]
        )
        opened.reward_batch([(one.id, int(one.arm == "new")) for one in shown])
        published(opened)
        yield opened

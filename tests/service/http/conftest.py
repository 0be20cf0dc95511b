"""A service on a real SQLite file with one running experiment, and applications on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.service.http.site import EXPERIMENT, Site, running_site

from deniable.service.http.app import Options
from deniable.service.service import Deniable
from deniable.service.service import open as open_service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Deniable]:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        opened.firm.set(budget=10.0)
        opened.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        opened.experiments.start(EXPERIMENT)
        yield opened


@pytest.fixture
def make_site(service: Deniable) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def make(options: Options | None = None) -> Site:
            return stack.enter_context(running_site(service, options))

        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()

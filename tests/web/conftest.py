"""Sites on real SQLite files, and Debian's Chromium, or a loud skip where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.patience import PATIENCE
from tests.web.site import Site, create_demo, running_site

from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.web import audits

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The same engine; the shell has no windows to take care of, which is a fifth of the CPU time."""
FLAGS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--renderer-process-limit=1",  # to start a process takes longer than most pages
    "--js-flags=--no-opt --no-maglev",  # no page lives long enough to be worth optimised code
)


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages wait for an audit, however busy the machine is: what they show does not depend on it."""
    monkeypatch.setattr(audits, "PATIENCE", PATIENCE)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Deniable]:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def empty_site(service: Deniable) -> Iterator[Site]:
    with running_site(service) as site:
        yield site


@pytest.fixture
def site(service: Deniable) -> Iterator[Site]:
    """The demo's experiments, running, without visitors."""
    create_demo(service)
    with running_site(service) as served:
        yield served


@pytest.fixture(scope="session")
def demo_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo with 2,000 visitors: shared, so tests only look at it."""
    path = tmp_path_factory.mktemp("demo") / "store.db"
    with open_service(f"sqlite:///{path}") as opened:
        create_demo(opened)
        with running_site(opened, demo=True) as served:
            served.send_visitors(2_000)
            yield served


@pytest.fixture(scope="session")
def busy_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site in which tests may leave things behind."""
    path = tmp_path_factory.mktemp("busy") / "store.db"
    with open_service(f"sqlite:///{path}") as opened:
        create_demo(opened)
        with running_site(opened) as served:
            yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("PAGES NOT TESTED IN A BROWSER: no Chromium; apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()

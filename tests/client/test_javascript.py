"""The JavaScript client: its own tests, its types, and full experiments against a real server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node import JS_CLIENT, needs_node, with_packages
from tests.patience import PATIENCE
from tests.service.http.process import serving

from deniable.service.service import Deniable
from deniable.service.service import open as open_service

pytestmark = needs_node

VISITORS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("javascript")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[tuple[str, str]]:
    """A server's URL and a key for it; an experiment for each way to drive it is running."""
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        service.firm.set(budget=12.0)
        secret, _ = service.keys.create("shop", ["decide", "reward"])
        for way in ("client", "batches", "sdk", "stock-provider"):
            _started(service, way)
    with serving(folder) as server:
        yield server.url, secret


def _started(service: Deniable, key: str) -> None:
    service.experiments.create(
        key, arms=["old", "new"], segments=["a", "b"], budget=3.0, strategy="constant"
    )
    service.experiments.start(key)


def _node(package: Path, *arguments: str, **environment: str) -> str:
    """What Node prints; a failure shows what it printed elsewhere."""
    done = subprocess.run(
        ["node", *arguments],
        cwd=package,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass() -> None:
    files = ("test/client.test.js", "test/mask.test.js", "test/provider.test.js")
    printed = _node(JS_CLIENT, "--test", *files)
    assert "# pass 24" in printed
    assert "# fail 0" in printed


@pytest.mark.parametrize("way", ["client", "batches"])
def test_the_better_arm_wins(address: tuple[str, str], way: str) -> None:
    _check(JS_CLIENT, address, way)


@pytest.mark.parametrize("way", ["sdk", "stock-provider"])
def test_with_the_packages_of_openfeature(address: tuple[str, str], folder: Path, way: str) -> None:
    _check(with_packages(folder), address, way)


def test_the_types_fit_the_sdk(folder: Path) -> None:
    package = with_packages(folder)
    script = json.loads((package / "package.json").read_text())["scripts"]["types"].split()
    assert script[0] == "tsc"
    _node(package, "node_modules/typescript/bin/tsc", *script[1:])


def _check(package: Path, address: tuple[str, str], way: str) -> None:
    """A visitor clicks with 5% on `old`, with 60% on `new`: chance fails this far below 1e-9."""
    url, secret = address
    timeout = str(1000 * PATIENCE)
    settings = {"SERVICE_URL": url, "SERVICE_KEY": secret, "TIMEOUT_MS": timeout}
    shows = json.loads(_node(package, "test/drive.js", way, way, **settings))
    assert sum(shows.values()) == VISITORS
    assert shows["new"] > VISITORS / 2

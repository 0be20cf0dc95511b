"""Signals and crashes: processes end in good order, and a worker that dies is replaced."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2 as httpx
import psutil
import pytest
from tests.patience import PATIENCE, eventually
from tests.service.http.process import Server, serving
from tests.service.http.site import DECISIONS, EXPERIMENT

from deniable.service.service import open as open_service


@pytest.fixture
def secret(tmp_path: Path) -> str:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(EXPERIMENT)
        return service.keys.create("test", ["admin"])[0]


def _family(server: Server) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(server.process.pid).children(recursive=True)
    return found


def _decided(url: str, secret: str, visitor: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"visitor": visitor, "segment": "a"}
    return httpx.post(url + DECISIONS, json=body, headers=headers, timeout=PATIENCE)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_in_good_order(
    tmp_path: Path, secret: str, workers: str, number: signal.Signals
) -> None:
    with serving(tmp_path, "--workers", workers, patient=False) as server:
        assert _decided(server.url, secret, "v").status_code == 200
        family = _family(server)
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE) == 0
        assert not any(process.is_running() for process in family)


def test_workers_end_with_their_parent(
    tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with serving(tmp_path, "--workers", "2", patient=False) as server:
        family = _family(server)
        assert len(family) == 2
        server.process.kill()
        server.process.wait(PATIENCE)
        psutil.wait_procs(family, PATIENCE)
        assert not any(process.is_running() for process in family)
        port = server.url.rpartition(":")[2]
        assert not list(scratch.iterdir())
    with serving(tmp_path, "--port", port, patient=False) as server:
        assert _decided(server.url, secret, "v").status_code == 200


def test_a_worker_that_dies_is_replaced_and_counters_go_on(tmp_path: Path, secret: str) -> None:
    def counted() -> int:
        lines = httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text.splitlines()
        name = "deniable_new_decisions_total "
        return int(float(next(line for line in lines if line.startswith(name)).split()[1]))

    def started() -> int:
        return (tmp_path / "log.jsonl").read_text().count('"Started worker-')

    with serving(tmp_path, "--workers", "2") as server:
        eventually(lambda: started() == 2, "both run")
        for number in range(20):
            assert _decided(server.url, secret, f"v-{number}").status_code == 200
        eventually(lambda: counted() == 20, "20 are counted")
        first = _family(server)
        for process in first:
            process.kill()
        eventually(lambda: len(set(_family(server)) - set(first)) == 2, "both are replaced")
        for number in range(20, 40):
            visitor = f"v-{number}"
            eventually(lambda v=visitor: _answers(server.url, secret, v), visitor)  # type: ignore[misc]
        eventually(lambda: counted() == 40, "40 are counted")
        assert server.terminate() == 0


def _answers(url: str, secret: str, visitor: str) -> bool:
    try:
        return _decided(url, secret, visitor).status_code == 200
    except httpx.TransportError:
        return False

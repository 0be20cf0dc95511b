"""Real server processes: what was acknowledged survives SIGTERM, and workers agree on one file."""

from __future__ import annotations

import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.patience import PATIENCE
from tests.service.http.process import serving
from tests.service.http.site import EXPERIMENT

from deniable.client import Client, Decision, ServiceError
from deniable.demo.firm import HOLDOUT
from deniable.demo.month import DAYS, STEPS_A_DAY, VISITORS_A_STEP
from deniable.service.service import open as open_service

CLIENTS = 8
MOST_ROUNDS = 50


@pytest.fixture
def secret(tmp_path: Path) -> str:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(EXPERIMENT)
        return service.keys.create("test", ["admin"])[0]


def _writers(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(
            connection.execute("SELECT count(DISTINCT writer_id) FROM decisions").fetchone()[0]
        )


def _metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=PATIENCE).text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def test_sigterm_under_load_loses_nothing(tmp_path: Path, secret: str) -> None:
    acknowledged: dict[str, Decision] = {}
    rewarded: list[str] = []
    enough = threading.Event()

    def visit(client_number: int) -> None:
        with Client(server.url, secret, retries=0, timeout_seconds=PATIENCE) as client:
            for number in range(100_000):
                visitor = f"v-{client_number}-{number}"
                try:
                    decision = client.decide(EXPERIMENT, visitor, "ab"[number % 2])
                    acknowledged[visitor] = decision
                    client.reward(decision.id, 1)
                    rewarded.append(visitor)
                except ServiceError:
                    return  # the server has gone
                if len(acknowledged) > 300:
                    enough.set()

    with serving(tmp_path) as server, ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(visit, number) for number in range(CLIENTS)]
        assert enough.wait(PATIENCE)
        server.terminate()
        for future in running:
            future.result(PATIENCE)
    log = (tmp_path / "log.jsonl").read_text()
    assert "Granian shutdown completed" in log
    assert '"level":"error"' not in log, log
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        for visitor, decision in acknowledged.items():
            assert service.visitors.decisions(visitor) == {EXPERIMENT: decision}
        clicks = sum(cell.clicks for cell in service.experiments.counts(EXPERIMENT))
        # A reward may be stored whose answer the client did not wait for; never the other way.
        assert len(rewarded) <= clicks <= len(rewarded) + CLIENTS
        assert service.ledger.verify().sound


def test_two_workers_agree_on_one_sqlite_file(tmp_path: Path, secret: str) -> None:
    file = tmp_path / "store.db"
    rounds: list[list[str]] = []

    def visit(visitors: list[str]) -> list[Decision]:
        # A new connection for each visitor, so that both workers get some of them.
        fresh = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        with Client(server.url, secret, timeout_seconds=PATIENCE, transport=fresh) as client:
            return [client.decide(EXPERIMENT, visitor, "a") for visitor in visitors]

    with serving(tmp_path, "--workers", "2") as server:
        while _writers(file) < 2 and len(rounds) < MOST_ROUNDS:  # a busy machine may starve one
            rounds.append([f"v-{len(rounds)}-{number}" for number in range(100)])
            with ThreadPoolExecutor(CLIENTS) as pool:
                answers = list(pool.map(visit, [rounds[-1]] * CLIENTS))
            assert all(answer == answers[0] for answer in answers)
        counted = _metric(server.url, 'deniable_requests_total{route="decide",status="2xx"}')
        assert server.terminate() == 0
    visitors = sum(map(len, rounds))
    assert counted == CLIENTS * visitors
    with open_service(f"sqlite:///{file}") as service:
        checked = service.ledger.verify()
        assert (checked.problem, checked.decisions) == (None, visitors)
        assert len(checked.heads) == 3  # the commitments, and one chain for each worker


def test_decisions_go_on_while_pages_are_served_elsewhere(tmp_path: Path, secret: str) -> None:
    """Two services on one store: what one decides, the pages of the other show."""
    with (
        serving(tmp_path, "--only", "decide") as deciding,
        serving(tmp_path, "--only", "pages") as pages,
    ):
        with Client(deciding.url, secret, timeout_seconds=PATIENCE) as client:
            client.decide(EXPERIMENT, "v", "a")
        assert httpx.get(f"{deciding.url}/login", timeout=PATIENCE).status_code == 404
        assert httpx.get(f"{pages.url}/login", timeout=PATIENCE).status_code == 200
        headers = {"Authorization": f"Bearer {secret}"}
        counted = httpx.get(
            f"{pages.url}/v1/experiments/{EXPERIMENT}/counts", headers=headers, timeout=PATIENCE
        )
        # Figures are released with each table, so one visitor is not shown yet.
        assert counted.status_code == 200
        assert sum(cell["shows"] for cell in counted.json()) == 0


def test_the_demo_is_marked_and_starts_again(tmp_path: Path) -> None:
    secrets = []
    for _ in range(2):
        with serving(tmp_path, "--demo", "--demo-visitors", "500", lines=3) as server:
            assert "DEMO" in server.output[1]
            secrets.append(server.output[2].split()[-1])
            with Client(server.url, secrets[-1], timeout_seconds=PATIENCE) as client:
                assert client.decide("demo-homepage-hero", "me", "music").arm
            while (
                _metric(server.url, "deniable_new_decisions_total") < 2
            ):  # a simulated visitor came
                assert server.process.poll() is None
            server.process.send_signal(signal.SIGINT)  # Ctrl-C is how a person ends it
            assert server.process.wait(PATIENCE) == 0
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        assert len(service.experiments.all()) == 11
        live = [key for key in service.keys.all() if key.revoked_at is None]
        assert [key.label for key in live] == ["demo: admin"]
        assert service.keys.authenticate(secrets[0]) is None
        # The month once, up to 500 visitors in each of two runs, and "me".
        shows = sum(cell.shows for cell in service.experiments.counts("demo-homepage-hero"))
        month = (DAYS - 1) * STEPS_A_DAY * VISITORS_A_STEP * (1 - HOLDOUT - 0.03)
        assert month <= shows <= month + 1_000


def test_an_empty_store_says_how_to_sign_in(tmp_path: Path, secret: str) -> None:
    """With a command that works as printed; a store with a key says nothing."""
    (tmp_path / "new").mkdir()
    with serving(tmp_path / "new", lines=3) as server:
        assert server.output[1].startswith("Nobody can sign in yet.")
        words = shlex.split(server.output[2].replace("NAME", "ada"))
        made = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, check=True
        )
        link = next(word for word in made.stdout.split() if word.startswith(server.url))
        assert httpx.get(link, timeout=PATIENCE).status_code == 200
    with serving(tmp_path) as server:
        server.process.terminate()
        assert server.process.stdout is not None
        assert "sign in" not in server.process.stdout.read()

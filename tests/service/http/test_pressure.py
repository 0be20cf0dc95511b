"""Past the queue's limit everybody gets the same 503, and nothing is done for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import pytest
from tests.patience import PATIENCE, eventually
from tests.service.http.site import DECISIONS, EXPERIMENT, Site, running_site

from deniable.service.engine import Engine
from deniable.service.http.app import Options
from deniable.service.service import open as open_service


def test_a_full_queue_refuses_everybody_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, run = threading.Event(), Engine.run

    def held(engine: Engine, jobs: Any) -> None:
        go.wait(PATIENCE)
        run(engine, jobs)

    store = f"sqlite:///{tmp_path / 'store.db'}"
    with open_service(store, queue_limit=10) as service:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(EXPERIMENT)
        monkeypatch.setattr(Engine, "run", held)
        with running_site(service) as site:
            answers = site.client.wait(_all_at_once(site, go))
    taken = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert (len(taken), len(refused)) == (10, 30)
    assert {(a.content, tuple(a.headers.items())) for a in refused} == {
        (refused[0].content, tuple(refused[0].headers.items()))
    }
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].headers["content-type"] == "application/problem+json"
    with open_service(store) as service:
        shows = sum(cell.shows for cell in service.experiments.counts(EXPERIMENT))
        assert shows == 10


async def _all_at_once(site: Site, go: threading.Event) -> list[httpx.Response]:
    """40 requests while the writer is held; it goes on once all others have been refused."""
    transport = httpx.ASGITransport(site.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
        await client.post("/v1/rewards", json={}, headers=site.headers())  # the key is known now

        async def visit(number: int) -> httpx.Response:
            body = {"visitor": f"v-{number}", "segment": "ab"[number % 2]}
            return await client.post(DECISIONS, json=body, headers=site.headers())

        waiting = [asyncio.create_task(visit(number)) for number in range(40)]
        while sum(task.done() for task in waiting) < 30:
            await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*waiting)


def test_a_crowded_service_refuses_before_it_parses_a_body(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So who is refused cannot depend on a segment, nor on anything else in a request."""
    before = site.service.figures.decisions
    monkeypatch.setattr(site.service.writer, "crowded", lambda: True)
    headers = site.headers() | {"content-type": "application/json"}
    for path in (DECISIONS, f"{DECISIONS}/batch", "/ofrep/v1/evaluate/flags/checkout"):
        answer = site.client.post(path, content=b"{no document", headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert site.service.figures.decisions == before


def test_too_many_requests_in_flight_are_refused(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(Options(in_flight_limit=2))
    go, inside = threading.Event(), threading.Semaphore(0)

    def slow() -> list[Any]:
        inside.release()
        go.wait(PATIENCE)
        return []

    monkeypatch.setattr(site.service.experiments, "all", slow)
    with _in_background(site, 2) as done:
        inside.acquire()
        inside.acquire()
        assert site.client.get("/v1/firm", headers=site.headers()).status_code == 503
        assert site.decide("v-1")  # decide and reward have their own limit
        assert site.client.get("/healthz").status_code == 200  # and these have none
        eventually(lambda: site.client.get("/storez").status_code == 200, "it stores")
        go.set()
    assert done == [200, 200]
    assert site.client.get("/v1/firm", headers=site.headers()).status_code == 200


@contextmanager
def _in_background(site: Site, count: int) -> Any:
    """Requests of experiments in threads; the list of their statuses is complete after the block."""
    done: list[int] = []

    def ask() -> None:
        done.append(site.client.get("/v1/experiments", headers=site.headers()).status_code)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield done
    for thread in threads:
        thread.join(PATIENCE)


def test_a_store_that_fails_is_told_by_its_own_route(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the process stays ready: neutral arms are better than none."""
    monkeypatch.setattr(site.service, "ready", lambda: False)
    answer = site.client.get("/storez")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert site.client.get("/readyz").status_code == 200
    assert site.client.get("/healthz").status_code == 200


def test_a_store_that_cannot_be_checked_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when no more files can be opened."""

    def failing() -> bool:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(site.service, "ready", failing)
    assert site.client.get("/storez").status_code == 503


def test_health_routes_answer_head(site: Site) -> None:
    for path in ("/healthz", "/readyz", "/storez", "/metrics"):
        assert site.client.request("HEAD", path).status_code == 200, path


def test_deciding_and_pages_in_processes_of_their_own(make_site: Callable[..., Site]) -> None:
    """`--only decide` and `--only pages`: each refuses what the other answers."""
    bulk = {"context": {"targetingKey": "v"}}
    deciding = {
        DECISIONS: {"visitor": "v", "segment": "a"},
        "/v1/rewards": {"decision": "0" * 32, "value": 1},
        "/ofrep/v1/evaluate/flags/checkout": bulk,
        "/ofrep/v1/evaluate/flags": bulk,
    }
    for only, decides in (("decide", True), ("pages", False), ("everything", True)):
        site = make_site(Options(only=cast("Any", only)))
        for path, body in deciding.items():
            answer = site.client.post(path, json=body, headers=site.headers())
            assert (answer.status_code < 300) == decides, (only, path)
        answer = site.client.get("/v1/experiments", headers=site.headers())
        assert answer.status_code == (404 if only == "decide" else 200)
        if only == "decide":
            assert answer.json()["type"].endswith(":not-served-here")
        for path in ("/healthz", "/readyz", "/storez", "/metrics"):
            assert site.client.get(path).status_code == 200, (only, path)

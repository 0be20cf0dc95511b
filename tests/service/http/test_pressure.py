"""Past the queue's limit everybody gets the same 503, and nothing is done for them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def test_a_crowded_caller_is_refused_before_its_body_is_parsed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def crowded(_caller: object, size: int) -> bool:
        sizes.append(size)
        return True

    before = site.service.figures.decisions
    monkeypatch.setattr(site.service.writer, "crowded", crowded)
    visitors = [{"visitor": f"v-{number}", "segment": "a"} for number in range(7)]
    bodies = {DECISIONS: b"{no document", f"{DECISIONS}/batch": json.dumps({"visitors": visitors})}
    for path, body in bodies.items():
        headers = site.headers() | {"content-type": "application/json"}
        answer = site.client.post(path, content=body, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert sizes == [1, 7]
    assert site.service.figures.decisions == before


def test_who_is_refused_depends_on_no_segment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a request is the number of its visitors, whatever their segments are called."""
    sizes: list[int] = []

    def crowded(_caller: object, size: int) -> bool:
        sizes.append(size)
        return True

    monkeypatch.setattr(site.service.writer, "crowded", crowded)
    for segment in ("a", "{{ a }}", '{"visitor"'):
        one = {"visitor": "v", "segment": segment}
        ofrep = {"context": {"targetingKey": "v", "segment": segment}}
        for path, body in (
            (DECISIONS, one),
            ("/ofrep/v1/evaluate/flags/checkout", ofrep),
            (f"{DECISIONS}/batch", {"visitors": [one] * 3}),
        ):
            answer = site.client.post(path, json=body, headers=site.headers())
            assert answer.status_code == 503
    assert sizes == [1, 1, 3] * 3


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
        eventually(lambda: site.client.get("/readyz").status_code == 200, "it is ready")
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


def test_readiness_follows_the_store(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.service, "ready", lambda: False)
    answer = site.client.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert site.client.get("/healthz").status_code == 200


def test_readiness_that_cannot_be_told_is_not_ready(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as when no more files can be opened."""

    def failing() -> bool:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(site.service, "ready", failing)
    assert site.client.get("/readyz").status_code == 503

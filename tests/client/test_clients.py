from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from inspect import signature
from typing import Any

import httpx2 as httpx
import pytest
from tests.loops import run_apart
from tests.patience import PATIENCE

from deniable.client import AsyncClient, Client, Decision, ServiceError
from deniable.errors import InvalidArgumentError

ANSWER = {"decision": "0" * 32, "arm": "new"}
PROBLEM = {
    "type": "urn:problem-type:deniable:scope-missing",
    "title": "Forbidden",
    "status": 403,
    "detail": "no",
}
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would have been waited for; nothing is."""
    found: list[float] = []

    async def note(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(asyncio, "sleep", note)
    return found


def _decide(kind: str, handler: Handler, fallback: str | None = None, **options: float) -> Decision:
    """One decision through either client."""
    transport = httpx.MockTransport(handler)
    given: dict[str, Any] = {"transport": transport, "timeout_seconds": PATIENCE, **options}
    return _decide_at("http://service", kind, fallback, given)


def _decide_at(url: str, kind: str, fallback: str | None, options: dict[str, Any]) -> Decision:
    if kind == "sync":
        with Client(url, "dnb_x", **options) as client:
            return client.decide("checkout", "v", "a", fallback=fallback)

    async def decide() -> Decision:
        async with AsyncClient(url, "dnb_x", **options) as client:
            return await client.decide("checkout", "v", "a", fallback=fallback)

    return run_apart(decide())


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@BOTH
def test_a_call_is_what_the_service_expects(kind: str) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=ANSWER)

    assert _decide(kind, handler) == Decision("0" * 32, "new")
    assert seen[0].url.path == "/v1/experiments/checkout/decisions"
    assert seen[0].headers["authorization"] == "Bearer dnb_x"
    assert seen[0].content == b'{"visitor":"v","segment":"a"}'


@BOTH
def test_a_batch_keeps_its_order_both_ways(kind: str) -> None:
    """Each arm is named after its visitor, so that a decision for another one is noticed."""
    visitors = [("v-2", "a"), ("v-0", None), ("v-1", "b"), ("v-0", None)]
    seen: list[object] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content)))
        wanted = json.loads(request.content)["visitors"]
        found = [{"decision": f"id of {w['visitor']}", "arm": f"{w['visitor']}"} for w in wanted]
        return httpx.Response(200, json={"decisions": found})

    transport = httpx.MockTransport(handler)

    async def decided() -> list[Decision]:
        async with AsyncClient("http://service", "dnb_x", transport=transport) as client:
            return await client.decide_batch("checkout", iter(visitors))

    if kind == "sync":
        with Client("http://service", "dnb_x", transport=transport) as client:
            answers = client.decide_batch("checkout", iter(visitors))
    else:
        answers = run_apart(decided())
    assert answers == [Decision(f"id of {name}", name) for name, _ in visitors]
    body = {"visitors": [{"visitor": name, "segment": segment} for name, segment in visitors]}
    assert seen == [("/v1/experiments/checkout/decisions/batch", body)]


def test_rewards_carry_their_metric() -> None:
    seen: list[object] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content)))
        return httpx.Response(204)

    with Client("http://service", "dnb_x", transport=httpx.MockTransport(handler)) as client:
        client.reward("d-1", 12.5, "spent")
        client.reward_batch([("d-2", 1), ("d-3", 0, None), ("d-4", 2, "spent")])
    assert seen == [
        ("/v1/rewards", {"decision": "d-1", "value": 12.5, "metric": "spent"}),
        (
            "/v1/rewards/batch",
            {
                "rewards": [
                    {"decision": "d-2", "value": 1},
                    {"decision": "d-3", "value": 0},
                    {"decision": "d-4", "value": 2, "metric": "spent"},
                ]
            },
        ),
    ]


@BOTH
def test_busy_and_unreachable_services_are_asked_again(kind: str, waits: list[float]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        match len(waits):
            case 0:
                return httpx.Response(503, headers={"Retry-After": "1"})
            case 1:
                raise httpx.ConnectError("refused", request=request)
            case _:
                return httpx.Response(200, json=ANSWER)

    assert _decide(kind, handler).arm == "new"
    assert waits == [1.0, 0.1]


@BOTH
def test_it_gives_up_and_says_so(kind: str, waits: list[float]) -> None:
    with pytest.raises(ServiceError) as busy:
        _decide(kind, lambda _request: httpx.Response(503), retries=2)
    assert (busy.value.status, len(waits)) == (503, 2)

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ServiceError) as unreachable:
        _decide(kind, gone, retries=0)
    assert (unreachable.value.status, unreachable.value.code) == (None, "unreachable")


@BOTH
def test_refusals_are_not_repeated(kind: str, waits: list[float]) -> None:
    with pytest.raises(ServiceError, match="403 scope-missing: no") as refused:
        _decide(kind, lambda _request: httpx.Response(403, json=PROBLEM))
    assert (refused.value.status, refused.value.code, waits) == (403, "scope-missing", [])


@BOTH
def test_answers_that_are_no_json_are_told_too(kind: str) -> None:
    with pytest.raises(ServiceError, match="404"):
        _decide(kind, lambda _request: httpx.Response(404, text="<html>"))


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 503])
def test_a_refusal_gives_the_fallback(kind: str, status: int) -> None:
    found = _decide(kind, lambda _request: httpx.Response(status), "grey", retries=0)
    assert found == Decision("", "grey")


@BOTH
def test_a_pause_beyond_the_deadline_is_not_waited_for(kind: str) -> None:
    requests: list[httpx.Request] = []

    def busy(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(503, headers={"Retry-After": "5"})

    assert _decide(kind, busy, "grey", timeout_seconds=0.2).arm == "grey"
    assert len(requests) <= 1


@contextmanager
def _hanging(*, trickles: bool) -> Iterator[tuple[str, list[socket.socket]]]:
    """A service that does not end its answers, or only after a very long time; its connections."""
    ended = threading.Event()
    connections: list[socket.socket] = []
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (20 * PATIENCE)

    def serve(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.recv(65_536)
            if trickles:
                sock.sendall(head)
            while not ended.wait(0.05):
                if trickles:
                    sock.sendall(b" ")

    def accept() -> None:
        with suppress(OSError):
            while True:
                connections.append(listening.accept()[0])
                threading.Thread(target=serve, args=connections[-1:], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)


@BOTH
@pytest.mark.parametrize("trickles", [False, True])
def test_a_service_that_hangs_is_asked_once(kind: str, trickles: bool) -> None:
    """The deadline is that of the call, not of each attempt: nothing is left for another one."""
    with _hanging(trickles=trickles) as (url, connections):
        assert _decide_at(url, kind, "grey", {"timeout_seconds": 0.5}) == Decision("", "grey")
        assert len(connections) <= 1
        with pytest.raises(ServiceError) as unreachable:
            _decide_at(url, kind, None, {"timeout_seconds": 0.1})
        assert (unreachable.value.status, unreachable.value.code) == (None, "unreachable")


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_by_default_a_page_waits_for_one_second(client: type) -> None:
    assert signature(client).parameters["timeout_seconds"].default == 1.0


@BOTH
def test_a_fallback_has_no_reward(kind: str) -> None:
    seen: list[object] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(204)

    async def rewarded() -> None:
        async with AsyncClient("http://s", "k", transport=httpx.MockTransport(handler)) as client:
            await client.reward("", 1)
            await client.reward_batch([("", 1)])
            await client.reward_batch([("", 1), ("d-1", 1)])

    if kind == "sync":
        with Client("http://s", "k", transport=httpx.MockTransport(handler)) as client:
            client.reward("", 1)
            client.reward_batch([("", 1)])
            client.reward_batch([("", 1), ("d-1", 1)])
    else:
        run_apart(rewarded())
    assert seen == [{"rewards": [{"decision": "d-1", "value": 1}]}]


def test_a_batch_has_a_fallback_for_everybody() -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(401))
    with Client("http://s", "k", transport=transport) as client:
        found = client.decide_batch("e", iter([("v", None), ("w", "a")]), fallback="grey")
    assert found == [Decision("", "grey")] * 2


def test_the_address_and_the_time_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="url"):
        Client("127.0.0.1:8000", "dnb_x")
    with pytest.raises(InvalidArgumentError, match="timeout_seconds"):
        Client("http://127.0.0.1:8000", "dnb_x", timeout_seconds=0)


def test_an_experiment_cannot_escape_its_place_in_the_path() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path.decode())
        return httpx.Response(200, json=ANSWER)

    with Client("http://service", "dnb_x", transport=httpx.MockTransport(handler)) as client:
        client.decide("../../rewards?x=", "v")
    assert seen == ["/v1/experiments/..%2F..%2Frewards%3Fx%3D/decisions"]

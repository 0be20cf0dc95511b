"""A POST that arrives whole is answered without ASGI, with the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import orjson
import pytest
import uvicorn
from tests.service.http.site import DECISIONS, EXPERIMENT
from uvicorn.server import ServerState

from deniable.errors import StoreUnavailableError
from deniable.service.http.app import Application, create_app
from deniable.service.http.connections import LimitedProtocol, limited
from deniable.service.http.messages import Receive, Scope, Send
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.service.writer import AsyncDecisions
from deniable.storage.records import SCRATCH_PREFIX

T = TypeVar("T")


class Wire(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.written = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.written.set()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self.written.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Site:
    """An application, and how many requests reached it by ASGI."""

    def __init__(self, service: Deniable) -> None:
        self.secret = service.keys.create("test", ["decide", "reward"])[0]
        self.by_asgi = 0
        self._app: Application = create_app(service)
        self._app._decide.connect(AsyncDecisions(service.writer, decide_seconds=60.0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.by_asgi += 1
        await self._app(scope, receive, send)

    def close(self) -> None:
        self._app._authenticator.close()

    def connected(self) -> tuple[LimitedProtocol, Wire]:
        protocol = limited(10.0, 30.0, 100, self._app.answer_at_once)
        config = uvicorn.Config(self, http=protocol, ws="none", lifespan="off", log_config=None)
        config.load()
        connection, wire = protocol(config, ServerState(), {}), Wire()
        connection.connection_made(wire)
        return connection, wire

    async def ask(self, *parts: bytes) -> bytes:
        """All that comes for these bytes on one connection, without the date."""
        connection, wire = self.connected()
        wanted = b"".join(parts).count(b" HTTP/1.")
        for part in parts:
            connection.data_received(part)
            await asyncio.sleep(0)
        while wire.sent.count(b"HTTP/1.1 ") < wanted:
            wire.written.clear()
            await asyncio.wait_for(wire.written.wait(), 60)
        lines = wire.sent.split(b"\r\n")
        return b"\r\n".join(line for line in lines if not line.startswith(b"date: "))

    async def remember(self) -> None:
        """Have the API key remembered, and the experiment known."""
        await self.ask(self.post(DECISIONS, {"visitor": "first", "segment": "a"}))
        self.by_asgi = 0

    def post(
        self,
        path: str,
        document: object,
        *headers: str,
        secret: str | None = None,
        version: str = "1.1",
    ) -> bytes:
        body = document if isinstance(document, bytes) else orjson.dumps(document)
        lines = (
            f"POST {path} HTTP/{version}",
            "Host: test",
            f"Authorization: Bearer {secret or self.secret}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *headers,
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
def service() -> Iterator[Deniable]:
    with open_service("memory:") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(
            EXPERIMENT, arms=["old", "newer"], segments=["a", "b"], budget=1.0
        )
        service.experiments.start(EXPERIMENT)
        yield service


def run(service: Deniable, work: Callable[[Site], Awaitable[T]]) -> T:
    async def whole() -> T:
        site = Site(service)
        await site.remember()
        try:
            return await work(site)
        finally:
            site.close()

    # In a thread of its own: where a browser is open, this one has a loop that runs already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(whole())).result()


FLAG = f"/ofrep/v1/evaluate/flags/{EXPERIMENT}"
ASKED = {
    "a decision": (DECISIONS, {"visitor": "ann", "segment": "b"}),
    "a flag": (FLAG, {"context": {"targetingKey": "ann", "segment": "b"}}),
    "a reward": ("/v1/rewards", {"decision": "0" * 32, "value": 1}),
    "a batch": (
        f"{DECISIONS}/batch",
        {"visitors": [{"visitor": "ann", "segment": "b"}, {"visitor": "bob", "segment": None}]},
    ),
    "a batch without segments": (f"{DECISIONS}/batch", {"visitors": [{"visitor": "ann"}]}),
    "a batch of rewards": (
        "/v1/rewards/batch",
        {"rewards": [{"decision": "0" * 32, "value": 1}]},
    ),
    "an experiment that is not there": (
        "/v1/experiments/other/decisions",
        {"visitor": "ann", "segment": "b"},
    ),
    "a flag that is not there": (
        "/ofrep/v1/evaluate/flags/other",
        {"context": {"targetingKey": "a"}},
    ),
}


@pytest.mark.parametrize(("path", "document"), ASKED.values(), ids=ASKED)
def test_both_ways_give_the_same_bytes(service: Deniable, path: str, document: object) -> None:
    async def asked(site: Site) -> tuple[bytes, int, bytes, int]:
        request = site.post(path, document)
        at_once = await site.ask(request)
        before = site.by_asgi
        usual = await site.ask(request[:-3], request[-3:])
        return at_once, before, usual, site.by_asgi

    at_once, before, usual, after = run(service, asked)
    assert (before, after) == (0, 1)
    assert at_once == usual
    assert at_once.startswith(b"HTTP/1.1 ")


USUAL: dict[str, Callable[[Site], bytes]] = {
    "a batch with a stranger's member": lambda site: site.post(
        f"{DECISIONS}/batch", {"visitors": [{"visitor": "x", "segment": "a", "country": "b"}]}
    ),
    "no JSON": lambda site: site.post(DECISIONS, b"{"),
    "an unknown member": lambda site: site.post(DECISIONS, {"visitor": "x", "arm": "old"}),
    "an unknown key": lambda site: site.post(DECISIONS, {"visitor": "x"}, secret="dnb_wrong"),
    "two authorizations": lambda site: site.post(
        DECISIONS, {"visitor": "x"}, f"Authorization: Bearer {site.secret}"
    ),
    "a query": lambda site: site.post(f"{DECISIONS}?a=b", {"visitor": "x"}),
    "an escaped path": lambda site: site.post(DECISIONS.replace("d", "%64"), {"visitor": "x"}),
    "the last request": lambda site: site.post(DECISIONS, {"visitor": "x"}, "Connection: close"),
    "HTTP 1.0": lambda site: site.post(DECISIONS, {"visitor": "x"}, version="1.0"),
    "a scratch copy": lambda site: site.post(
        f"/v1/experiments/{SCRATCH_PREFIX}0123456789abcdef/decisions", {"visitor": "x"}
    ),
    "another route": lambda site: site.post("/v1/plan", {}),
    "another method": lambda site: site.post(DECISIONS, {"visitor": "x"}).replace(b"POST", b"PUT"),
}


@pytest.mark.parametrize("request_of", USUAL.values(), ids=USUAL)
def test_what_is_not_simple_goes_the_usual_way(
    service: Deniable, request_of: Callable[[Site], bytes]
) -> None:
    """And is answered as if it had come in two parts."""

    async def asked(site: Site) -> tuple[bytes, bytes, int]:
        request = request_of(site)
        known = await site.ask(request)
        return known, await site.ask(request[:-1], request[-1:]), site.by_asgi

    whole, parts, by_asgi = run(service, asked)
    assert by_asgi == 2
    assert whole == parts


def test_a_caller_without_the_scope_is_refused(service: Deniable) -> None:
    """However well the API key is remembered."""
    secret = service.keys.create("rewards alone", ["reward"])[0]

    async def asked(site: Site) -> list[bytes]:
        request = site.post(DECISIONS, {"visitor": "ann", "segment": "a"}, secret=secret)
        return [(await site.ask(request))[:12] for _ in range(2)]

    assert run(service, asked) == [b"HTTP/1.1 403"] * 2


def test_answers_come_in_the_order_of_the_requests(service: Deniable) -> None:
    """Requests that are sent before an answer has come: all but the first go the usual way."""

    async def asked(site: Site) -> tuple[bytes, list[bytes], int]:
        visitors = [site.post(DECISIONS, {"visitor": f"v{i}", "segment": "a"}) for i in range(5)]
        together = await site.ask(b"".join(visitors))
        by_asgi = site.by_asgi
        return together, [await site.ask(one) for one in visitors], by_asgi

    together, alone, by_asgi = run(service, asked)
    assert together == b"".join(alone)
    assert by_asgi == 4


def test_trailers_are_no_headers(service: Deniable) -> None:
    async def asked(site: Site) -> bytes:
        body = orjson.dumps({"visitor": "ann", "segment": "a"})
        return await site.ask(
            f"POST {DECISIONS} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            + b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n"
            % (len(body), body, site.secret.encode())
        )

    assert run(service, asked).startswith(b"HTTP/1.1 401")


def test_a_failure_is_told_as_usual(service: Deniable, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes only after the request was accepted."""

    async def asked(site: Site) -> tuple[bytes, bytes, int]:
        def fail(*_: object) -> asyncio.Future[object]:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(
                future.set_exception, StoreUnavailableError("the store is gone")
            )
            return future

        monkeypatch.setattr(site._app._decide._service, "decide", fail)
        request = site.post(DECISIONS, {"visitor": "ann", "segment": "a"})
        return await site.ask(request), await site.ask(request[:-1], request[-1:]), site.by_asgi

    at_once, usual, by_asgi = run(service, asked)
    assert by_asgi == 1
    assert at_once.startswith(b"HTTP/1.1 503")
    assert at_once == usual


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (DECISIONS, {"visitor": "ann", "segment": "a"}),
        (f"{DECISIONS}/batch", {"visitors": [{"visitor": "ann", "segment": "a"}]}),
    ],
    ids=["one", "batch"],
)
def test_overload_is_told_at_once_and_counted_once(
    service: Deniable, monkeypatch: pytest.MonkeyPatch, path: str, document: object
) -> None:
    crowded: list[int] = []

    async def asked(site: Site) -> tuple[bytes, int, bytes]:
        def full(_caller: object, size: int) -> bool:
            crowded.append(size)
            return True

        monkeypatch.setattr(site._app._decide._service.writer, "crowded", full)
        request = site.post(path, document)
        at_once = await site.ask(request)
        assert crowded == [1]
        return at_once, site.by_asgi, await site.ask(request[:-1], request[-1:])

    at_once, by_asgi, usual = run(service, asked)
    assert by_asgi == 0
    assert at_once.startswith((b"HTTP/1.1 503", b"HTTP/1.1 429"))
    assert at_once == usual


def test_a_fault_of_the_service_is_told_as_usual(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(site: Site) -> bytes:
        def fail(*_: object) -> None:
            raise RuntimeError("never shown")

        monkeypatch.setattr(site._app._decide._service, "decide", fail)
        return await site.ask(site.post(DECISIONS, {"visitor": "ann", "segment": "a"}))

    answer = run(service, asked)
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"never shown" not in answer


def test_nothing_is_sent_to_a_client_that_went_away(service: Deniable) -> None:
    async def asked(site: Site) -> bytes:
        connection, wire = site.connected()
        connection.data_received(site.post(DECISIONS, {"visitor": "ann", "segment": "a"}))
        connection.connection_lost(ConnectionResetError())
        await site.ask(site.post(DECISIONS, {"visitor": "bob", "segment": "a"}))
        return wire.sent

    assert run(service, asked) == b""


def test_the_last_answer_before_the_end_closes_the_connection(service: Deniable) -> None:
    async def asked(site: Site) -> tuple[bytes, bool]:
        connection, wire = site.connected()
        connection.data_received(site.post(DECISIONS, {"visitor": "ann", "segment": "a"}))
        connection.shutdown()
        await asyncio.wait_for(wire.written.wait(), 60)
        return wire.sent, wire.closed

    sent, closed = run(service, asked)
    assert closed
    assert b"connection: close\r\n" in sent

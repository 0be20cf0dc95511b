"""Load on a decision service: requests for ever new visitors, sent when they are due.

A closed loop sends less when the service is slow, and so hides what it wants to measure. Here a
request's latency counts from the moment at which it was to be sent.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.service import EXPERIMENT

CONNECTIONS = 400
"""Of each caller; a request that finds all of them waiting is not sent, and counts as such."""


@dataclass
class Told:
    """What became of the requests of one caller."""

    served: list[float] = field(default_factory=list)  # latencies, seconds
    refused: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # how late requests were sent
    failures: list[int] = field(default_factory=list)  # statuses; 0: the connection was lost
    unsent: int = 0

    @property
    def failed(self) -> int:
        """Requests that got another answer, or none."""
        return len(self.failures)

    @property
    def offered(self) -> int:
        """All requests that were to be sent."""
        return len(self.served) + len(self.refused) + self.failed + self.unsent


class Connection(asyncio.Protocol):
    """One kept-alive connection that sends prepared requests and reads the status of the answers."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[int] | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def connection_lost(self, _error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            int(line[15:])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        if len(body) >= length and self._answer is not None:
            self._buffer = b""
            self._answer.set_result(int(head[9:12]))

    async def ask(self, request: bytes) -> int:
        """The status of the answer; 0 where the connection was lost."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer


class Caller:
    """One API key with its connections and requests for ever new visitors."""

    def __init__(self, url: str, secret: str, size: int, run: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        path = f"/v1/experiments/{EXPERIMENT}/decisions" + ("/batch" if size > 1 else "")
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        one = f'{{"visitor":"{run}-%09d","segment":"a"}}'
        self._body = one if size == 1 else '{"visitors":[' + ",".join([one] * size) + "]}"
        self.size = size
        self._next = 0
        self._idle: list[Connection] = []
        self._opened = 0

    def request(self) -> bytes:
        """The next one."""
        names = tuple(range(self._next, self._next + self.size))
        self._next += self.size
        body = (self._body % names).encode()
        return self._head + str(len(body)).encode() + b"\r\n\r\n" + body

    async def send(self, since: float, told: Told) -> None:
        """Send one request that was due at this time, if any connection is free or can be opened."""
        while self._idle and not self._idle[-1].open:
            self._idle.pop()
            self._opened -= 1
        if self._idle:
            connection = self._idle.pop()
        elif self._opened < CONNECTIONS:
            self._opened += 1
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, self._host, self._port)
        else:
            told.unsent += 1
            return
        told.late.append(time.perf_counter() - since)
        status = await connection.ask(self.request())
        took = time.perf_counter() - since
        if status == 200:
            told.served.append(took)
        elif status in (429, 503):
            told.refused.append(took)
        else:
            told.failures.append(status)
        self._idle.append(connection)

"""Connection limits that uvicorn lacks: header size, slow requests, idle connections.

uvicorn's parser is fast, but it stores everything that a client sends as headers and waits
indefinitely for the rest of a request. This protocol counts the bytes outside bodies, and the
server calls `expire` once a second to enforce timeouts. A request that arrives whole costs only one
counter.

A POST that arrives whole is first offered to the application directly (`answer_at_once`). This
skips the ASGI task, messages and callbacks, which together take as long as a decision. If the
application declines, the request is handled through ASGI as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deniable._types import JsonObject
from deniable.service.http.messages import MEDIA_TYPE, Answer, Problem, Scope

HEADER_LIMIT = 16_384
"""Maximum size of the request line and headers, in bytes."""

FRAMING_LIMIT = 65_536
"""Maximum size of everything outside the body, including chunk sizes and trailers, in bytes."""


AnswerAtOnce: TypeAlias = Callable[[str, Scope, bytes, Callable[[Answer], None]], bool]
"""See `Application.answer_at_once`."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits. Use `limited` to create a configured subclass.

    Attributes:
        request_seconds: how long a request may take to arrive.
        idle_seconds: how long a connection may stay idle, or a response stay unread.
        connection_limit: maximum connections per process; beyond it, idle ones are closed.
        answer_at_once: called with every POST that arrives whole; None disables this path.
    """

    request_seconds = 10.0
    idle_seconds = 30.0
    connection_limit = 4_000
    answer_at_once: AnswerAtOnce | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._requests = 0
        self._arriving = False
        self._headers_done = False
        self._body: bytes | None = None  # body of a request that may bypass ASGI
        self._framing_bytes = 0
        self._refusal: Problem | None = None
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        if len(self.connections) > self.connection_limit:
            others = (known for known in self.connections if known is not self)
            spare = next((known for known in others if not known.answering), self)  # type: ignore[union-attr]
            spare.transport.abort()

    @property
    def answering(self) -> bool:
        """Whether a complete request is currently being answered."""
        answered: bool = getattr(self.cycle, "response_complete", True)  # None before a request
        return not (answered or self._arriving)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._body is not None:  # the request is still incomplete
            self._pass_to_asgi()
        if self._framing_bytes > HEADER_LIMIT and self._refusal is None:
            self._refusal = self._limit_problem()
        if self._refusal is not None:
            self._refuse(self._refusal)

    def _limit_problem(self) -> Problem | None:
        """Return the problem with an incomplete request that exceeds a limit, if any."""
        if self._arriving and not self._headers_done:
            return _headers_too_large()
        if self._framing_bytes <= FRAMING_LIMIT:
            return None
        if self._arriving:
            return Problem(400, "malformed", "the request has too much data outside its body")
        return Problem(
            400, "malformed", "no request was sent, only empty lines"
        )  # nothing but empty lines so far

    def on_message_begin(self) -> None:
        """See HttpToolsProtocol."""
        self._requests += 1
        self._arriving, self._headers_done = True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See HttpToolsProtocol."""
        # If all bytes so far are within the limit, the headers are too.
        if self._framing_bytes > HEADER_LIMIT:
            sizes = (len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + sum(sizes) > HEADER_LIMIT:
                self._refusal = _headers_too_large()
        if self._refusal is None:
            self._headers_done = True
            if self._may_be_answered_at_once():
                self._body = b""
            else:
                super().on_headers_complete()
            self.headers = []  # trailers must not be added to the headers

    def _may_be_answered_at_once(self) -> bool:
        parser, previous = self.parser, self.cycle
        return (
            self.answer_at_once is not None
            and getattr(previous, "response_complete", True)  # None before a request
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.flow.write_paused
        )

    def _pass_to_asgi(self) -> None:
        """Pass a request that was held back on to ASGI."""
        body, self._body = self._body, None
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def on_body(self, body: bytes) -> None:
        """See HttpToolsProtocol."""
        self._framing_bytes -= len(body)
        if self._body is not None:
            self._body += body
        elif self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """See HttpToolsProtocol."""
        self._arriving, self._framing_bytes = False, 0
        if self._body is not None and self.answer_at_once is not None:
            answer = _DirectResponse(self)
            path, scope = self.url.decode("latin-1"), cast(Scope, self.scope)
            if self.answer_at_once(path, scope, self._body, answer.reply):
                self._body, self.cycle = None, answer  # type: ignore[assignment]
                return
            self._pass_to_asgi()
        if self._refusal is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """See HttpToolsProtocol. Starts no keep-alive timer, because `expire` covers it."""
        if self.pipeline:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """Close the connection, after the current response if there is one. Drops a partial request."""
        if self._arriving:
            self.transport.close()
        else:
            super().shutdown()

    def expire(self, now: float) -> None:
        """Close the connection if it has made no progress for too long. Called about once a second."""
        if self.transport.is_closing():
            return
        answering = self.answering
        unsent = self.transport.get_write_buffer_size()
        seen = (self._requests, self._arriving, answering, unsent)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        elif self._arriving:
            if now - self._seen_at > self.request_seconds:
                self._refuse(Problem(408, "too-slow", "the request did not arrive in time"))
        elif now - self._seen_at > self.idle_seconds and (unsent or not answering):
            self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Send the problem unless a response has started, then close the connection."""
        cycle = self.cycle if self._headers_done else None
        if not (self.pipeline or (cycle and cycle.response_started)):
            body = problem.body()
            head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            head %= (MEDIA_TYPE.encode(), len(body))
            self.transport.write(STATUS_LINE[problem.status] + head + body)
        if cycle:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


class _DirectResponse:
    """Stand-in for uvicorn's request cycle when a response is sent without an ASGI task."""

    __slots__ = ("_protocol", "disconnected", "keep_alive", "response_complete", "response_started")

    def __init__(self, protocol: LimitedProtocol) -> None:
        self._protocol = protocol
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False

    @property
    def message_event(self) -> _DirectResponse:
        """Event that nothing waits for: the client's later messages are irrelevant."""
        return self

    def set(self) -> None:
        """See `message_event`."""

    def reply(self, answer: Answer) -> None:
        """Send the response, then continue with the connection's next request."""
        protocol = self._protocol
        self.response_started = self.response_complete = True
        if self.disconnected or protocol.transport.is_closing():
            return
        parts = [STATUS_LINE[answer.status]]
        for name, value in (*protocol.server_state.default_headers, *answer.headers):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", answer.body)
        protocol.transport.write(b"".join(parts))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()


def limited(
    request_seconds: float,
    idle_seconds: float,
    connection_limit: int,
    answer_at_once: AnswerAtOnce | None = None,
) -> type[LimitedProtocol]:
    """Return a protocol class with these limits."""
    limits: JsonObject = {
        "request_seconds": request_seconds,
        "idle_seconds": idle_seconds,
        "connection_limit": connection_limit,
        # `staticmethod`, so that the protocol is not passed as `self`.
        "answer_at_once": None if answer_at_once is None else staticmethod(answer_at_once),
    }
    return type("LimitedProtocol", (LimitedProtocol,), limits)


def _headers_too_large() -> Problem:
    return Problem(431, "headers-too-large", f"line and headers may have {HEADER_LIMIT} bytes")

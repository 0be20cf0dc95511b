"""OpenTelemetry traces: one span for each request, with nothing in it about anybody.

A span has the method, the route's template, the status and its times. It has no path, query, header,
body or message of an error, because those can hold a visitor, a segment or an experiment. Of the
caller's headers only the ids in `traceparent` are taken: `tracestate` and `baggage` may carry anything.

The provider is the application's own. What else in the process is instrumented cannot add to its spans,
and FastAPI's own telemetry, which exports paths and messages of errors, is off.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from deniable._extras import is_installed, require
from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.service.http.app import Application
from deniable.service.http.messages import Message, Receive, Scope, Send, header

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}
)
FLUSH_SECONDS = 2.0
"""How long ending waits for the last spans to be sent."""


def otlp_provider() -> TracerProvider:
    """Spans go where the standard variables say (`OTEL_EXPORTER_OTLP_ENDPOINT` and others)."""
    require("opentelemetry.sdk.trace", extra="telemetry")
    if not is_installed("opentelemetry.exporter.otlp.proto.http"):  # large, and there are others
        allowed = "an exporter: pip install opentelemetry-exporter-otlp-proto-http"
        raise InvalidArgumentError("traces", True, allowed)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {"service.name": "deniable", "service.version": version("deniable")}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traced:
    """An application whose requests are traced.

    Args:
        app: the application.
        provider: where the spans go; flushed when the application ends.
    """

    def __init__(self, app: Application, provider: TracerProvider) -> None:
        self._app = app
        self._provider = provider
        self._tracer = provider.get_tracer("deniable")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, self._ending(send))
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode

        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # The name comes at the end: before that, only the path is known.
        span = self._tracer.start_span("request", context=_parent(scope), kind=SpanKind.SERVER)
        try:
            await self._app(scope, receive, noted)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "_OTHER"
            route = self._app.template(scope)
            span.update_name(f"{method} {route}")
            span.set_attributes(
                {"http.request.method": method, "http.route": route}
                | ({"http.response.status_code": status} if status else {})
            )
            if status >= 500 or not status:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def _ending(self, send: Send) -> Send:
        """`send` of the lifespan: before it says that everything has ended, the spans are sent."""

        async def ended(message: Message) -> None:
            if message["type"] == "lifespan.shutdown.complete":
                loop = asyncio.get_running_loop()
                flushed = loop.create_future()

                def flush() -> None:
                    self._provider.shutdown()
                    with suppress(RuntimeError):  # nobody waits any more
                        loop.call_soon_threadsafe(flushed.set_result, None)

                # A thread that nothing waits for: a collector may not answer.
                threading.Thread(target=flush, name="deniable-spans", daemon=True).start()
                await asyncio.wait([flushed], timeout=FLUSH_SECONDS)
            await send(message)

        return ended


def _parent(scope: Scope) -> Context:
    """The caller's span, if it named one; its ids alone."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = header(scope, b"traceparent")
    carrier: JsonObject = {} if given is None else {"traceparent": given.decode("latin-1")}
    return TraceContextTextMapPropagator().extract(carrier, Context())

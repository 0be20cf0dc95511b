"""OpenTelemetry traces: one span per request, with no personal data.

A span contains the method, the route template, the status and its times. It has no path, query,
header, body or error message, because those could contain a visitor, a segment or an experiment.
Only the ids in the `traceparent` header are used: `tracestate` and `baggage` may carry anything.

The application has its own tracer provider, so other instrumentation in the process cannot add to
its spans. FastAPI's own telemetry, which exports paths and error messages, is off.
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
"""How long shutdown waits for the last spans to be sent."""


def otlp_provider() -> TracerProvider:
    """Return a provider that exports as configured by the standard `OTEL_EXPORTER_OTLP_*` variables."""
    require("opentelemetry.sdk.trace", extra="telemetry")
    # Not a dependency: it is large, and there are alternatives.
    if not is_installed("opentelemetry.exporter.otlp.proto.http"):
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
    """Wraps an application and traces its requests.

    Args:
        app: the application.
        provider: receives the spans; flushed at shutdown.
    """

    def __init__(self, app: Application, provider: TracerProvider) -> None:
        self._app = app
        self._provider = provider
        self._tracer = provider.get_tracer("deniable")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point."""
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

        # The name is set at the end, because only the path is known until then.
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
        """Wrap the lifespan's `send` to flush the spans before it reports shutdown."""

        async def ended(message: Message) -> None:
            if message["type"] == "lifespan.shutdown.complete":
                loop = asyncio.get_running_loop()
                flushed = loop.create_future()

                def flush() -> None:
                    self._provider.shutdown()
                    with suppress(RuntimeError):  # the event loop is closed
                        loop.call_soon_threadsafe(flushed.set_result, None)

                # A daemon thread, because the collector may not respond.
                threading.Thread(target=flush, name="deniable-spans", daemon=True).start()
                await asyncio.wait([flushed], timeout=FLUSH_SECONDS)
            await send(message)

        return ended


def _parent(scope: Scope) -> Context:
    """Return the caller's span, if it sent one, with its ids only."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = header(scope, b"traceparent")
    carrier: JsonObject = {} if given is None else {"traceparent": given.decode("latin-1")}
    return TraceContextTextMapPropagator().extract(carrier, Context())

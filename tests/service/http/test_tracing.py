"""Traces tell how long requests took, and nothing about visitors, segments, arms or experiments.

Every attribute, event, link, name and resource of every span is looked at; planted faults show that it
would be noticed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.service.http.site import EXPERIMENT, AppClient

pytest.importorskip("opentelemetry.sdk", reason="TRACES NOT TESTED: opentelemetry-sdk is missing")

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deniable.cli.serve import application
from deniable.errors import InvalidArgumentError
from deniable.service.http import tracing
from deniable.service.http.app import Options, create_app
from deniable.service.http.server import options_of
from deniable.service.http.tracing import Traced
from deniable.service.service import Deniable
from deniable.service.settings import Settings

ROOT = Path(__file__).parents[3]
VISITOR, SEGMENT = "visitor-4711", "expecting-twins"
ALLOWED = {"http.request.method", "http.route", "http.response.status_code"}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(service: Deniable, exporter: InMemorySpanExporter) -> Iterator[tuple[AppClient, str]]:
    provider = TracerProvider(resource=Resource.create({"service.name": "deniable"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    secret, _ = service.keys.create("web", ["admin"])
    app = create_app(service, Options(log_requests="none"))
    client = AppClient(Traced(app, provider))
    yield client, secret
    client.close()


def busy(client: AppClient, secret: str) -> list[str]:
    """Every kind of request, with the secret things wherever they can be; returns what came back."""
    headers = {
        "Authorization": f"Bearer {secret}",
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "tracestate": f"vendor={VISITOR}",
        "baggage": f"segment={SEGMENT}",
        "User-Agent": f"browser of {VISITOR}",
    }
    known = {"visitor": VISITOR, "segment": SEGMENT}
    context = {"context": {"targetingKey": VISITOR, "segment": SEGMENT}}
    decisions = f"/v1/experiments/{EXPERIMENT}/decisions"
    found = client.post(decisions, json=known, headers=headers).json()
    answers = [
        client.post(f"{decisions}/batch", json={"visitors": [known]}, headers=headers),
        client.post(f"/ofrep/v1/evaluate/flags/{EXPERIMENT}", json=context, headers=headers),
        client.post("/ofrep/v1/evaluate/flags", json=context, headers=headers),
        client.post(
            "/v1/rewards", json={"decision": found["decision"], "value": 1}, headers=headers
        ),
        client.post(decisions, json={"visitor": VISITOR, "segment": [SEGMENT]}, headers=headers),
        client.post(decisions, content=SEGMENT, headers=headers),
        client.get(f"/{VISITOR}/{SEGMENT}?segment={SEGMENT}", headers=headers),
        client.get(f"/v1/experiments/{SEGMENT}", headers=headers),
        client.get(f"/v1/experiments/{EXPERIMENT}/counts?{VISITOR}={SEGMENT}", headers=headers),
        client.post("/v1/erasures", json={"visitors": [VISITOR]}, headers=headers),
        client.request(SEGMENT.upper().replace("-", ""), "/v1/firm", headers=headers),
        client.get("/healthz"),
    ]
    return [found["decision"], *(str(answer.status_code) for answer in answers)]


def told(spans: tuple[ReadableSpan, ...], *secret: str) -> list[str]:
    """Everything in spans that should not be there."""
    found = []
    for span in spans:
        everything = span.to_json().lower()
        found += [
            word for word in (VISITOR, SEGMENT, SEGMENT.replace("-", "")) if word in everything
        ]
        found += [word for word in (EXPERIMENT, *secret) if word.lower() in everything]
        found += sorted(set(span.attributes or {}) - ALLOWED)
        found += [event.name for event in span.events]
        found += [str(link.context) for link in span.links]
        found += [span.status.description] if span.status.description else []
        assert span.context is not None
        found += list(span.context.trace_state)
    return found


def test_no_attribute_tells_anything(
    traced: tuple[AppClient, str], exporter: InMemorySpanExporter, service: Deniable
) -> None:
    client, secret = traced
    arms = [arm.key for arm in service.experiments.get(EXPERIMENT).arms]
    decision, *statuses = busy(client, secret)
    spans = exporter.get_finished_spans()
    assert len(spans) == len(statuses) + 1
    assert told(spans, decision, secret, *(f'"{arm}"' for arm in arms)) == []
    names = {span.name for span in spans}
    assert {
        "POST /v1/experiments/{key}/decisions",
        "POST /v1/rewards",
        "GET /v1/experiments/{key}",
        "GET unknown",
    } <= names
    assert any(name.startswith("_OTHER ") for name in names)
    assert [span.attributes["http.response.status_code"] for span in spans if span.attributes] == [
        200,
        *map(int, statuses),
    ]
    linked = {format(span.context.trace_id, "032x") for span in spans[:-1] if span.context}
    assert linked == {TRACE}


def test_a_failure_tells_no_message(
    traced: tuple[AppClient, str],
    exporter: InMemorySpanExporter,
    service: Deniable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Any:
        raise RuntimeError(f"no row for {VISITOR} of {SEGMENT}")

    monkeypatch.setattr(service.firm, "current", broken)
    client, secret = traced
    answer = client.get("/v1/firm", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 500
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok
    assert told((span,)) == []


def test_the_last_spans_are_sent_before_the_end(
    service: Deniable, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", PATIENCE)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
    client = AppClient(Traced(create_app(service, Options(log_requests="none")), provider))
    client.get("/healthz")
    assert exporter.get_finished_spans() == ()
    client.close()
    assert [span.name for span in exporter.get_finished_spans()] == ["GET /healthz"]


def _with_path(self: Any, scope: Any) -> str:
    return str(scope["path"])


def _with_state(scope: Any) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name.decode(): value.decode() for name, value in scope["headers"]}
    return TraceContextTextMapPropagator().extract(carrier, Context())


@pytest.mark.parametrize("fault", ["path", "tracestate", "method"])
def test_planted_faults_are_noticed(
    traced: tuple[AppClient, str],
    exporter: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    client, secret = traced
    if fault == "path":
        monkeypatch.setattr("deniable.service.http.app.Application.template", _with_path)
    elif fault == "tracestate":
        monkeypatch.setattr(tracing, "_parent", _with_state)
    else:
        monkeypatch.setattr(tracing, "METHODS", {"GET", "POST", "EXPECTINGTWINS"})
    busy(client, secret)
    assert told(exporter.get_finished_spans()) != []


def test_an_attribute_or_an_event_more_is_noticed(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("x").start_as_current_span("GET /healthz") as span:
        span.set_attribute("feature_flag.result.variant", "green")
        span.add_event("exception")
    assert told(exporter.get_finished_spans()) == ["feature_flag.result.variant", "exception"]


OTHERS = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
found = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(found))
trace.set_tracer_provider(provider)
from tests.service.http.site import AppClient
from deniable.service.http.app import create_app
from deniable.service.service import open as open_service
with open_service("memory:") as service:
    client = AppClient(create_app(service))
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/experiments/expecting-twins").status_code == 401
    client.close()
print(json.dumps([span.name for span in found.get_finished_spans()]))
"""


def test_the_frameworks_own_telemetry_is_off() -> None:
    """A provider of the whole process gets nothing: FastAPI would tell paths and messages."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "FASTAPI_OTEL_AUTO_CONFIGURE": "true"}
    done = subprocess.run(
        [sys.executable, "-c", OTHERS],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_without_an_exporter_serve_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "is_installed", lambda _module: False)
    settings = Settings(store="memory:", traces=True)
    with pytest.raises(InvalidArgumentError, match="opentelemetry-exporter-otlp-proto-http"):
        application(settings, options_of(settings))

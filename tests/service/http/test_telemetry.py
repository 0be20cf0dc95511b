"""The web framework's own telemetry, which exports paths and error messages, stays off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

TRACED_PROCESS = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from tests.service.http.site import AppClient
from deniable.service.http.app import create_app
from deniable.service.service import open as open_service
with open_service("memory:") as service:
    client = AppClient(create_app(service))
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/experiments/expecting-twins").status_code == 401
    client.close()
print(json.dumps([span.name for span in exporter.get_finished_spans()]))
with trace.get_tracer("test").start_as_current_span("seen"):
    pass
print(json.dumps([span.name for span in exporter.get_finished_spans()]))
"""


def test_a_tracer_of_the_whole_process_gets_nothing() -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "FASTAPI_OTEL_AUTO_CONFIGURE": "true"}
    done = subprocess.run(
        [sys.executable, "-c", TRACED_PROCESS],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours, control = map(json.loads, done.stdout.splitlines()[-2:])
    assert ours == []
    assert control == ["seen"]

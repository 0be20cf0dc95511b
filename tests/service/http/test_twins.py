"""Twin runs: the same draws, other segments. Nobody outside the store can tell the runs apart.

The system's entropy is replaced by the same bytes in both runs. Compared are status, headers, body
(byte for byte where the arms agree, which they must while no reward has come), log lines and the
sequence of SQL statements.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from hashlib import shake_128
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.service.http.site import DECISIONS, EXPERIMENT, Site, running_site

from deniable.service.batch import JobBatch
from deniable.service.http.app import Options
from deniable.service.http.logs import JsonFormatter
from deniable.service.service import open as open_service
from deniable.storage.sqlite import SqliteStore

Trace = dict[str, list[Any]]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        line = json.loads(self.format(record))
        self.lines.append({k: v for k, v in line.items() if k not in ("time", "milliseconds")})


@pytest.fixture
def log_lines() -> Iterator[_Lines]:
    handler, logger = _Lines(), logging.getLogger("deniable")
    level = logger.level
    logger.setLevel("DEBUG")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def _run(
    folder: Path,
    segments: list[str | None],
    lines: _Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> Trace:
    """Decide for 60 visitors, one after the other and in a batch, with repeatable draws."""
    statements: list[str] = []
    serial = count()
    connected = SqliteStore._connected

    def traced(store: SqliteStore) -> sqlite3.Connection:
        connection = connected(store)
        connection.set_trace_callback(lambda sql: statements.append(_shape(sql)))
        return connection

    folder.mkdir()
    trace: Trace = {"status": [], "headers": [], "length": [], "arms": []}
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(EXPERIMENT)
        with (
            monkeypatch.context() as patch,
            running_site(service, Options(log_requests="all")) as site,
        ):
            patch.setattr(SqliteStore, "_connected", traced)
            patch.setattr(os, "urandom", lambda n: _stream(next(serial), n))
            lines.lines.clear()
            bodies = [{"visitor": f"v-{n}", "segment": segments[n % 3]} for n in range(60)]
            for body in bodies[:30]:
                _note(trace, site, DECISIONS, body)
            _note(trace, site, f"{DECISIONS}/batch", {"visitors": bodies})
            trace["log"] = list(lines.lines)
    trace["sql"] = statements
    return trace


def _stream(serial: int, length: int) -> bytes:
    """Bytes that depend only on how often and how much was asked for before."""
    return shake_128(serial.to_bytes(8, "big")).digest(length)


def _note(trace: Trace, site: Site, path: str, body: Any) -> None:
    answer = site.client.post(path, json=body, headers=site.headers("decide"))
    trace["status"].append(answer.status_code)
    trace["headers"].append(list(answer.headers.items()))
    trace["length"].append(len(answer.content))
    found = answer.json().get("decisions", [answer.json()])
    trace["arms"].append([item["arm"] for item in found])


def _shape(sql: str) -> str:
    """The statement without its values, which the trace shows filled in."""
    return re.sub(r"x?'[0-9A-Fa-f]*'|-?\b\d+\b|NULL", "?", sql)


@pytest.mark.parametrize("twin", [["b", "b", "b"], ["a", "b", None], ["unlisted", None, "a"]])
def test_twins_look_the_same(
    tmp_path: Path, log_lines: _Lines, monkeypatch: pytest.MonkeyPatch, twin: list[str | None]
) -> None:
    first = _run(tmp_path / "first", ["a", "a", "a"], log_lines, monkeypatch)
    second = _run(tmp_path / "second", twin, log_lines, monkeypatch)
    assert len(first["sql"]) > 30
    assert len(first["log"]) == 31
    for part in ("status", "headers", "length", "log"):
        assert first[part] == second[part], part
    assert first["sql"] == second["sql"]


def test_logs_and_metrics_name_nobody(site: Site, log_lines: _Lines) -> None:
    with running_site(site.service, Options(log_requests="all")) as noisy:
        decision = noisy.decide("visitor-7731", "a")
        reward = {"decision": decision["decision"], "value": 1}  # not logged: it tells who clicked
        answer = noisy.client.post("/v1/rewards", json=reward, headers=noisy.headers())
        assert answer.status_code == 204
        noisy.client.get("/v1/experiments/checkout", headers=noisy.headers())
        noisy.client.get("/v1/experiments/who-is-this", headers=noisy.headers())
        noisy.client.get("/wp-admin/visitor-7731", headers=noisy.headers())
    text = json.dumps(log_lines.lines)
    routes = [line["route"] for line in log_lines.lines if line["event"] == "request"]
    assert routes == [
        "/v1/experiments/{key}/decisions",
        "/v1/experiments/{key}",
        "/v1/experiments/{key}",
        "unknown",
    ]
    callers = [line["caller"] for line in log_lines.lines if line["event"] == "request"]
    assert callers == ["decide", "admin", "admin", None], "the labels of the keys"
    for word in ("7731", "checkout", "who-is-this", "dnb_", '"a"'):
        assert word not in text


def test_the_comparison_has_teeth(
    tmp_path: Path, log_lines: _Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stores only the counters it touched betrays how many segments a batch had."""
    padded = JobBatch._padded_counts
    monkeypatch.setattr(
        JobBatch,
        "_padded_counts",
        lambda batch, writer: (count for count in padded(batch, writer) if any(count[7:])),
    )
    first = _run(tmp_path / "first", ["a", "a", "a"], log_lines, monkeypatch)
    second = _run(tmp_path / "second", ["a", "b", None], log_lines, monkeypatch)
    assert first["sql"] != second["sql"]

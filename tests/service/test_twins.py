"""Twin runs: same draws, different segments. Whoever watches the database's wire learns nothing.

Two services run the same calls with the same random bytes; only the segments differ. The SQL, its
sequence, the number and the size of its values must be the same.
"""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from tests.service.support import running, serving

from deniable.service.service import Deniable
from deniable.storage.records import UNKNOWN_SEGMENT
from deniable.storage.sqlite import SqliteTransaction

Statement = tuple[str, tuple[object, ...]]


def shape(value: object) -> object:
    """What a value looks like from outside: its type, and its length where it has one."""
    return (type(value).__name__, len(value)) if isinstance(value, bytes | str) else "number"


class Watched(sqlite3.Connection):
    """Records the shape of every statement of the writer."""

    seen: list[Statement] = []  # noqa: RUF012

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.seen.append((sql, tuple(shape(value) for value in parameters)))
        return super().execute(sql, parameters)


def trace(
    folder: Path, visits: list[str | None], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[Statement], list[tuple[int, int]], list[str]]:
    """Statements, answers' lengths and log lines of one run."""
    folder.mkdir()
    numbers = itertools.count()
    real = sqlite3.connect
    records: list[str] = []

    class Records(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(f"{record.levelname} {record.getMessage()}")

    handler = Records()
    logging.getLogger("deniable").addHandler(handler)
    with monkeypatch.context() as patch, serving(f"sqlite:///{folder / 'store.db'}") as service:
        running(service, **options)
        service.decide("checkout", "first of all", "a")
        service._store._drop()  # type: ignore[attr-defined]
        patch.setattr(os, "urandom", lambda n: sha512(b"%d" % next(numbers)).digest()[: min(n, 64)])
        patch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **k, factory=Watched))
        Watched.seen = []
        answers = calls(service, visits)
        seen = Watched.seen
    logging.getLogger("deniable").removeHandler(handler)
    return seen, [(len(answer.id), len(answer.arm)) for answer in answers], records


def calls(service: Deniable, segments: list[str | None]) -> list[Any]:
    answers = []
    for number, segment in enumerate(segments):
        answers.append(service.decide("checkout", f"v{number}", segment))
        answers.append(service.decide("checkout", f"v{number}", segment))
        service.reward(answers[-1].id, number % 2)
    return answers


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
@pytest.mark.parametrize("layer", [None, "page"])
def test_segments_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, layer: str | None
) -> None:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    options: dict[str, Any] = {
        "arms": ["ax", "bx"],
        "strategy": strategy,
        "layer": layer,
        "segments": ["a", "b"],
    }
    everyone: list[list[str | None]] = [
        ["a"] * 12,
        ["b"] * 12,
        ["a", "b"] * 6,
        ["unheard of", None] * 6,
    ]
    runs = [
        trace(tmp_path / str(number), segments, monkeypatch, **options)
        for number, segments in enumerate(everyone)
    ]
    assert len(runs[0][0]) > 100
    for run in runs[1:]:
        assert run == runs[0]


def test_a_statement_less_for_unlisted_segments_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    careful = SqliteTransaction._add_counts

    def careless(self: SqliteTransaction, rows: Any) -> None:
        careful(self, [row for row in rows if row.segment != UNKNOWN_SEGMENT])

    monkeypatch.setattr(SqliteTransaction, "_add_counts", careless)
    listed = trace(tmp_path / "listed", ["a"] * 4, monkeypatch)
    assert trace(tmp_path / "unlisted", [None] * 4, monkeypatch)[0] != listed[0]

"""Runs on the settings of the joint rule: a table of what was run, and nothing is run twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research import joint_tuning
from research.__main__ import main
from research.joint_tuning import known_pooled, known_response, limit, report, settings_of


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_tuning, "SETS", {"tiny": (14_142, [7003, 7042])})
    monkeypatch.setattr(joint_tuning, "FEWEST", 2)
    monkeypatch.setattr(joint_tuning, "BATCH", 2)
    monkeypatch.setattr(joint_tuning, "PRECISION", np.inf)


def test_runs_are_kept_and_told(tiny: None, tmp_path: Path) -> None:
    first = report("tiny", tmp_path, 600.0)
    rows = [line for line in first.splitlines() if line.startswith("| 70")]
    assert [row.split(" | ")[0] for row in rows] == ["| 7042", "| 7003"]
    assert "settings: 1" in first  # the other gains under 100 clicks
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert report("tiny", tmp_path, -1.0) == first
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == kept


def test_the_best_private_table_is_the_limit_of_all() -> None:
    for setting in settings_of("final")[:12]:
        best = max(known_response(setting), known_pooled(setting))
        assert best - 1e-6 <= limit(setting) <= 100 + 1e-6


def test_an_unknown_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["joint-tuning", "all", str(tmp_path)]) == 2
    assert "one of tuning" in capsys.readouterr().err

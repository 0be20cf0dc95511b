"""`deniable scores put`, as a stranger would type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.cli import main

SCORES = {"vip-a": {"old": 0.3, "new": 0.1}, "vip-b": {"old": 0.1, "new": 0.3}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENIABLE_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    design = ("--arm", "old", "--arm", "new", "--segment", "vip-a", "--segment", "vip-b")
    assert main(["init", "--budget", "3", "--window-days", "90"]) == 0
    assert (
        main(["experiment", "create", "hero", *design, "--budget", "1", "--strategy", "gate"]) == 0
    )
    assert main(["experiment", "start", "hero"]) == 0
    return tmp_path


def test_json_and_csv_say_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "scores.json").write_text(json.dumps(SCORES))
    lines = ["segment,arm,score"]
    lines += [f"{s},{arm},{score}" for s, row in SCORES.items() for arm, score in row.items()]
    (folder / "scores.csv").write_text("\n".join(lines) + "\n", "utf-8-sig")
    capsys.readouterr()
    assert main(["scores", "put", "hero", str(folder / "scores.json")]) == 0
    told = capsys.readouterr().out
    assert told == (
        "hero: Recorded. Expected score 0.246212 with the gate, 0.3 without: it costs 0.0537883. The "
        "next table follows, at 100 decisions (0 so far).\n"
    )
    assert main(["scores", "put", "hero", str(folder / "scores.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"] is False
    assert found["cost"] == pytest.approx(0.0537883, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("scores.json", "{", "JSON"),
        ("scores.json", "[1]", "segment -> arm"),
        (
            "scores.json",
            '{"vip-a": {"old": NaN, "new": 1}, "vip-b": {"old": 1, "new": 1}}',
            "finite",
        ),
        ("scores.json", '{"vip-c": {"old": 1, "new": 1}}', "2 segments"),
        ("scores.csv", "", "columns"),
        ("scores.csv", "a,b\n1,2\n", "columns"),
        ("scores.csv", "segment,arm,score\nvip-a,old,much\n", "line 2"),
        ("scores.csv", "segment,arm,score\nvip-a,old\n", "line 2"),
        ("scores.csv", "segment,arm,score\nvip-a,old,1\nvip-a,old,2\n", "line 3 repeats"),
        ("scores.csv", "segment,arm,score\nvip-a,old,inf\n", "finite"),
        ("scores.xlsx", "PK\x03\x04", "JSON"),
    ],
)
def test_bad_files_get_one_line_without_a_segment(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, told: str
) -> None:
    (folder / name).write_text(text)
    capsys.readouterr()
    assert main(["scores", "put", "hero", str(folder / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert told in error
    assert "vip" not in error


def test_a_missing_file_and_bytes_that_are_no_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "scores.csv").write_bytes(b"segment,arm,score\n\xff,old,1\n")
    for name, told in (("nothing.json", "No such file"), ("scores.csv", "CSV")):
        capsys.readouterr()
        assert main(["scores", "put", "hero", str(folder / name)]) == 2
        assert told in capsys.readouterr().err

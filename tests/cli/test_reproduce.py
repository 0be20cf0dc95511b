"""`deniable reproduce` as a stranger calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deniable.cli import main
from deniable.studies.registry import STUDIES


def test_lists_the_studies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for study in STUDIES:
        assert f"{study.name} " in out
    assert out.count("beyond the paper") == sum(not study.in_paper for study in STUDIES)


def test_one_study_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    assert main(["reproduce", "beliefs", "--out", str(out), "--quick", "--workers", "1"]) == 0
    told = capsys.readouterr()
    assert "studies: 1; claims: 3 (holds: 3)" in told.out
    assert str(out / "report.html") in told.out
    assert "beliefs" in told.err
    assert (out / "beliefs" / "figures" / "belief_bounds.pdf").exists()
    assert main(["reproduce", "beliefs", "--out", str(out), "--quick", "--workers", "1"]) == 0
    assert "found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["everything"], "study='everything': expected all, beliefs"),
        (["beliefs", "--workers", "0"], "workers='0': expected a whole number, 1 or more"),
        (["beliefs", "--workers", "many"], "workers='many'"),
        (["beliefs", "--seed", "-1"], "seed='-1'"),
        (["beliefs", "--data", "/no/such/folder"], "a folder that exists"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "results")]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()

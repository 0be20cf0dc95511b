"""`python -m research reproduce` as a stranger calls it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from research.__main__ import StudyProgress, main
from research.study import STUDIES


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
    assert "studies: 1; claims of the paper: 3 (3 hold)" in told.out
    assert str(out / "report.html") in told.out
    assert "beliefs          started" in told.err
    assert (out / "beliefs" / "figures" / "belief_bounds.pdf").exists()
    assert main(["reproduce", "beliefs", "--out", str(out), "--quick", "--workers", "1"]) == 0
    assert "found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["everything"], "study='everything': expected all, beliefs"),
        (["beliefs", "--workers", "0"], "'--workers': Input should be greater than or equal to 1"),
        (["beliefs", "--workers", "many"], "'--workers': Input should be a valid integer"),
        (["beliefs", "--seed", "-1"], "'--seed': Input should be greater than or equal to 0"),
        (["beliefs", "--data", "/no/such/folder"], "'/no/such/folder' does not exist"),
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


def test_progress_without_a_terminal_is_lines() -> None:
    """A line at a study's start, at each tenth of its simulation, at its end; not at each repetition."""
    out = StringIO()
    with StudyProgress(Console(file=out, width=100)) as progress:
        progress.started(STUDIES[2])
        for done in range(1001):
            progress.repetitions(done, 1000)
        for done in range(0, 11, 5):  # the study's second simulation
            progress.repetitions(done, 10)
    lines = [line.split(maxsplit=1) for line in out.getvalue().splitlines() if line.strip()]
    assert [line[0] for line in lines] == ["website"] * 13
    assert lines[0][1] == "started"
    assert lines[1][1] == "100 of 1,000 repetitions"
    assert lines[10][1] == "1,000 of 1,000 repetitions"
    assert [line[1] for line in lines[11:]] == ["5 of 10 repetitions", "10 of 10 repetitions"]

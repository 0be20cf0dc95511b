"""Runs into a folder: resumed, repeated, on more workers, all give the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import deniable
from deniable import Case, SimulationResult, simulate_many
from research import study
from research.reproduce import UNFINISHED, Finished, reproduce
from research.study import BY_NAME, STUDIES, chosen_studies

SIMULATED = [BY_NAME["segments"]]


def tables(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.glob("*/tables/*"))
    }


def test_interrupted_and_resumed_on_two_workers_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    ran: list[int] = []

    def counted(cases: Sequence[Case], *rest: Any, **named: Any) -> SimulationResult:
        ran.append(len(cases))
        return simulate_many(cases, *rest, **named)

    monkeypatch.setattr(deniable, "simulate_many", counted)
    reproduce(SIMULATED, straight, quick=True, workers=1, formats=())
    in_all = len(ran)
    ran.clear()

    def interrupt(done: int, total: int) -> None:
        if done > total / 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(SIMULATED, broken, quick=True, workers=1, formats=(), progress=interrupt)
    kept = len(list(broken.rglob("*.parquet")))
    assert kept, "what was finished is kept"
    assert not (broken / "segments" / "study.json").exists()
    ran.clear()
    reproduce(SIMULATED, broken, quick=True, workers=2, formats=())
    assert len(ran) == in_all - kept, "what was finished is not run again"
    assert tables(straight) == tables(broken)
    assert len(tables(straight)) == 2
    assert not list(broken.rglob(UNFINISHED)), "a finished study is its record alone"


def test_any_changed_source_makes_results_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, studies = tmp_path / "deniable", tmp_path / "research"
    for source, copy in zip(study.SOURCES, (package, studies), strict=True):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(study, "SOURCES", (package, studies))
    found = []

    def run() -> None:
        study.source_digest.cache_clear()
        done = reproduce([BY_NAME["beliefs"]], tmp_path / "out", workers=1, formats=())
        found.append(done[0].found)

    try:
        run()
        run()
        for folder in (package / "simulation/kernels", package / "portfolio", package, studies):
            source = max(folder.glob("[a-z]*.py"))
            with source.open("a") as file:
                file.write("# changed\n")
            run()
            run()
    finally:
        study.source_digest.cache_clear()
    assert found == [False, True] * 5


def test_a_finished_study_is_found_and_a_changed_parameter_is_not(tmp_path: Path) -> None:
    studies = [BY_NAME["beliefs"], BY_NAME["segments"]]
    done: list[Finished] = []
    reproduce(studies, tmp_path, quick=True, workers=1, formats=(), finished=done.append)
    first = tables(tmp_path)
    reproduce(studies, tmp_path, quick=True, workers=1, formats=(), finished=done.append)
    reproduce(studies, tmp_path, quick=True, workers=1, seed=1, formats=(), finished=done.append)
    assert [each.found for each in done] == [False, False, True, True, False, False]
    second = tables(tmp_path)
    assert second["segments/tables/segments.csv"] != first["segments/tables/segments.csv"]
    assert second["beliefs/tables/belief_bounds.csv"] == first["beliefs/tables/belief_bounds.csv"]


def test_files_of_a_study(tmp_path: Path) -> None:
    reproduce([BY_NAME["heterogeneity"]], tmp_path, workers=1)
    folder = tmp_path / "heterogeneity"
    record = json.loads((folder / "study.json").read_text())
    for figure in record["figures"]:
        for ending, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
            assert (
                (folder / "figures" / f"{figure['name']}.{ending}").read_bytes().startswith(start)
            )
        for ending in ("csv", "parquet"):
            assert (folder / "tables" / f"{figure['name']}.{ending}").exists()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("left", ["{}", "", '{"fingerprint": 1}'])
def test_a_record_of_another_version_is_no_record(left: str, tmp_path: Path) -> None:
    (tmp_path / "beliefs").mkdir()
    (tmp_path / "beliefs" / "study.json").write_text(left)
    done: list[Finished] = []
    reproduce([BY_NAME["beliefs"]], tmp_path, workers=1, formats=(), finished=done.append)
    assert not done[0].found
    assert done[0].record.headline


def test_every_study_has_a_module_and_the_paper_comes_first() -> None:
    assert [each.in_paper for each in STUDIES] == sorted(
        (each.in_paper for each in STUDIES), reverse=True
    )
    assert all(callable(each.run) for each in chosen_studies(["all"]))

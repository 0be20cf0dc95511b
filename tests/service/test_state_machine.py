"""Every use-case in any order against a simple model: 500 runs of 50 steps on each store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.postgres import emptied
from tests.service.machine import UseCases

from deniable.service import batch, runtime
from deniable.storage import commitments, sqlite

RUNS = 500
STEPS = 50


@pytest.fixture(params=["sqlite", "postgresql"])
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> type[UseCases]:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")  # logic is tested here, not the disk
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")

        class OnSqlite(UseCases):
            def empty_store(self) -> str:
                for old in tmp_path.glob("store.db*"):
                    old.unlink()
                shutil.copy(template, tmp_path / "store.db")
                return f"sqlite:///{tmp_path / 'store.db'}"

        return OnSqlite
    url: str = request.getfixturevalue("postgres_database")

    class OnPostgres(UseCases):
        def empty_store(self) -> str:
            return emptied(url)

    return OnPostgres


def run(machine: type[UseCases], runs: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
        ),
    )


def test_use_cases_agree_with_the_model(machine: type[UseCases]) -> None:
    run(machine, RUNS)
    assert machine.new_decisions > 5 * RUNS  # the runs are about decisions, not about refusals


@pytest.mark.parametrize("machine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", ["groups", "debits", "closed"])
def test_the_machine_finds_planted_faults(
    machine: type[UseCases], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "groups":  # a visitor is let into every experiment of a group
        monkeypatch.setattr(batch.Batch, "_barred", lambda *_: frozenset())
    elif fault == "debits":  # starting costs nothing
        monkeypatch.setattr(commitments, "debit", lambda *_: None)
    else:  # a pause is ignored
        monkeypatch.setattr(runtime.Runtime, "closed", lambda *_: False)
    with pytest.raises((AssertionError, BaseExceptionGroup, pytest.fail.Exception)):
        run(machine, 60, (Phase.generate,))

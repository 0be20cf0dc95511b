"""Every use-case in any order against a simple model: 160 runs of 50 steps on each store, none twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.service.machine import UseCases

from deniable.service.experiment_state import ExperimentState
from deniable.storage import account, sqlite_connections
from deniable.storage.connect import connect
from deniable.storage.records import Role

RUNS = 160
STEPS = 50
STORES = ["sqlite", "postgresql", "memory"]
"""Each has its own runs: what goes wrong on all of them is found in any."""


@pytest.fixture
def machine(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[UseCases]]:
    """The use-cases on one store, which is emptied for each run: opening is most of the work."""
    monkeypatch.setattr(
        sqlite_connections, "SYNCHRONOUS", "OFF"
    )  # logic is tested here, not the disk
    opened = connect(store_url)

    class OnThisStore(UseCases):
        store = opened

    yield seed(STORES.index(opened.url.split(":")[0]))(OnThisStore)
    opened.close()


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


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_use_cases_agree_with_the_model(machine: type[UseCases]) -> None:
    run(machine, RUNS)
    assert machine.new_decisions > 5 * RUNS  # the runs are about decisions, not about refusals


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
@pytest.mark.parametrize("fault", ["slots", "debits", "closed", "tombstones"])
def test_the_machine_finds_planted_faults(
    machine: type[UseCases], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "slots":  # a visitor is let into every experiment of a layer
        monkeypatch.setattr(ExperimentState, "role", lambda *_: Role.MEMBER)
    elif fault == "debits":  # nothing that was started counts
        monkeypatch.setattr(account, "total_nano", lambda *_: 0)
    elif fault == "closed":  # a pause is ignored
        monkeypatch.setattr(
            ExperimentState, "closed", property(lambda *_: False, lambda *_: None), raising=False
        )
    else:  # whoever was erased is drawn for again
        monkeypatch.setattr(
            ExperimentState,
            "has_tombstones",
            property(lambda *_: False, lambda *_: None),
            raising=False,
        )
    with pytest.raises((AssertionError, BaseExceptionGroup, pytest.fail.Exception)):
        run(machine, 60, (Phase.generate,))

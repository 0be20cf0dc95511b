"""Rehearsals for an audit: exact about draws, and nothing of them is stored."""

from __future__ import annotations

import pytest
from tests.promise.support import entries_of, taught
from tests.service.support import running, serving

from deniable.privacy.tables import draw
from deniable.service import batch
from deniable.service.service import Deniable


def outcomes(service: Deniable) -> dict[str, str]:
    found = service.audits.run("checkout")
    return {check.name: check.outcome for check in found.checks}


@pytest.mark.parametrize("strategy", ["constant", "dynamic", "joint"])
def test_nothing_is_stored_and_a_sound_service_is_not_accused(strategy: str) -> None:
    with serving("memory:") as service:
        running(service, strategy=strategy, arms=("x", "y", "z"))
        taught(service, "checkout", {"a": "x", "b": "y"}, visitors=200)
        before, heads = entries_of(service, "checkout"), service.ledger.verify().heads
        found = outcomes(service)
        assert found["rehearsed visits"] == found["ranges of draws"] == "kept"
        assert entries_of(service, "checkout") == before
        assert service.ledger.verify().heads == heads


@pytest.mark.parametrize("shift", [1, -1])
def test_a_single_point_of_2_to_the_64_is_noticed(
    shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(row: list[int], point: int) -> int:
        return draw(row, min(2**64 - 1, max(0, point + shift)))

    with serving("memory:") as service:
        running(service)
        monkeypatch.setattr(batch, "draw", moved)
        assert outcomes(service)["ranges of draws"] == "broken"


def test_paused_and_stopped_experiments_can_be_audited() -> None:
    with serving("memory:") as service:
        running(service)
        service.experiments.pause("checkout")
        assert outcomes(service)["ranges of draws"] == "kept"
        service.experiments.stop("checkout")
        assert outcomes(service)["rehearsed visits"] == "not tested"

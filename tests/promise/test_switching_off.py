"""Switching arms off makes another promise, and the ledger, the audit and the page say which."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.promise.support import rows_of, taught
from tests.service.support import running, serving

from deniable.audit.promise import GIVEN_THE_TIME
from deniable.privacy.exact import exp_floor
from deniable.privacy.tables import Row
from deniable.service.service import Deniable

pytestmark = pytest.mark.usefixtures("strict_audits")

TEN = [f"arm{i}" for i in range(10)]


def switched(service: Deniable, keep: int) -> None:
    """Ten arms, of which only so many stay on."""
    running(service, arms=TEN, segments=["s", "t"], strategy="constant")
    taught(service, "checkout", {"s": "arm0", "t": "arm1"}, visitors=100)
    assert service.audits.promise("checkout").grade == "across time"
    for arm in reversed(TEN[keep:]):
        service.experiments.switch_off("checkout", arm)
    taught(service, "checkout", {"s": "arm0", "t": "arm1"}, visitors=50, name="later")


def worst(rows: list[Row], arm: int) -> Fraction:
    return Fraction(max(row[arm] for row in rows), min(row[arm] for row in rows))


@pytest.mark.parametrize("keep", [2, 9])
def test_versions_keep_the_budget_each_and_everything_says_so(keep: int) -> None:
    """Whoever has a withdrawn arm came before, so no grade across versions is stronger."""
    with serving("memory:") as service:
        switched(service, keep)
        assert worst(rows_of(service, "checkout"), 0) > exp_floor(
            10**9
        )  # across versions it is broken
        promise = service.audits.promise("checkout")
        assert promise.version_grade == "across time"
        assert promise.grade == GIVEN_THE_TIME
        assert service.audits.run("checkout").to_dict()["grade"] == GIVEN_THE_TIME
        for version in promise.versions:  # each version by itself keeps the budget
            rows = [
                row
                for published in promise.tables
                if published.version == version
                for row in (published.table.unlisted, *published.table.rows)
            ]
            assert all(worst(rows, arm) <= exp_floor(10**9) for arm in promise.versions[version])


def test_an_arm_drawn_before_stays() -> None:
    with serving("memory:") as service:
        running(service, arms=TEN, segments=["s", "t"], strategy="constant")
        before = service.decide_batch("checkout", [(f"v{i}", "s") for i in range(100)])
        for arm in TEN[2:]:
            service.experiments.switch_off("checkout", arm)
        assert service.decide_batch("checkout", [(f"v{i}", "t") for i in range(100)]) == before

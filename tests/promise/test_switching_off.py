"""Switching arms off makes another promise, and the ledger, the audit and the page say which."""

from __future__ import annotations

import json
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


def switched(service: Deniable, keep: int) -> list[str]:
    """Ten arms, of which only so many stay on; the grades that the ledger recorded."""
    running(service, arms=TEN, segments=["s", "t"], strategy="constant")
    taught(service, "checkout", {"s": "arm0", "t": "arm1"}, visitors=100)
    for arm in reversed(TEN[keep:]):
        service.experiments.switch_off("checkout", arm)
    taught(service, "checkout", {"s": "arm0", "t": "arm1"}, visitors=50, name="later")
    events = service.experiments.events("checkout")
    return [json.loads(e.detail)["grade"] for e in events if e.kind == "switch_off"]


def worst(rows: list[Row], arm: int) -> Fraction:
    return Fraction(max(row[arm] for row in rows), min(row[arm] for row in rows))


def test_ten_to_two_cannot_keep_one_band_and_everything_says_so() -> None:
    with serving("memory:") as service:
        grades = switched(service, 2)
        assert worst(rows_of(service, "checkout"), 0) > 8  # e is 2.72: across versions it is broken
        assert grades[-1] == GIVEN_THE_TIME
        promise = service.audits.promise("checkout")
        assert promise.grade == "across time"  # of each version
        assert promise.stated_grade == GIVEN_THE_TIME
        assert service.audits.run("checkout").to_dict()["grade"] == GIVEN_THE_TIME
        for version in promise.versions:  # each version by itself keeps the budget
            rows = [
                row
                for one in promise.tables
                if one.version == version
                for row in (one.table.zero, *one.table.rows)
            ]
            assert all(worst(rows, arm) <= exp_floor(10**9) for arm in promise.versions[version])


@pytest.mark.parametrize("keep", [9])
def test_versions_in_one_band_stay_across_time(keep: int) -> None:
    """Whatever is recorded as "across time" is so, over all entries of all versions."""
    with serving("memory:") as service:
        grades = switched(service, keep)
        rows, promise = rows_of(service, "checkout"), service.audits.promise("checkout")
    kept = all(worst(rows, arm) <= exp_floor(10**9) for arm in range(keep))
    assert kept or promise.stated_grade == GIVEN_THE_TIME
    assert (promise.stated_grade == "across time") == (set(grades) == {"across time"})


def test_an_arm_drawn_before_stays() -> None:
    with serving("memory:") as service:
        running(service, arms=TEN, segments=["s", "t"], strategy="constant")
        before = service.decide_batch("checkout", [(f"v{i}", "s") for i in range(100)])
        for arm in TEN[2:]:
            service.experiments.switch_off("checkout", arm)
        assert service.decide_batch("checkout", [(f"v{i}", "t") for i in range(100)]) == before

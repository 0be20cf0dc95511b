"""Budgets by arm: every two entries of one arm, at any time and for anybody, are within e^budget_j."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from tests.promise.support import entries_of, rows_of, taught
from tests.service.support import published, running, serving

from deniable.privacy.exact import exp_floor
from deniable.privacy.tables import decoded_table
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.records import UNKNOWN_SEGMENT, Role

BUDGETS = [(0.1, 3.0), (0.5, 1.0, 2.0), (0.001, 5.0)]


def lived(service: Deniable, budgets: tuple[float, ...], strategy: str) -> None:
    """Early, late, unlisted, held out, other slot, paused, erased: everything that serves a row."""
    arms = [NewArm(f"arm{i}", budget=budget) for i, budget in enumerate(budgets)]
    running(
        service, "x", arms=arms, segments=["a", "b"], strategy=strategy, holdout=0.1, layer="page"
    )
    last = f"arm{len(arms) - 1}"
    for number, best in enumerate(({"a": "arm0", "b": last}, {"a": last, "b": "arm0"})):
        taught(service, "x", best, visitors=150, name=f"t{number}")
    service.decide_batch("x", [(f"u{i}", "nowhere") for i in range(20)])
    service.visitors.erase([f"t0a{i}" for i in range(20)])
    service.decide_batch("x", [(f"t0a{i}", "a") for i in range(20)])
    service.experiments.pause("x")
    service.decide_batch("x", [(f"p{i}", "ab"[i % 2]) for i in range(20)])
    service.experiments.resume("x")
    published(service, "x")


def served(service: Deniable) -> list[tuple[int, ...]]:
    """The row that each stored decision was drawn from."""
    width = len(service.experiments.get("x").arms)
    tables = {
        table.number: decoded_table(table.rows, width) for table in service.experiments.tables("x")
    }
    found = []
    for number, role, segment, _shown in entries_of(service, "x"):
        listed = role == Role.MEMBER and segment not in (None, UNKNOWN_SEGMENT)
        found.append(tables[number].rows[segment] if listed else tables[number].unlisted)
    return found


def excess(rows: list[tuple[int, ...]], budgets: tuple[float, ...]) -> list[int]:
    """The arms of which two entries are further apart than e^budget_j, in exact fractions."""
    return [
        arm
        for arm, budget in enumerate(budgets)
        if any(
            Fraction(one[arm], other[arm]) > exp_floor(round(budget * 10**9))
            for one, other in product(set(rows), repeat=2)
        )
    ]


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
@pytest.mark.parametrize("budgets", BUDGETS)
def test_every_pair_of_entries_ever_served(budgets: tuple[float, ...], strategy: str) -> None:
    with serving("memory:") as service:
        lived(service, budgets, strategy)
        published, drawn = rows_of(service, "x"), served(service)
        roles = {role for _, role, _, _ in entries_of(service, "x")}
    assert roles == {Role.MEMBER, Role.HOLDOUT, Role.CLOSED, Role.ERASED}
    assert set(drawn) <= set(published)
    assert len(set(published)) >= 3  # it did learn, in both directions
    assert excess(published, budgets) == []
    # What was served before, and must be caught: a uniform row for whoever falls back.
    share = 2**64 // len(budgets)
    assert excess([*published, (share,) * len(budgets)], budgets) != []

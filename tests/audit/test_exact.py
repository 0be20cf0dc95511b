"""The exact check against brute force over every pair of tables, and against planted faults."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from mpmath import mp
from tests.audit.bandit import by_arm, promise

from deniable.audit import exact
from deniable.audit.exact import decimal, exact_proof, unlisted_ratio
from deniable.audit.promise import Promise, levels, table_within
from deniable.errors import InvalidArgumentError
from deniable.privacy.serving import ServingSchedule, ServingTable, exp_floor


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("budget", [1e-6, 0.05, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("arms", [2, 5])
def test_the_ratio_is_within_the_budget_and_close_to_it(
    budget: float, arms: int, dynamic: bool
) -> None:
    proof = exact_proof(promise(budget, arms=arms, dynamic=dynamic))[0]
    assert proof.holds
    with mp.workdps(60):
        bound = mp.exp(mp.mpf(int(budget * 10**9)) / 10**9)
        for arm in proof.arms:
            found = mp.mpf(arm.ratio.numerator) / arm.ratio.denominator
            assert found <= bound
            assert mp.mpf(arm.bound.numerator) / arm.bound.denominator <= bound
            assert found >= bound * (1 - 1e-5) or budget < 1e-5  # the check is not vacuous


def test_symmetric_ratio_is_the_worst_over_all_pairs_of_tables() -> None:
    few = promise(2e-8, dynamic=True)  # 20 nano-nats: 21 tables, all pairs by hand
    tables = list(few.tables(1))
    assert len(tables) == 21
    brute = max(
        Fraction(one.count(0, g), other.count(0, h))
        for one, other in product(tables, tables)
        for g, h in product(range(3), range(3))
    )
    assert exact_proof(few)[0].arms[0].ratio == brute


def test_every_risk_that_the_schedule_serves_is_among_the_levels() -> None:
    schedule = ServingSchedule((10**9, 10**9), dynamic=True)
    served = {max(schedule.table(clock).budgets) for clock in range(1, 200)}
    assert served <= set(levels(10**9))
    assert max(served) == 10**9


def test_arm_specific_tables_keep_each_arms_own_budget() -> None:
    proof = exact_proof(by_arm(0.5, 1, 2, dynamic=True))[0]
    assert proof.holds
    assert [round(float(arm.ratio), 3) for arm in proof.arms] == [1.649, 2.718, 7.389]


def test_an_unlisted_visitor_served_uniformly_breaks_budgets_by_arm_only() -> None:
    assert unlisted_ratio(by_arm(0.5, 1, 2), 1, 0) > exp_floor(500_000_000)
    assert unlisted_ratio(promise(1.0), 1, 0) <= exp_floor(10**9)


def test_a_table_with_one_unit_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(budgets: tuple[int, ...], level: int) -> ServingTable:
        good = table_within(budgets, level)
        broken = object.__new__(ServingTable)  # past the constructor's own check
        taken = 2**20  # 6e-14 of all draws
        pieces = (good.pieces[0] - taken, *good.pieces[1:])
        object.__setattr__(broken, "pieces", pieces)
        object.__setattr__(broken, "budgets", good.budgets)
        return broken

    monkeypatch.setattr(exact, "table_within", faulty)
    exact._extremes.cache_clear()
    try:
        proof = exact_proof(promise(1.0, dynamic=False))[0]
    finally:
        exact._extremes.cache_clear()
    assert not proof.holds
    assert proof.worst.arm == 0


def test_versions_are_proved_one_by_one() -> None:
    two = Promise(
        "p",
        ("a", "b", "c"),
        ("x",),
        (10**9,) * 3,
        dynamic=False,
        versions={1: (0, 1, 2), 2: (0, 2)},
    )
    first, second = exact_proof(two)
    assert (len(first.arms), [arm.arm for arm in second.arms]) == (3, [0, 2])
    assert first.holds
    assert second.holds


def test_decimal_is_cut_not_rounded() -> None:
    assert decimal(Fraction(2, 3), 4) == "0.6666"


@pytest.mark.parametrize(
    "bad",
    [
        {"arms": ("a",)},
        {"budgets_nano": (1,)},
        {"versions": {1: (0,)}},
        {"versions": {1: (0, 7)}},
        {"segments": ()},
    ],
)
def test_promises_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    good: dict[str, object] = {
        "name": "p",
        "arms": ("a", "b"),
        "segments": ("x",),
        "budgets_nano": (1, 1),
        "dynamic": True,
    }
    with pytest.raises(InvalidArgumentError):
        Promise(**{**good, **bad})  # type: ignore[arg-type]

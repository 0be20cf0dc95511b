"""Serving tables: hundreds of them, each within its budget by an independent bound, none sloppy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.oracle import mp, mpf
from tests.rational import exp_bounds

from deniable import ServingSchedule, ServingTable, arm_specific_table, symmetric_table
from deniable.errors import NANO, BrokenPromiseError
from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.exploration import dynamic_risk

BUDGETS = [round(nats * NANO) for nats in np.geomspace(0.001, 20, 12).tolist()]
EXTREMES = [(k, risk) for k in (2, 50, 10_000) for risk in (1, 10**9, 700 * NANO, 10**7 * NANO)]


def _excess(table: ServingTable) -> list[int]:
    """The shown arms whose exact ratio exceeds a rational lower bound of e^budget."""
    ceilings = {b: exp_bounds(Fraction(min(b, 1000 * NANO), NANO))[0] for b in set(table.budgets)}
    bonus = SPACE - sum(table.pieces)
    return [
        arm
        for arm, (piece, budget) in enumerate(zip(table.pieces, table.budgets, strict=True))
        if bonus < 0 or Fraction(piece + bonus, piece) > ceilings[budget]
    ]


def _columns(table: ServingTable) -> set[int]:
    """The sums over shown arms, for the first and the last greedy arm."""
    arms = range(table.n_arms)
    return {sum(table.count(shown, greedy) for shown in arms) for greedy in (0, table.n_arms - 1)}


def _distance(table: ServingTable) -> float:
    """The largest error of a piece, in units of the space, against the real mechanism."""
    c = [1 / mp.expm1(mpf(b) / NANO) for b in table.budgets]
    total = 1 + sum(c)
    want = [SPACE * x / total for x in c]
    return max(float(abs(p - w)) for p, w in zip(table.pieces, want, strict=True))


@pytest.mark.parametrize("n_arms", range(2, 51))
def test_symmetric_tables(n_arms: int) -> None:
    for risk in BUDGETS:
        table = symmetric_table(n_arms, risk)
        assert not _excess(table)
        assert _columns(table) == {SPACE}
        assert _distance(table) <= 1
        assert table.worst_ratio(0) > 1


@pytest.mark.parametrize("n_arms", range(2, 51))
def test_arm_specific_tables(n_arms: int) -> None:
    rng = np.random.default_rng(n_arms)
    for _ in range(12):
        nats = np.exp(rng.uniform(np.log(0.001), np.log(20), size=n_arms))
        risks = [round(x * NANO) for x in nats.tolist()]
        table = arm_specific_table(risks)
        assert not _excess(table)
        assert _columns(table) == {SPACE}
        assert _distance(table) <= 1


@pytest.mark.parametrize(("n_arms", "risk"), EXTREMES)
def test_extreme_tables(n_arms: int, risk: int) -> None:
    mixed = arm_specific_table([risk, *[NANO] * (n_arms - 1)])
    for table in (symmetric_table(n_arms, risk), mixed):
        assert not _excess(table)
        assert sum(table.pieces) + table.bonus == SPACE
        assert min(table.pieces) >= 1


@pytest.mark.parametrize("n_arms", [2, 3, 7, 50, 10_000])
def test_zero_budget_is_uniform(n_arms: int) -> None:
    table = symmetric_table(n_arms, 0)
    assert table.bonus == 0
    assert max(table.pieces) - min(table.pieces) <= 1


def test_budgets_below_the_resolution_of_the_space_are_uniform() -> None:
    """Half a million arms at one nano-nat leave less than a unit for each: the promise comes first."""
    table = symmetric_table(500_000, 1)
    assert table.bonus == 0
    assert sum(table.pieces) == SPACE


def test_rounding_down_would_break_the_promise() -> None:
    """Pieces one unit smaller exceed e^budget by the independent bound, and cannot be made a table."""
    for n_arms in range(2, 20):
        for risk in BUDGETS:
            table = symmetric_table(n_arms, risk)
            low = table.pieces[0] - 1
            ratio = Fraction(SPACE - (n_arms - 1) * low, low)
            assert ratio > exp_bounds(Fraction(risk, NANO))[1]
            with pytest.raises(BrokenPromiseError):
                ServingTable((low,) * n_arms, table.budgets)


@pytest.mark.parametrize(
    "pieces",
    [(SPACE, SPACE), (0, 0), (-1, 2), (2**64 // 3, 2**64 // 3)],
    ids=["too much", "nothing", "negative", "too greedy"],
)
def test_no_table_can_be_made_that_breaks_its_promise(pieces: tuple[int, int]) -> None:
    with pytest.raises(BrokenPromiseError):
        ServingTable(pieces, (NANO // 2, NANO // 2))


@pytest.mark.parametrize("risk", [1, 2, 999, 10**6, NANO, 20 * NANO, 700 * NANO, 1000 * NANO])
def test_exp_floor_is_below_and_close(risk: int) -> None:
    low, high = exp_bounds(Fraction(risk, NANO))
    assert exp_floor(risk) < high
    assert 0 <= 1 - exp_floor(risk) / low + Fraction(1, 10**78) <= Fraction(1, 10**75)


def test_exp_floor_is_below_e_for_risks_of_every_size() -> None:
    rng = np.random.default_rng(7)
    for risk in (10 ** rng.uniform(0, 12, 200)).astype(int).tolist():
        low, high = exp_bounds(Fraction(risk, NANO))
        assert exp_floor(risk) < high
        assert exp_floor(risk) >= low * (1 - Fraction(1, 10**75))


def test_exp_floor_of_any_risk_is_finite() -> None:
    assert exp_floor(0) == 1
    assert exp_floor(10**30) == exp_floor(1000 * NANO)


def test_a_schedule_follows_the_clock_and_never_leads_it() -> None:
    budget = 3 * NANO
    schedule = ServingSchedule((budget,) * 5, dynamic=True)
    risks = []
    for clock in (1, 2, 3, 12, 13, 20, 100, 1000, 4729, 4730, 10**6, 10**12):
        served = schedule.table(clock).budgets[0]
        uncapped = float(dynamic_risk(5, clock)) * NANO
        assert served <= min(budget, uncapped) + 1
        assert served > min(budget, uncapped) - budget / 4096 - 1
        risks.append(served)
    assert risks == sorted(risks)
    assert schedule.table(4730).budgets == (budget,) * 5


def test_a_constant_schedule_is_its_budget_from_the_start() -> None:
    schedule = ServingSchedule((NANO // 2, NANO), dynamic=False)
    assert schedule.table(1) == schedule.table(10**9) == arm_specific_table([NANO // 2, NANO])


def test_a_schedule_has_few_tables() -> None:
    schedule = ServingSchedule((2 * NANO,) * 3, dynamic=True)
    levels = {schedule.table(clock).budgets for clock in range(1, 30_000)}
    assert len(levels) <= 4098

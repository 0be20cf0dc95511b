"""The exact check against brute force over all tables and segments, and against planted faults."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import ClassVar

import pytest
from mpmath import mp
from tests.audit.bandit import Bandit, by_arm, moved, promise

from deniable.audit.exact import decimal, exact_proof
from deniable.audit.promise import AuditedTable, Promise
from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import exp_floor
from deniable.privacy.tables import Band, Row, Table, band
from deniable.storage.promises import Promise as ChainedPromise
from deniable.storage.records import Metric
from deniable.strategies import STRATEGIES
from deniable.strategies.constant import Constant
from deniable.strategies.rules import Grade


def ran(promised: Promise, visitors: int = 3_000, seed: int = 1) -> Promise:
    """The promise with the tables of a run."""
    bandit = Bandit(promised, seed=seed)
    bandit.run(visitors)
    return bandit.promise


@pytest.mark.parametrize("strategy", ["dynamic", "constant"])
@pytest.mark.parametrize("budget", [1e-6, 0.05, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("arms", [2, 5])
def test_the_ratio_is_within_the_budget_and_close_to_it(
    budget: float, arms: int, strategy: str
) -> None:
    """Counts that make every arm the greedy one of some segment use the whole budget."""
    base = promise(budget, arms=arms, segments=arms, strategy=strategy)
    shows = tuple((10**30,) * arms for _ in range(arms))
    clicks = tuple(tuple(10**6 * (arm == s) for arm in range(arms)) for s in range(arms))
    published = AuditedTable(1, 1, base.made(1, shows, clicks), shows, clicks)
    proof = exact_proof(replace(base, tables=(published,)))[0]
    assert proof.holds
    with mp.workdps(60):
        bound = mp.exp(mp.mpf(base.budgets_nano[0]) / 10**9)
        for arm in proof.arms:
            assert arm.ratio is not None
            found = mp.mpf(arm.ratio.numerator) / arm.ratio.denominator
            assert found <= bound
            assert mp.mpf(arm.bound.numerator) / arm.bound.denominator <= bound
            assert found >= bound * (1 - 1e-9)  # the check is not vacuous


@pytest.mark.parametrize("strategy", ["dynamic", "constant"])
def test_ratios_are_the_worst_over_all_tables_and_segments(strategy: str) -> None:
    promised = ran(by_arm(0.5, 1, 2, strategy=strategy), 500)
    assert len(promised.tables) > 5
    proof = exact_proof(promised)[0]
    assert proof.n_tables == len(promised.tables)
    for arm, found in enumerate(proof.arms):
        columns = [
            [row[arm] for row in (*published.table.rows, published.table.unlisted)]
            for published in promised.tables
        ]
        every = [entry for column in columns for entry in column]
        assert found.ratio_across_time == max(Fraction(a, b) for a, b in product(every, every))
        assert found.ratio == max(Fraction(a, b) for c in columns for a, b in product(c, c))
        assert found.promised_ratio == found.ratio_across_time


def test_arm_specific_tables_keep_each_arms_own_budget() -> None:
    promised = by_arm(0.5, 1, 2)
    clicks = ((1, 0, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 1))
    shows = ((1, 1, 1),) * 2
    tables = tuple(
        AuditedTable(number, 1, promised.made(1, shows, earned), shows, earned)
        for number, earned in enumerate(clicks, 1)
    )
    proof = exact_proof(replace(promised, tables=tables))[0]
    assert proof.holds
    assert [round(float(arm.ratio_across_time or 0), 3) for arm in proof.arms] == [
        1.649,
        2.718,
        7.389,
    ]


def test_an_unlisted_visitor_served_uniformly_would_break_budgets_by_arm() -> None:
    """The neutral row is in the table: were it uniform, the exact check would say so."""

    def uniform(table: Table) -> Table:
        third = 2**64 // 3
        return Table(table.rows, (third + 1, third, third))

    bandit = Bandit(by_arm(0.5, 1, 2), tamper=uniform)
    bandit.run(300)
    proof = exact_proof(bandit.promise)[0]
    assert not proof.holds
    assert proof.worst.promised_ratio is not None
    assert proof.worst.promised_ratio > exp_floor(proof.worst.budget_nano)
    assert len(proof.outside_band) == proof.n_tables


def test_a_table_with_a_little_too_much_is_caught() -> None:
    """6e-14 of all draws moved: above e^budget, outside of the band, and not what the counts make."""
    promised = ran(promise(1.0, strategy="constant"), 1_000)
    last = promised.tables[-1]
    row = last.table.rows[0]
    most = row.index(max(row))
    faulty = Table(
        (moved(row, (most + 1) % 3, most, 2**20), *last.table.rows[1:]), last.table.unlisted
    )
    tables = (*promised.tables[:-1], replace(last, table=faulty))
    proof = exact_proof(replace(promised, tables=tables))[0]
    assert not proof.holds
    assert proof.outside_band == (last.number,)
    assert proof.not_replayed == (last.number,)
    assert not proof.worst.holds
    assert exact_proof(promised)[0].holds


def test_an_entry_outside_of_the_band_is_caught_though_its_table_alone_is_sound() -> None:
    """All rows moved together: no segment differs, but a tracker that knows the time would learn."""
    promised = promise(1.0, strategy="constant")
    fixed = band(promised.budgets_nano)
    amount = fixed.floors[0] // 2
    row = moved(fixed.neutral, 0, 1, fixed.neutral[0] - fixed.floors[0] + amount)
    nothing = ((0, 0, 0),) * 2
    tables = (
        AuditedTable(1, 1, promised.first_table(1), nothing, nothing),
        AuditedTable(2, 1, Table((row, row), row), nothing, nothing),
    )
    assert set(tables[1].table.check(promised.budgets_nano)) == {Fraction(1)}
    proof = exact_proof(replace(promised, tables=tables))[0]
    assert proof.outside_band == (2,)
    assert not proof.holds


def test_a_table_that_does_not_follow_from_its_counts_is_caught() -> None:
    """Sound in every ratio, but made from other counts than it names."""
    promised = ran(promise(1.0, strategy="constant"), 1_000)
    last = promised.tables[-1]
    other = tuple(tuple(reversed(row)) for row in last.rewards)
    assert promised.made(1, last.shows, other) != last.table
    tables = (*promised.tables[:-1], replace(last, rewards=other))
    proof = exact_proof(replace(promised, tables=tables))[0]
    assert proof.not_replayed == (last.number,)
    assert not proof.outside_band
    assert all(arm.holds for arm in proof.arms)
    assert not proof.holds


def test_an_arm_that_only_some_can_be_shown_is_no_fraction() -> None:
    promised = promise(1.0)
    half = 2**63
    table = Table(((half, half, 0), (half, 0, half)), (half, half, 0))
    nothing = ((0, 0, 0),) * 2
    proof = exact_proof(replace(promised, tables=(AuditedTable(1, 1, table, nothing, nothing),)))[0]
    assert [arm.promised_ratio for arm in proof.arms] == [1, None, None]
    assert not proof.holds
    assert proof.worst.promised_ratio is None


def test_versions_are_proved_one_by_one() -> None:
    two = Promise(
        "p",
        ("a", "b", "c"),
        ("x",),
        (10**9,) * 3,
        "constant",
        versions={1: (0, 1, 2), 2: (0, 2)},
    )
    first, second = exact_proof(two)
    assert (len(first.arms), [arm.arm for arm in second.arms]) == (3, [0, 2])
    assert first.holds
    assert second.holds
    # With tables of both: a surviving arm's ratio over the versions is no part of the promise.
    nothing = ((0, 0, 0),)
    tables = tuple(
        AuditedTable(number, number, two.first_table(number), nothing, nothing) for number in (1, 2)
    )
    assert all(proof.holds for proof in exact_proof(replace(two, tables=tables)))


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
        {"strategy": "greedy"},
    ],
)
def test_promises_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    good: dict[str, object] = {
        "name": "p",
        "arms": ("a", "b"),
        "segments": ("x",),
        "budgets_nano": (1, 1),
        "strategy": "dynamic",
    }
    with pytest.raises(InvalidArgumentError):
        Promise(**{**good, **bad})  # type: ignore[arg-type]


class GivenTheTime(Constant):
    """A strategy whose tables keep the budget each, not together, and may be anything else."""

    name: ClassVar[str] = "given"
    grade: ClassVar[Grade] = "given the time"

    @classmethod
    def band(cls, budgets: Row) -> Band | None:  # type: ignore[override]
        return None


def test_given_the_time_each_table_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One arm is rare in the first table and common in the second, in all segments alike."""
    monkeypatch.setitem(STRATEGIES, "given", GivenTheTime)
    monkeypatch.setattr(Promise, "replays", lambda self, published: True)
    rare, common = (2**60, 2**64 - 2**60), (2**64 - 2**60, 2**60)
    nothing = ((0, 0),) * 2
    tables = tuple(
        AuditedTable(number, 1, Table((row, row), row), nothing, nothing)
        for number, row in ((1, rare), (2, common))
    )
    alone = Promise("p", ("a", "b"), ("x", "y"), (10**9,) * 2, "given", tables=tables)
    proof = exact_proof(alone)[0]
    assert proof.holds
    assert [arm.promised_ratio for arm in proof.arms] == [1, 1]
    assert [arm.ratio_across_time for arm in proof.arms] == [15, 15]
    # The same tables, under a strategy that promises them together.
    assert not exact_proof(replace(alone, strategy="constant"))[0].holds
    # Planted: one table beyond e^1 between its own segments.
    uneven = AuditedTable(3, 1, Table((rare, common), rare), nothing, nothing)
    assert not exact_proof(replace(alone, tables=(*tables, uneven)))[0].holds


def test_the_arms_of_each_version_follow_from_the_chain() -> None:
    """An arm is on until the version of its entry."""
    told = ChainedPromise(
        key="e",
        arms=(("x", None, True), ("y", 5 * 10**8, True), ("z", None, False), ("w", None, True)),
        segments=("a", "b"),
        strategy="constant",
        budget_nano=10**9,
        layer=None,
        holdout=0,
        default_arm="x",
        attribution_seconds=None,
        metrics=(Metric(),),
        planned_visitors=None,
        weights=(1, 1),
        version=3,
    )
    everything = (0, 1, 2, 3)
    found = Promise.chained(told, {"z": 3}, ())
    assert found.versions == {1: everything, 2: everything, 3: (0, 1, 3)}
    assert Promise.chained(told, {"y": 2, "z": 3}, ()).versions[2] == (0, 2, 3)
    assert Promise.chained(told, {}, ()).budgets_nano == (10**9, 5 * 10**8, 10**9, 10**9)

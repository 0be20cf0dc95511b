"""Scores of a model outside: when they take effect, what they cost, and that an audit can tell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection
from tests.rational import exp_bounds
from tests.service.support import running
from tests.strategies.lp_oracle import by_highs

from deniable.audit.exact import exact_proof
from deniable.audit.log import audit_log
from deniable.errors import InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.privacy.tables import Table, decoded_table
from deniable.service import publisher, table_making
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import promises
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.sums import Sums
from deniable.strategies.gate import GateRule
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Wanted

pytestmark = pytest.mark.usefixtures("strict_audits")

SEGMENTS = ("vip-returning", "vip-new", "vip-rare")
ARMS = ("old", "new", "bold")
SCORES = {
    "vip-returning": {"old": 0.30, "new": 0.10, "bold": 0.22},
    "vip-new": {"old": 0.05, "new": 0.31, "bold": 0.20},
    "vip-rare": {"old": -0.2, "new": 0.02, "bold": 0.04},
}
OTHER = {segment: {"old": 0.1, "new": 0.2, "bold": 0.3} for segment in SEGMENTS}
CHANCES = {
    "vip-returning": {"old": 0.9, "new": 0.05, "bold": 0.05},
    "vip-new": {"old": 0.05, "new": 0.9, "bold": 0.05},
    "vip-rare": {"old": 0.0, "new": 0.0, "bold": 1.0},
}


@pytest.fixture
def service() -> Iterator[Deniable]:
    with open_service("memory:") as opened:
        opened.firm.set(budget=50)
        running(opened, "hero", arms=ARMS, segments=SEGMENTS, strategy="gate")
        yield opened


def visited(service: Deniable, count: int, name: str = "v") -> None:
    """So many new visitors, one by one: the publisher of a memory store looks after each."""
    for number in range(count):
        service.decide("hero", f"{name}{number}", SEGMENTS[number % 3])


def newest(service: Deniable) -> tuple[PublishedTable, Table]:
    found = service.experiments.tables("hero")[-1]
    return found, decoded_table(found.rows, len(ARMS))


def replayed(service: Deniable) -> str:
    """What the audit says of "tables follow from their counts"."""
    (found,) = [
        check.outcome
        for check in service.audits.run("hero").checks
        if check.name.startswith("tables follow from their counts")
    ]
    return found


def proved(service: Deniable) -> bool:
    """Whether every table keeps the budget in fractions and follows from what it names."""
    return all(proof.holds for proof in exact_proof(service.audits.promise("hero")))


def test_scores_wait_for_the_scheduled_table(service: Deniable) -> None:
    visited(service, 60)
    report = service.scores.put("hero", SCORES)
    assert (report.recorded, report.table, report.decisions, report.next_at) == (True, 1, 60, 100)
    assert service.experiments.get("hero").table_number == 1
    assert len(set(newest(service)[1].rows)) == 1  # the same for everybody, until then
    visited(service, 39, "w")
    assert service.experiments.get("hero").table_number == 1
    service.decide("hero", "the hundredth", None)
    published, table = newest(service)
    assert (published.number, published.decisions) == (2, 100)
    assert len(set(table.rows)) > 1
    assert proved(service)
    assert service.audits.firm().sound


def test_when_a_table_appears_does_not_depend_on_scores() -> None:
    schedules = []
    for sending in (False, True):
        with open_service("memory:") as service:
            service.firm.set(budget=50)
            running(service, "hero", arms=ARMS, segments=SEGMENTS, strategy="gate")
            for start in range(0, 400, 50):
                visited(service, 50, f"{start}-")
                if sending:
                    service.scores.put("hero", SCORES if start % 100 else OTHER)
            schedules.append([one.decisions for one in service.experiments.tables("hero")])
    assert schedules[0] == schedules[1] == [0, 100, 200, 300, 400]


def test_a_draft_has_them_from_its_first_table() -> None:
    with open_service("memory:") as service:
        service.firm.set(budget=1)
        service.experiments.create("hero", arms=ARMS, segments=SEGMENTS, budget=1, strategy="gate")
        report = service.scores.put("hero", SCORES)
        assert report.next_at is None
        assert "first table" in report.words
        service.experiments.start("hero")
        assert len(set(newest(service)[1].rows)) > 1


@pytest.mark.parametrize("budget", [0.1, 1.0, 4.0])
def test_the_table_is_the_best_one_that_keeps_the_budget(budget: float) -> None:
    """By HiGHS in another form, and in fractions; at the shares of the visitors, plus one each."""
    with open_service("memory:") as service:
        service.firm.set(budget=50)
        running(service, "hero", arms=ARMS, segments=SEGMENTS, strategy="gate", budget=budget)
        visited(service, 70)
        for number in range(30):
            service.decide("hero", f"more{number}", SEGMENTS[0])
        report = service.scores.put("hero", SCORES)
        service.experiments.publish("hero")
        published, table = newest(service)
        shows = np.array(json.loads(published.counts)["shows"])
    limit = exp_bounds(Fraction(budget))[1]
    for column in zip(*table.rows, table.zero, strict=True):
        assert 0 <= max(column) <= limit * min(column)
    weights = shows.sum(axis=1) + 1
    assert weights.tolist() == [55, 24, 24]
    share = weights / weights.sum()
    wanted = np.array([[SCORES[segment][arm] for arm in ARMS] for segment in SEGMENTS])
    chances = np.array(table.rows, dtype=float) / 2.0**64
    value = float(share @ (wanted * chances).sum(axis=1))
    best = by_highs((share[:, None] * wanted).T, float(np.exp(budget)))
    assert value == pytest.approx(best, abs=1e-7)
    assert report.kept == pytest.approx(best, abs=1e-7)
    assert report.wanted == pytest.approx(float(share @ wanted.max(axis=1)))
    assert report.cost == report.wanted - report.kept


def test_the_same_scores_are_recorded_once(service: Deniable) -> None:
    assert [service.scores.put("hero", SCORES).recorded for _ in range(3)] == [True, False, False]
    assert service.scores.put("hero", OTHER).recorded
    kinds = [entry.kind for entry in service.ledger.entries()]
    assert kinds.count("scores") == 2


def test_probabilities_and_an_arm_that_is_switched_off(service: Deniable) -> None:
    """The rest of a row is scaled up; a segment that wanted only that arm gets the same chances."""
    service.scores.put("hero", CHANCES, kind="probabilities")
    service.experiments.switch_off("hero", "bold")
    _, table = newest(service)
    assert all(row[2] == 0 for row in (*table.rows, table.zero))
    assert table.rows[0][0] / table.rows[1][0] == pytest.approx(math.e, rel=1e-6)
    assert table.rows[2][0] == pytest.approx(2**63, rel=1e-6)
    without = {segment: {"old": 0.5, "new": 0.5} for segment in SEGMENTS}
    report = service.scores.put("hero", without, kind="probabilities")
    assert report.kept == pytest.approx(1)
    visited(service, 101)
    assert proved(service)


BAD: list[tuple[Any, str]] = [
    ({}, "segment -> arm"),
    ([], "segment -> arm"),
    ({"vip-new": 3}, "segment -> arm"),
    ({"vip-new": {}}, "segment -> arm"),
    ({**SCORES, "vip-secret": SCORES["vip-new"]}, "3 segments"),
    ({segment: SCORES[segment] for segment in SEGMENTS[:2]}, "3 segments"),
    ({**SCORES, "vip-new": {"old": 1, "new": 2}}, "each arm: old, new, bold"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "vip": 1}}, "each arm: old, new, bold"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": float("nan")}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": float("-inf")}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": 1e101}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": 10**400}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": "0.3"}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": True}}, "finite"),
    ({**SCORES, "vip-new": {**SCORES["vip-new"], "old": None}}, "finite"),
    ({f"s{i}": dict.fromkeys(map(str, range(100)), 0.5) for i in range(101)}, "at most 10,000"),
]


@pytest.mark.parametrize(("given", "allowed"), BAD)
def test_bad_scores_are_refused_without_naming_a_segment(
    service: Deniable, given: Any, allowed: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        service.scores.put("hero", given)
    assert allowed in str(caught.value)
    assert "vip" not in str(caught.value)
    assert "scores" not in [entry.kind for entry in service.ledger.entries()]


@pytest.mark.parametrize(
    "row", [{"old": 0.5, "new": 0.6, "bold": 0}, {"old": 1.5, "new": -0.5, "bold": 0}]
)
def test_bad_probabilities_are_refused(service: Deniable, row: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="sum to 1"):
        service.scores.put("hero", {**CHANCES, "vip-new": row}, kind="probabilities")
    with pytest.raises(InvalidArgumentError, match="scores or probabilities"):
        service.scores.put("hero", SCORES, kind="chances")  # type: ignore[arg-type]


def test_who_takes_no_scores(service: Deniable) -> None:
    running(service, "checkout", segments=SEGMENTS)
    with pytest.raises(WrongStateError, match="learns by itself"):
        service.scores.put("checkout", SCORES)
    with pytest.raises(UnknownNameError):
        service.scores.put("nobody", SCORES)
    service.experiments.stop("hero")
    with pytest.raises(WrongStateError, match="stopped"):
        service.scores.put("hero", SCORES)


def test_no_trace_budget_and_no_promise_across_time() -> None:
    with open_service("memory:") as service:
        design: dict[str, Any] = {"arms": ARMS, "segments": SEGMENTS, "budget": 1}
        with pytest.raises(InvalidArgumentError, match="counted with noise"):
            service.experiments.create("hero", **design, strategy="gate", trace_budget=1)
        with pytest.raises(InvalidArgumentError, match="retire an arm"):
            service.experiments.create("hero", **design, strategy="gate", across_time=True)
        service.experiments.create("hero", **design, strategy="constant", trace_budget=1)
        with pytest.raises(InvalidArgumentError, match="counted with noise"):
            service.experiments.replan({"hero": (10**9, "gate")})


def test_scores_that_come_while_a_table_is_made_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table must follow the newest scores before its own entry: an auditor looks."""
    made = table_making.next_table
    late: list[bool] = []
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        service.firm.set(budget=50)
        running(service, "hero", arms=ARMS, segments=SEGMENTS, strategy="gate")
        service.scores.put("hero", SCORES)

        def made_slowly(
            connection: Connection, experiment: Experiment, found: Sums
        ) -> PublishedTable:
            table = made(connection, experiment, found)
            monkeypatch.setattr(publisher, "next_table", made)
            late.append(service.scores.put("hero", OTHER).recorded)
            return table

        monkeypatch.setattr(publisher, "next_table", made_slowly)
        assert service.experiments.publish("hero") is None
        assert late == [True]
        assert service.experiments.publish("hero") is not None
        assert json.loads(newest(service)[0].counts)["scores"]["rows"][0] == [0.1, 0.2, 0.3]
        assert replayed(service) == "kept"


def test_results_where_only_one_arm_is_shown_any_more(service: Deniable) -> None:
    """Where all segments want the same arm the others get no chance at all, and nothing is divided."""
    visited(service, 90)
    service.scores.put("hero", OTHER)
    visited(service, 60, "w")
    assert [part > 0 for part in newest(service)[1].zero] == [False, False, True]
    found = service.experiments.results("hero")
    assert found.sentences


# -- planted faults --------------------------------------------------------------------------


def _as_method(function: Any) -> Any:
    return classmethod(function)


def _ignoring(cls: type[GateRule], budgets: tuple[int, ...], counts: Any, **_: Any) -> Table:
    even = tuple(2**64 // 4 * part for part in (2, 1, 1))
    return Table((even,) * len(counts.shows), even)


def _turned(cls: type[GateRule], budgets: tuple[int, ...], counts: Any, **more: Any) -> Table:
    """The right table, with two segments' rows exchanged."""
    right = ORIGINAL(budgets, counts, **more)
    return Table((right.rows[1], right.rows[0], *right.rows[2:]), right.zero)


ORIGINAL: Callable[..., Table] = GateRule.table


@pytest.mark.parametrize("fault", [_ignoring, _turned])
def test_a_table_that_ignores_the_scores_is_caught(
    service: Deniable, monkeypatch: pytest.MonkeyPatch, fault: Any, tmp_path: Path
) -> None:
    service.scores.put("hero", SCORES)
    with monkeypatch.context() as planted:
        planted.setattr(GateRule, "table", _as_method(fault))
        visited(service, 100)
    assert service.experiments.get("hero").table_number == 2
    assert replayed(service) == "broken"
    service.ledger.export_log(tmp_path / "log.parquet")
    assert not audit_log(tmp_path / "log.parquet").sound


def test_a_table_of_other_scores_than_the_chain_has_is_caught(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.scores.put("hero", SCORES)
    rows = tuple(tuple(OTHER[segment][arm] for arm in ARMS) for segment in SEGMENTS)
    with monkeypatch.context() as planted:
        planted.setattr(table_making, "newest_scores", lambda *_: Wanted("scores", rows))
        visited(service, 100)
    assert service.experiments.get("hero").table_number == 2
    assert replayed(service) == "broken"


def test_a_table_that_follows_the_chain_but_names_other_scores_is_caught(service: Deniable) -> None:
    """What a table names is what an outsider replays it from."""
    service.scores.put("hero", SCORES)
    visited(service, 100)
    promise = service.audits.promise("hero")
    table = promise.tables[-1]
    assert table.wanted is not None
    assert promise.replays(table)
    turned = Wanted(table.wanted.kind, table.wanted.rows[::-1])
    for named in (None, turned):
        assert not promise.replays(replace(table, wanted=named))


def test_a_ratio_above_the_budget_is_never_published_and_is_caught(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.scores.put("hero", SCORES)

    def greedy(_cls: Any, budgets: tuple[int, ...], counts: Any, **more: Any) -> Table:
        return ORIGINAL(tuple(2 * budget for budget in budgets), counts, **more)

    with monkeypatch.context() as planted:
        planted.setattr(GateRule, "table", _as_method(greedy))
        visited(service, 100)
        assert service.experiments.get("hero").table_number == 1
        planted.setattr(Table, "check", lambda *_: ())
        planted.setattr(promises, "check_table", lambda *_: None)
        service.experiments.publish("hero")
    assert service.experiments.get("hero").table_number == 2
    checks = {check.name: check.outcome for check in service.audits.run("hero").checks}
    assert checks["exact tables"] == "broken"
    assert not service.audits.firm().sound


def test_other_best_tables_replay_and_worse_ones_do_not() -> None:
    """A linear programme may have several best tables; an auditor's machine may find another."""
    recipe = Recipe("gate", budgets=(10**9, 10**9, 10**9), active=(0, 1, 2), cap=1)
    nothing = [[0, 0, 0], [0, 0, 0]]
    tied = Wanted("scores", ((1.0, 1.0, 0.0), (1.0, 1.0, 0.0)))
    counts = recipe.counts(nothing, nothing, wanted=tied)
    half, quarter, tiny = 2**63, 2**62, 2**40

    def table(*row: int) -> Table:
        return Table((row, row), row)

    assert recipe.replays(table(half, half, 0), counts)
    assert recipe.replays(table(3 * quarter, quarter, 0), counts)
    assert recipe.replays(table(half, half - 2**33, 2**33), counts)
    assert not recipe.replays(table(half, half - tiny, tiny), counts)
    assert not recipe.replays(Table(((half, half, 0),) * 2, (quarter, 3 * quarter, 0)), counts)
    silent = recipe.counts(nothing, nothing)
    assert not recipe.replays(table(half, half, 0), silent)


# -- copies and exports ----------------------------------------------------------------------


def test_logs_and_scratch_copies_are_sound(service: Deniable, tmp_path: Path) -> None:
    service.scores.put("hero", SCORES)
    visited(service, 130)
    copy, _ = service.scratch.make("hero")
    service.ledger.export_log(tmp_path / "log.parquet")
    found = audit_log(tmp_path / "log.parquet")
    assert found.sound
    service.scratch.remove(copy.key)
    assert service.ledger.verify().sound

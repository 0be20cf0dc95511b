"""Experiments on contexts: what a tracker knows anyway selects the row, and is never carried over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

import deniable
from deniable.audit.checks import Check
from deniable.documents.rendering import markdown
from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.privacy.tables import decoded_table
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.schema import metadata

pytestmark = pytest.mark.usefixtures("strict_audits", "fixed_entropy")

PHONE, DESKTOP = "phone", "desktop"


@pytest.fixture
def service() -> Iterator[Deniable]:
    with deniable.open("memory:") as service:
        service.firm.set(budget=1)
        service.experiments.create("hero", arms=["x", "y"], contexts=[PHONE, DESKTOP])
        service.experiments.start("hero")
        yield service


def learn(service: Deniable, visitors: int) -> None:
    """Let phones click on x, others on y."""
    for number in range(visitors):
        context = (PHONE, DESKTOP, None)[number % 3]
        decision = service.decide("hero", f"v{number}", context=context)
        if decision.arm == ("x" if context == PHONE else "y"):
            service.reward(decision.id, 1)


def test_each_context_learns_its_own_arm_commits_nothing_and_is_replayed(service: Deniable) -> None:
    learn(service, 900)
    table = decoded_table(service.experiments.tables("hero")[-1].rows, 2)
    assert [row.index(max(row)) for row in table.rows] == [1, 0, 1]
    assert service.experiments.get("hero").rows == ("other", PHONE, DESKTOP)
    assert service.experiments.get("hero").budget_nano == 0
    audit = service.audits.run("hero")
    assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
    assert service.audits.firm().sound
    assert service.ledger.verify().problem is None


def test_an_arm_is_kept_in_its_context_and_never_carried_to_another(service: Deniable) -> None:
    learn(service, 900)
    first = {c: service.decide("hero", "u", context=c) for c in (PHONE, DESKTOP, None)}
    assert len({decision.id for decision in first.values()}) == 3
    for context in (PHONE, DESKTOP, None):
        assert service.decide("hero", "u", context=context) == first[context]
        assert service.visitors.decisions("u", context)["hero"] == first[context]
    assert service.decide("hero", "u", context="unlisted") == first[None]
    # Somebody who was shown x on the phone is drawn for by the desktop's own chances.
    arms = Counter(service.decide("hero", f"w{n}", context=DESKTOP).arm for n in range(300))
    carried: Counter[str] = Counter()
    for number in range(300):
        if service.decide("hero", f"c{number}", context=PHONE).arm == "x":
            carried[service.decide("hero", f"c{number}", context=DESKTOP).arm] += 1
    assert arms["y"] > 250
    assert carried["y"] > 0.8 * carried.total() > 200


def test_the_segment_is_not_read(service: Deniable) -> None:
    learn(service, 600)
    first = service.decide("hero", "u", DESKTOP, context=PHONE)
    assert service.decide("hero", "u", context=PHONE) == first
    assert [stored.segment for stored in service.visitors.stored("u")] == [PHONE]


def test_a_context_that_is_added_has_a_row_from_the_next_table_on(service: Deniable) -> None:
    learn(service, 300)
    service.experiments.add_context("hero", "tv")
    for number in range(900):
        decision = service.decide("hero", f"t{number}", context="tv")
        if decision.arm == "x":
            service.reward(decision.id, 1)
    table = decoded_table(service.experiments.tables("hero")[-1].rows, 2)
    assert table.rows[3][0] > 0.9 * 2**64
    assert service.audits.run("hero").sound
    assert service.ledger.verify().problem is None
    for name, argument in (("tv", "context"), ("other", "contexts")):
        with pytest.raises(InvalidArgumentError) as refused:
            service.experiments.add_context("hero", name)
        assert refused.value.argument == argument


def test_erasing_a_visitor_erases_every_context(service: Deniable) -> None:
    for context in (PHONE, DESKTOP, None):
        service.decide("hero", "u", context=context)
    assert len(service.visitors.stored("u")) == 3
    assert service.visitors.erase(["u"]).decisions == 3
    assert service.visitors.stored("u") == []
    assert service.audits.run("hero").sound


@pytest.mark.parametrize(
    ("arguments", "argument", "reason"),
    [
        ({"contexts": [f"c{n}" for n in range(51)]}, "contexts", "at most 50"),
        ({"contexts": [PHONE], "strategy": "joint"}, "contexts", "none with the joint strategy"),
        (
            {"contexts": [PHONE], "strategy": "dynamic"},
            "contexts",
            "none with the dynamic strategy",
        ),
        ({"contexts": [PHONE], "segments": ["a"]}, "contexts", "none besides segments"),
        ({"contexts": ["other"]}, "contexts", "names without 'other'"),
        ({"contexts": [PHONE, PHONE]}, "contexts", "differ from each other"),
        ({"contexts": [PHONE], "budget": 1}, "budget", "commits no budget"),
        ({"contexts": [PHONE], "observed": False}, "observed", "true, or segments"),
        ({"segments": ["a"], "observed": False, "strategy": "joint"}, "observed", "true, or segm"),
        ({"strategy": "dynamic", "budget": 1}, "segments", "1 or more"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(
    arguments: dict[str, object], argument: str, reason: str
) -> None:
    with deniable.open("memory:") as service:
        with pytest.raises(InvalidArgumentError, match=reason) as refused:
            service.experiments.create("e", arms=["x", "y"], **arguments)  # type: ignore[arg-type]
        assert refused.value.argument == argument


def test_budgets_by_arm_are_refused() -> None:
    with deniable.open("memory:") as service:
        arms = [NewArm("x", budget=1), NewArm("y", budget=1)]
        with pytest.raises(InvalidArgumentError, match="unbounded"):
            service.experiments.create("e", arms=arms, contexts=[PHONE])


def test_a_context_is_never_removed_after_the_start(service: Deniable) -> None:
    with pytest.raises(WrongStateError, match="needs draft"):
        service.experiments.redraft("hero", contexts=[PHONE])


def test_unobserved_visits_have_an_experiment_of_their_own() -> None:
    with deniable.open("memory:") as service:
        service.firm.set(budget=1)
        service.experiments.create("mail", arms=["x", "y"], segments=["a", "b"], observed=False)
        service.experiments.start("mail")
        for number in range(600):
            segment = "ab"[number % 2]
            decision = service.decide("mail", f"v{number}", segment, observed=False)
            service.reward(decision.id, int(decision.arm == ("x" if segment == "a" else "y")))
        table = decoded_table(service.experiments.tables("mail")[-1].rows, 2)
        assert table.rows[0][0] > 0.9 * 2**64 > table.rows[1][0]
        with pytest.raises(WrongStateError, match="nobody observes"):
            service.decide("mail", "v1", "a")
        assert service.visitors.decisions("v1") == {}
        service.experiments.create("page", arms=["x", "y"], segments=["a", "b"], budget=1)
        service.experiments.start("page")
        with pytest.raises(WrongStateError, match="not declared unobserved"):
            service.decide("page", "v1", "a", observed=False)
        audit = service.audits.run("mail")
        assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
        assert service.firm.current().committed == 1
        for number in range(200):
            service.decide("page", f"v{number}", "a")
        assert service.experiments.unobserved() == (1, 0.75)
        statement = markdown(service.documents.draft("page", "statement"))
        assert "1 experiment for visits that the firm declares unobserved" in statement
        firm = service.audits.firm()
        assert firm.sound
        [check] = [check for check in firm.checks if check.name == "unobserved visits"]
        assert check.statement.startswith("600 of 800 decisions")


@pytest.mark.parametrize("fed", ["counters", "rewards"])
def test_the_audit_finds_unobserved_counts_in_another_experiment(fed: str) -> None:
    with deniable.open("memory:") as service:
        service.firm.set(budget=1)
        arms, segments = ["x", "y"], ["a"]
        service.experiments.create("mail", arms=arms, segments=segments, observed=False)
        service.experiments.create("page", arms=arms, segments=segments, budget=1)
        for key in ("mail", "page"):
            service.experiments.start(key)
        for number in range(20):
            decision = service.decide("mail", f"v{number}", "a", observed=False)
            service.reward(decision.id, 1)
            service.decide("page", f"v{number}", "a")
        [check] = _unobserved(service)
        assert check.outcome == "kept"
        mail, page = (bytes.fromhex(service.experiments.get(key).id) for key in ("mail", "page"))
        table = metadata.tables[fed]
        change = (
            update(table).where(table.c.experiment_id == mail).values(experiment_id=page)
            if fed == "rewards"
            else update(table).where(table.c.experiment_id == page).values(shows=40)
        )
        service._store.retried(lambda connection: connection.execute(change))
        [check] = _unobserved(service)
        assert check.outcome == "broken"


def _unobserved(service: Deniable) -> list[Check]:
    return [check for check in service.audits.firm().checks if check.name == "unobserved visits"]


def test_rewards_by_visitor_are_imported_by_context(service: Deniable, tmp_path: Path) -> None:
    visits = [(f"v{n}", context) for n in range(30) for context in (PHONE, DESKTOP, "")]
    for visitor, context in visits:
        service.decide("hero", visitor, context=context or None)
    rows = [f"{visitor},hero,{context},{int(context == PHONE)}" for visitor, context in visits]
    path = tmp_path / "rewards.csv"
    path.write_text("\n".join(["visitor,experiment,context,value", *rows]))
    assert service.import_rewards(path).applied == 90
    clicks = Counter[str]()
    for cell in service.experiments.counts("hero"):
        clicks[cell.segment or ""] += cell.clicks
    assert clicks[PHONE] == clicks.total() == 30
    path.write_text("visitor,experiment,value\nv1,hero,1")
    with pytest.raises(InvalidArgumentError, match="without a column of contexts"):
        service.import_rewards(path)

"""Audits of what is really stored, changed drafts, and what a visitor may ask."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from deniable.cli import main
from deniable.errors import InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.schema import decisions

pytestmark = pytest.mark.usefixtures("strict_audits")


def run(service: Deniable, key: str, visitors: int, segments: tuple[str, ...] = ("a", "b")) -> None:
    """Visitors in batches; in segment `a` the first arm is liked, elsewhere the last."""
    chance = random.Random(1)
    for start in range(0, visitors, 100):
        pairs = [(f"v{n}", segments[n % len(segments)]) for n in range(start, start + 100)]
        found = service.decide_batch(key, pairs)
        service.reward_batch(
            (d.id, int(chance.random() < (0.5 if (d.arm == "one") == (s == "a") else 0.1)))
            for d, (_, s) in zip(found, pairs, strict=True)
        )


@pytest.fixture
def service(store_url: str) -> Iterator[Deniable]:
    with open_service(store_url) as opened:
        opened.firm.set(budget=5)
        yield opened


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_what_the_service_draws_is_acquitted(service: Deniable, strategy: str) -> None:
    service.experiments.create(
        "e", arms=["one", "two", "three"], segments=["a", "b"], budget=1.5, strategy=strategy
    )  # fmt: skip
    service.experiments.start("e")
    run(service, "e", 3_000)
    found = service.audits.run("e")
    assert found.sound, found.checks
    assert found.decisions == 3_000
    assert found.beliefs is not None
    assert found.beliefs.arm.moved > 1  # the audit sees the real tables, not uniform ones


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_budgets_by_arm_hold_for_visitors_of_no_listed_segment(
    service: Deniable, strategy: str
) -> None:
    arms = [NewArm("one", budget=0.5), NewArm("two", budget=1), NewArm("three", budget=2)]
    service.experiments.create("e", arms=arms, segments=["a"], strategy=strategy)
    service.experiments.start("e")
    run(service, "e", 3_000, segments=("a", "of no list"))
    found = service.audits.run("e")
    assert found.sound, found.checks


def test_a_switched_off_arm_makes_a_second_version(service: Deniable) -> None:
    service.experiments.create("e", arms=["one", "two", "three"], segments=["a", "b"], budget=1)
    service.experiments.start("e")
    run(service, "e", 500)
    service.experiments.switch_off("e", "two")
    service.decide_batch("e", [(f"w{n}", "ab"[n % 2]) for n in range(500)])
    assert service.audits.promise("e").versions == {1: (0, 1, 2), 2: (0, 2)}
    found = service.audits.run("e")
    assert found.sound, found.checks
    assert [proof.version for proof in found.proofs] == [1, 2]


def test_arms_changed_in_the_store_are_caught(service: Deniable) -> None:
    service.experiments.create(
        "e", arms=["one", "two"], segments=["a", "b"], budget=0.5, strategy="dynamic"
    )
    service.experiments.start("e")
    run(service, "e", 3_000)
    with service._store.begin() as connection:
        connection.execute(update(decisions).where(decisions.c.segment == 0).values(shown=0))
    found = service.audits.run("e")
    broken = {check.name for check in found.checks if check.outcome == "broken"}
    assert broken >= {"the ledger", "counters and decisions", "draws follow their tables"}
    assert "counts alone" in broken


def test_a_recorded_audit_is_in_the_chain(service: Deniable) -> None:
    service.experiments.create("e", arms=["one", "two"], segments=["a"], budget=0.5)
    service.audits.run("e", record=True)
    last = service.ledger.entries()[-1]
    assert (last.kind, last.experiment, last.amount_nano) == ("audit", "e", 0)
    assert '"sound": true' in last.detail
    assert '"power": "There are no draws yet that could be off."' in last.detail
    assert service.ledger.verify().sound


def test_an_unknown_experiment_is_refused(service: Deniable) -> None:
    with pytest.raises(UnknownNameError):
        service.audits.run("nothing")


def test_drafts_are_replanned_together_or_not_at_all(service: Deniable) -> None:
    for key in ("x", "y"):
        service.experiments.create(key, arms=["one", "two"], segments=["a"], budget=0.5)
    done = service.experiments.replan({"x": (10**9, "constant"), "y": (2 * 10**9, "dynamic")})
    assert [(e.key, e.budget, e.strategy) for e in done] == [
        ("x", 1, "constant"),
        ("y", 2, "dynamic"),
    ]
    service.experiments.start("y")
    with pytest.raises(WrongStateError):
        service.experiments.replan({"x": (3 * 10**9, "dynamic"), "y": (10**9, "dynamic")})
    assert service.experiments.get("x").budget == 1
    with pytest.raises(InvalidArgumentError):
        service.experiments.replan({"x": (41 * 10**9, "dynamic")})
    assert service.firm.current().committed == 2
    assert service.ledger.verify().sound


def test_arms_with_own_budgets_are_not_replanned(service: Deniable) -> None:
    service.experiments.create(
        "x", arms=[NewArm("one", budget=1), NewArm("two", budget=2)], segments=["a"]
    )
    with pytest.raises(WrongStateError):
        service.experiments.replan({"x": (10**9, "dynamic")})


def test_a_visitor_sees_everything_until_erased(service: Deniable) -> None:
    for key in ("x", "y"):
        service.experiments.create(key, arms=["one", "two"], segments=["a"], budget=0.5)
        service.experiments.start(key)
    first = service.decide("x", "me", "a")
    service.decide("y", "me", "elsewhere")
    service.reward(first.id, 1)
    service.experiments.stop("x")
    found = {line.experiment: line for line in service.visitors.stored("me")}
    assert (found["x"].segment, found["x"].arm, found["x"].reward) == ("a", first.arm, 1)
    assert (found["y"].segment, found["y"].reward) == (None, None)
    assert service.visitors.stored("somebody else") == []
    service.visitors.erase(["me"])
    assert service.visitors.stored("me") == []


def test_an_audit_says_how_many_decisions_are_not_of_visitors_who_take_part(
    service: Deniable,
) -> None:
    """Its decisions are more than the visitors on the experiment's page: the rest was held out."""
    service.experiments.create("x", arms=["one", "two"], segments=["a"], budget=0.5, holdout=0.5)
    service.experiments.start("x")
    run(service, "x", 400)
    found = service.audits.run("x")
    visitors = sum(cell.shows for cell in service.experiments.counts("x"))
    assert (found.decisions, found.members) == (400, visitors)
    assert f"over 400 decisions, {400 - visitors} of them for visitors who do not" in found.verdict


def test_the_command_audits_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with open_service(url) as opened:
        opened.firm.set(budget=5)
        opened.experiments.create("e", arms=["one", "two"], segments=["a", "b"], budget=1)
        opened.experiments.start("e")
        run(opened, "e", 500)
    assert main(["audit", "e", "--store", url, "--chart", str(tmp_path / "audit.svg")]) == 0
    told = capsys.readouterr().out
    assert "The promise is kept, by design and over 500 decisions." in told
    assert (tmp_path / "audit.svg").read_text().startswith("<svg")
    assert main(["audit", "e", "--store", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    with open_service(url) as opened, opened._store.begin() as connection:
        connection.execute(update(decisions).values(shown=0))
    assert main(["audit", "e", "--store", url]) == 1
    assert "NOT kept" in capsys.readouterr().out
    assert main(["audit", "e", "--store", f"sqlite:///{tmp_path / 'none.db'}"]) == 2
    assert not (tmp_path / "none.db").exists()
    assert main(["audit", "nothing", "--store", url]) == 2

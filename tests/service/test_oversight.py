"""Erasure, purge and exports: totals and promise stay, and the logs say what was drawn from what."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pytest
from sqlalchemy import select
from tests.service.support import clicks, running, serving, shows

from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.mechanism import ArmSpecificResponse, RandomizedResponse
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.schema import decisions, memberships, rewards

LATER = datetime.now(UTC) + timedelta(days=1)


def rows(service: Deniable) -> list[Any]:
    with service._store.read() as connection:
        return list(connection.execute(select(decisions).order_by(decisions.c.seq)))


def test_erasing_forgets_the_visitor_and_keeps_the_totals(service: Deniable) -> None:
    running(service, strategy="constant")
    answers = {v: service.decide("checkout", v, "a") for v in ("anna", "bert", "carl")}
    service.reward_batch([(answer.id, 1) for answer in answers.values()])
    outcome = service.visitors.erase(["bert"])
    assert (outcome.decisions, outcome.debits_nano) == (1, {"checkout": NANO})
    assert service.firm.current().committed_nano == 2 * NANO
    (gone,) = [row for row in rows(service) if row.salt is None]
    assert {gone.visitor, gone.segment, gone.greedy, gone.shown, gone.clock, gone.risk_nano} == {
        None
    }
    with service._store.read() as connection:
        left = {row.decision_id.hex() for row in connection.execute(select(rewards))}
    assert left == {answers["anna"].id, answers["carl"].id}
    assert (shows(service), clicks(service)) == (3, 3)
    verified = service.ledger.verify()
    assert (verified.sound, verified.erased) == (True, 1)
    assert service.ledger.entries()[-1].kind == "erase"
    service.reward(answers["bert"].id, 1)  # taken like any other, counted nowhere
    assert clicks(service) == 3
    assert service.decide("checkout", "bert", "a").id != answers["bert"].id  # drawn for again
    assert service.decide("checkout", "anna", "a") == answers["anna"]
    assert service.ledger.verify().sound


def test_together_they_cost_one_debit_and_uniform_draws_none(service: Deniable) -> None:
    running(service, strategy="constant")
    for visitor in ("anna", "bert"):
        service.decide("checkout", visitor, "a")
    service.decide("checkout", "unlisted", "some other segment")
    assert service.visitors.erase(["unlisted"]).debits_nano == {}
    assert service.visitors.erase(["anna", "bert", "nobody"]).debits_nano == {"checkout": NANO}
    assert service.visitors.erase(["anna"]).decisions == 0


def test_without_budget_the_experiment_turns_uniform(store_url: str) -> None:
    with serving(store_url, budget=1) as service:
        running(service, strategy="constant")
        first = service.decide("checkout", "anna", "a")
        outcome = service.visitors.erase(["anna"])
        assert (outcome.decisions, outcome.exhausted) == (1, ["checkout"])
        assert service.experiments.get("checkout").exhausted
        assert service.decide("checkout", "anna", "a") != first
        assert [row.risk_nano for row in rows(service)] == [None, 0]
        service.firm.set(budget=1)  # a new period: draws have a budget again
        service.decide("checkout", "bert", "a")
        assert rows(service)[-1].risk_nano == NANO


def test_purge_leaves_running_experiments_alone_unless_told(service: Deniable) -> None:
    running(service, strategy="constant")
    running(service, "ended", strategy="constant", group="g")
    for key in ("checkout", "ended"):
        service.decide(key, "anna", "a")
    service.experiments.stop("ended")
    service.firm.set(budget=50)
    assert service.visitors.purge(before=datetime.now(UTC) - timedelta(days=1)).decisions == 0
    outcome = service.visitors.purge(before=LATER)
    assert (outcome.decisions, outcome.debits_nano) == (1, {})
    with service._store.read() as connection:
        assert connection.execute(select(memberships)).all() == []
    outcome = service.visitors.purge(before=LATER, running=True)
    assert (outcome.decisions, outcome.debits_nano) == (1, {"checkout": NANO})
    assert service.ledger.verify().erased == 2


def test_freed_members_of_a_stopped_experiment_cost_its_group(service: Deniable) -> None:
    running(service, "first", strategy="constant", group="g")
    service.decide("first", "anna", "a")
    service.experiments.stop("first")
    committed = service.firm.current().committed_nano
    assert service.visitors.erase(["anna"]).debits_nano == {"first": NANO}
    assert service.firm.current().committed_nano == committed + NANO


@pytest.fixture
def logged(service: Deniable) -> Deniable:
    running(service, strategy="constant", budget=0.75)
    answers = service.decide_batch(
        "checkout", [(f"v{i}", ["a", "b", "z"][i % 3]) for i in range(30)]
    )
    service.reward_batch([(answer.id, i % 2) for i, answer in enumerate(answers[:20])])
    service.experiments.switch_off("checkout", "bold")
    service.decide_batch("checkout", [(f"w{i}", "a") for i in range(10)])
    service.decide("checkout", "erased", "a")
    service.visitors.erase(["erased"])
    return service


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_private_log(logged: Deniable, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"log.{ending}"
    assert logged.ledger.export(path, experiment="checkout") == 40
    records = _read(path)
    assert len(records) == 40
    for record in records:
        arms = ["old", "new"] if int(record["version"]) == 2 else ["old", "new", "bold"]
        risk = float(record["risk"])
        assert risk == (0.75 if record["segment"] in ("a", "b") else 0)
        exact = RandomizedResponse(len(arms), risk)
        for arm in ("old", "new", "bold"):
            expected = 0.0 if arm not in arms else float(exact.exploration / len(arms))
            if arm == record["greedy"]:
                expected += 1 - float(exact.exploration)
            assert float(record[f"propensity_{arm}"]) == pytest.approx(expected, abs=1e-12)
        assert float(record["propensity"]) == float(record[f"propensity_{record['shown']}"])
    rewarded = [record for record in records if record["reward"] not in (None, "")]
    assert len(rewarded) == 20


def test_the_public_log_tells_nothing_private(logged: Deniable, tmp_path: Path) -> None:
    logged.ledger.export(tmp_path / "log.jsonl", experiment="checkout", shape="public")
    records = _read(tmp_path / "log.jsonl")
    assert {tuple(record) for record in records} == {
        ("experiment", "decision", "decided_at", "arm")
    }


def test_shapes_for_off_policy_tools(logged: Deniable, tmp_path: Path) -> None:
    logged.ledger.export(tmp_path / "log.csv", experiment="checkout", shape="open-bandit")
    bandit = _read(tmp_path / "log.csv")
    assert list(bandit[0]) == [
        "timestamp",
        "item_id",
        "position",
        "click",
        "propensity_score",
        "user_feature_0",
    ]
    logged.ledger.export(tmp_path / "log.vw", experiment="checkout", shape="vowpal-wabbit")
    lines = (tmp_path / "log.vw").read_text().splitlines()
    for line, record in zip(lines, bandit, strict=True):
        action, features = line.split(" | ")
        arm, cost, chance = action.split(":")
        assert int(arm) == int(record["item_id"]) + 1
        assert int(cost) == -int(record["click"])
        assert float(chance) == float(record["propensity_score"])
        assert features == f"segment={record['user_feature_0'] or '%'}"


def test_arm_specific_propensities(service: Deniable, tmp_path: Path) -> None:
    budgets = {"x": 0.5, "y": 1.0, "z": 2.0}
    running(service, arms=[NewArm(k, budget=b) for k, b in budgets.items()], strategy="constant")
    service.decide_batch("checkout", [(f"v{i}", "a") for i in range(20)])
    service.ledger.export(tmp_path / "log.jsonl", experiment="checkout")
    matrix = ArmSpecificResponse([0.5, 1.0, 2.0])
    for record in _read(tmp_path / "log.jsonl"):
        c = [float(matrix.exploration * w) for w in matrix.weights]
        for number, arm in enumerate(budgets):
            expected = c[number] + (1 - float(matrix.exploration)) * (arm == record["greedy"])
            assert record[f"propensity_{arm}"] == pytest.approx(expected, abs=1e-12)


def test_bad_paths_and_shapes(logged: Deniable, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="path"):
        logged.ledger.export(tmp_path / "log.xlsx", experiment="checkout")
    with pytest.raises(InvalidArgumentError, match="shape"):
        logged.ledger.export(tmp_path / "log.csv", experiment="checkout", shape="secret")  # type: ignore[arg-type]


def _read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return polars.read_parquet(path).to_dicts()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))

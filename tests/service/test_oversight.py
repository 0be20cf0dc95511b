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
from tests.service.support import clicks, published, running, serving, shows

from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.mechanism import ArmSpecificResponse, RandomizedResponse
from deniable.service.drafts import NewArm
from deniable.service.ids import DecisionIds
from deniable.service.service import Deniable
from deniable.storage.records import MICRO, Role
from deniable.storage.schema import decisions, rewards

LATER = datetime.now(UTC) + timedelta(days=1)


def rows(service: Deniable) -> list[Any]:
    with service._store.read() as connection:
        return list(connection.execute(select(decisions).order_by(decisions.c.seq)))


def test_erasing_forgets_the_visitor_and_keeps_the_totals(service: Deniable) -> None:
    running(service, strategy="constant")
    answers = {v: service.decide("checkout", v, "a") for v in ("anna", "bert", "carl")}
    service.reward_batch([(answer.id, 1) for answer in answers.values()])
    committed = service.firm.current().committed_nano
    assert service.visitors.erase(["bert"]).decisions == 1
    assert service.firm.current().committed_nano == committed  # nothing to debit
    (gone,) = [row for row in rows(service) if row.salt is None]
    assert {gone.visitor, gone.segment, gone.shown} == {None}
    with service._store.read() as connection:
        told = {
            DecisionIds(service._key, row.experiment_id).shown(row.decision_id): row.value
            for row in connection.execute(select(rewards))
        }
    assert told == {answer.id: None if v == "bert" else MICRO for v, answer in answers.items()}
    assert (shows(service), clicks(service)) == (3, 3)
    verified = service.ledger.verify()
    assert (verified.sound, verified.erased) == (True, 1)
    assert service.ledger.entries()[-1].kind == "erase"
    service.reward(answers["bert"].id, 1)  # taken like any other, counted nowhere
    assert clicks(service) == 3
    assert service.decide("checkout", "anna", "a") == answers["anna"]
    assert service.ledger.verify().sound


def test_who_was_erased_gets_the_zero_row_however_often(store_url: str) -> None:
    """Visit and erase, again and again: one draw at a risk, and the firm's budget stays as it is."""
    with serving(store_url, budget=1) as service:
        running(service, strategy="constant")
        for _ in range(5):
            service.decide("checkout", "anna", "a")
            assert service.visitors.erase(["anna"]).decisions == 1
        assert [row.role for row in rows(service)] == [Role.MEMBER] + 4 * [Role.ERASED]
        assert shows(service) == 1  # whoever comes back teaches nothing
        assert service.firm.current().committed_nano == NANO
        assert service.visitors.erase(["nobody"]).decisions == 0
        assert service.ledger.verify().problem is None


def test_purge_leaves_running_experiments_alone_unless_told(service: Deniable) -> None:
    running(service, strategy="constant")
    running(service, "ended", strategy="constant")
    answers = {key: service.decide(key, "anna", "a") for key in ("checkout", "ended")}
    service.experiments.stop("ended")
    assert service.visitors.purge(before=datetime.now(UTC) - timedelta(days=1)).decisions == 0
    assert service.visitors.purge(before=LATER).decisions == 1
    assert service.decide("checkout", "anna", "a") == answers["checkout"]
    told: list[tuple[int, int]] = []
    outcome = service.visitors.purge(
        before=LATER, running=True, progress=lambda *done: told.append(done)
    )
    assert outcome.decisions == 1
    assert told[-1][0] == told[-1][1]
    assert service.ledger.verify().erased == 2


@pytest.fixture
def logged(service: Deniable) -> Deniable:
    running(service, strategy="constant", budget=0.75)
    answers = service.decide_batch(
        "checkout", [(f"v{i}", ["a", "b", "z"][i % 3]) for i in range(30)]
    )
    service.reward_batch([(answer.id, int(i % 7 < 3)) for i, answer in enumerate(answers[:20])])
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
    learned = _rates(records)
    for record in records:
        first = int(record["version"]) == 1
        assert (int(record["table"]), record["role"]) == (1 if first else 2, "member")
        arms = ["old", "new", "bold"] if first else ["old", "new"]
        if first or record["segment"] not in ("a", "b"):  # nothing was learned yet: all alike
            expected = dict.fromkeys(arms, 1 / len(arms))
        else:  # by hand: the table of the second version knows the rewards of the first
            rates = {arm: learned["a"][arm] for arm in arms if arm in learned["a"]}
            best = [arm for arm in rates if rates[arm] == max(rates.values())]
            exact = RandomizedResponse(2, 0.75)
            expected = dict.fromkeys(arms, float(exact.exploration / 2))
            for arm in best:  # tied ones share the bonus
                expected[arm] += (1 - float(exact.exploration)) / len(best)
        for arm in ("old", "new", "bold"):
            chance = expected.get(arm, 0.0)
            assert float(record[f"propensity_{arm}"]) == pytest.approx(chance, abs=1e-12)
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
    logged.ledger.export(tmp_path / "private.csv", experiment="checkout")
    for row, private in zip(bandit, _read(tmp_path / "private.csv"), strict=True):
        assert row["propensity_score"] == private["propensity"]
        assert int(row["click"]) == int(private["reward"] or 0)
        assert row["user_feature_0"] == private["segment"]
    with pytest.raises(InvalidArgumentError, match="a file ending in"):
        logged.ledger.export(tmp_path / "log.vw", experiment="checkout")


def test_arm_specific_propensities(service: Deniable, tmp_path: Path) -> None:
    """Before anything is learned everybody has the weights; then the greedy arm has the bonus."""
    budgets = {"x": 0.5, "y": 1.0, "z": 2.0}
    running(service, arms=[NewArm(k, budget=b) for k, b in budgets.items()], strategy="constant")
    answers = service.decide_batch("checkout", [(f"v{i}", "a") for i in range(60)])
    service.reward_batch([(answer.id, int(answer.arm == "y")) for answer in answers])
    published(service)
    service.decide_batch("checkout", [(f"w{i}", "a") for i in range(20)])
    service.decide("checkout", "of no list", "b?")
    service.ledger.export(tmp_path / "log.jsonl", experiment="checkout")
    design = ArmSpecificResponse([0.5, 1.0, 2.0])
    explored, weights = float(design.exploration), [float(w) for w in design.weights]
    for record in _read(tmp_path / "log.jsonl"):
        told = [record[f"propensity_{arm}"] for arm in budgets]
        if record["segment"] is None:
            assert told == pytest.approx(weights, abs=1e-12)
        elif record["table"] == 1:  # all tied: they share the bonus
            shared = [explored * weight + (1 - explored) / 3 for weight in weights]
            assert told == pytest.approx(shared, abs=1e-12)
        else:
            bonus = [0, 1 - explored, 0]
            greedy = [explored * w + more for w, more in zip(weights, bonus, strict=True)]
            assert told == pytest.approx(greedy, abs=1e-12)


def test_bad_paths_and_shapes(logged: Deniable, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="path"):
        logged.ledger.export(tmp_path / "log.xlsx", experiment="checkout")
    with pytest.raises(InvalidArgumentError, match="shape"):
        logged.ledger.export(tmp_path / "log.csv", experiment="checkout", shape="secret")  # type: ignore[arg-type]


def _rates(records: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Segment -> arm -> clicks per show, of the first version's visitors."""
    shown: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if int(record["version"]) == 1 and record["segment"]:
            reward = int(record["reward"] or 0)
            shown.setdefault((record["segment"], record["shown"]), []).append(reward)
    rates: dict[str, dict[str, float]] = {"a": {"old": 0.0, "new": 0.0}}
    for (segment, arm), rewards_of in shown.items():
        if segment == "a" and arm in ("old", "new"):
            rates[segment][arm] = sum(rewards_of) / len(rewards_of)
    return rates


def _read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return polars.read_parquet(path).to_dicts()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))

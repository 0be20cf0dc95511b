"""One UPDATE of anything that carries the promise is noticed, and its experiment is not served."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from tests.service.http.site import running_site
from tests.service.support import running, serving

from deniable.errors import BrokenPromiseError, InsufficientBudgetError, WrongStateError
from deniable.privacy.epochs import LEAST_NEW
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.account_rules import DAY, HOUR

pytestmark = pytest.mark.usefixtures("strict_audits")

OF_ONE_EXPERIMENT = {
    "budget": "UPDATE experiments SET budget_nano = 5000000000 WHERE key = 'bad'",
    "strategy": "UPDATE experiments SET strategy = 'dynamic' WHERE key = 'bad'",
    "slots": "UPDATE experiments SET slots = zeroblob(125) WHERE key = 'bad'",
    "layer": "UPDATE experiments SET layer = 'other' WHERE key = 'bad'",
    "holdout": "UPDATE experiments SET holdout = 0 WHERE key = 'bad'",
    "attribution": "UPDATE experiments SET attribution_seconds = 9 WHERE key = 'bad'",
    "observed": "UPDATE experiments SET observed = 0 WHERE key = 'bad'",
    "contexts": "UPDATE experiments SET contexts = '[\"other\", \"p\"]' WHERE key = 'bad'",
    "tombstones": "UPDATE experiments SET has_tombstones = 1 WHERE key = 'bad'",
    "weight": "UPDATE arms SET weight = 9 WHERE position = 0 AND experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "version": "UPDATE experiments SET version = 2 WHERE key = 'bad'",
    "segment name": "UPDATE segments SET name = 'z' WHERE position = 0 AND experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "segment name as bytes": "UPDATE segments SET name = CAST(name AS BLOB) WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "arm budget as bytes": "UPDATE arms SET budget_nano = x'00' WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "arm budget": "UPDATE arms SET budget_nano = 9 WHERE position = 0 AND experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "table rows": "UPDATE tables SET rows = zeroblob(length(rows)) WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "table counts": "UPDATE tables SET counts = x'7b7d' WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "table counts as text": "UPDATE tables SET counts = '{}' WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "planned visitors": "UPDATE experiments SET planned_visitors = 7 WHERE key = 'bad'",
    "table strategy": "UPDATE tables SET strategy = 'dynamic' WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "table time": "UPDATE tables SET published_at = published_at - 1 WHERE experiment_id = "
    "(SELECT id FROM experiments WHERE key = 'bad')",
    "its ledger entry": "UPDATE commitments SET detail = replace(detail, '1000000000', "
    "'5000000000') WHERE kind = 'create' AND detail LIKE '%\"bad\"%'",
}
"""What -> one UPDATE. A service that reads the experiment must refuse it."""

OF_THE_STORE = {
    "firm budget": "UPDATE commitments SET detail = replace(detail, '10000000000', '90000000000') "
    "WHERE kind = 'firm'",
    "reward": "UPDATE rewards SET value = 0",
    "key fingerprint": "UPDATE facts SET value = zeroblob(32) WHERE name = 'visitor_key'",
    "shown arm": "UPDATE decisions SET shown = 1 - shown",
    "counters": "UPDATE counters SET value = value + 1000000",
    "counters as text": "UPDATE counters SET shows = 'many'",
    "tag": "UPDATE experiments SET tag = tag + 1",
    "last answer": "UPDATE answers SET hour = 0",
    "last answer as text": "UPDATE answers SET hour = 'never'",
    "last answers": "DELETE FROM answers",
}
"""What -> one UPDATE that no single experiment's row shows; the ledger does."""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    address = f"sqlite:///{tmp_path / 'store.db'}"
    with serving(address, budget=10) as service:
        for key in ("bad", "good"):
            running(service, key, arms=["x", "y"], strategy="constant", layer=key, holdout=0.1)
            shown = service.decide_batch(key, [(f"v{i}", "ab"[i % 2]) for i in range(30)])
            service.reward_batch([(one.id, 1) for one in shown])
        assert service.ledger.verify().sound
    return address


def changed(url: str, statement: str) -> None:
    """The attacker's UPDATE, which changes something."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        assert connection.execute(statement).rowcount >= 1
    connection.close()


def assert_refused(service: Deniable) -> None:
    with pytest.raises(WrongStateError, match="ledger verify"):
        service.decide("bad", "new", "a")
    assert service.decide("good", "new", "a").arm in ("x", "y")


@pytest.mark.parametrize("what", OF_ONE_EXPERIMENT)
def test_it_is_noticed_and_only_its_experiment_is_refused(url: str, what: str) -> None:
    changed(url, OF_ONE_EXPERIMENT[what])
    with open_service(url) as service:
        assert not service.ledger.verify().sound
        assert_refused(service)
        with running_site(service) as site:
            path = "/v1/experiments/{}/decisions"
            asked = {"json": {"visitor": "w", "segment": "a"}, "headers": site.headers("decide")}
            refused = site.client.post(path.format("bad"), **asked)
            assert (refused.status_code, refused.json()["type"][-11:]) == (409, "wrong-state")
            assert site.client.post(path.format("good"), **asked).status_code == 200


@pytest.mark.parametrize("what", OF_THE_STORE)
def test_the_ledger_notices(url: str, what: str) -> None:
    if what == "key fingerprint":
        with open_service(url) as service:
            changed(url, OF_THE_STORE[what])
            assert not service.ledger.verify().sound
        with pytest.raises(WrongStateError, match="visitor key"):
            open_service(url)
        return
    changed(url, OF_THE_STORE[what])
    with open_service(url) as service:
        assert not service.ledger.verify().sound
        if what == "firm budget":  # nothing can be spent from an account that was forged
            service.experiments.create("more", arms=["x", "y"], segments=["a"], budget=20)
            with pytest.raises(BrokenPromiseError):
                service.experiments.start("more")


@pytest.mark.parametrize("what", ["budget", "holdout", "segment name"])
def test_a_service_that_runs_meanwhile_stops_serving_it(url: str, what: str) -> None:
    """It has the true table in memory. When it looks for the next one it finds the row changed."""
    with open_service(url) as service:
        service.decide("bad", "first", "a")
        service._publisher.close()  # it has looked once, and found nothing
        changed(url, OF_ONE_EXPERIMENT[what])
        service.decide_batch("bad", [(f"n{i}", "a") for i in range(3 * LEAST_NEW)])
        service._publisher.close()  # it has looked
        assert_refused(service)
        assert len(service.experiments.tables("bad")) == 1


def test_a_changed_budget_leaves_no_table_behind(url: str) -> None:
    """Raise it, let a table be published, change it back: the table would still be in force."""
    with open_service(url) as service:
        service.writer.engine._grown = lambda _state: None  # nobody else publishes
        service.decide_batch("bad", [(f"n{i}", "a") for i in range(LEAST_NEW)])
        changed(url, OF_ONE_EXPERIMENT["budget"])
        with pytest.raises(BrokenPromiseError):
            service.experiments.publish("bad")
        changed(url, "UPDATE experiments SET budget_nano = 1000000000 WHERE key = 'bad'")
        assert service.ledger.verify().sound
        assert service.experiments.publish("bad") is not None
        assert service.audits.run("bad").sound


def test_another_key_beside_a_removed_fingerprint_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody would be drawn for again; the chain still knows that there was a key."""
    changed(url, "DELETE FROM facts WHERE name = 'visitor_key'")
    for key in ("5a" * 32, "6b" * 32):  # not even with the right one: the store was changed
        monkeypatch.setenv("DENIABLE_VISITOR_KEY", key)
        with pytest.raises(WrongStateError, match="the ledger knows a key"):
            open_service(url)


def test_rewards_that_were_changed_together_with_their_counters_are_noticed(url: str) -> None:
    changed(url, "UPDATE rewards SET value = 0")
    changed(url, "UPDATE counters SET value = 0, square = 0")
    with open_service(url) as service:
        assert not service.ledger.verify().sound


def test_a_last_answer_that_is_no_hour_is_named_and_never_chained(url: str) -> None:
    """A stop chains the last answer: what is no hour would make the account unreadable for ever."""
    changed(
        url,
        "UPDATE answers SET hour = 'never' WHERE experiment_id = "
        "(SELECT id FROM experiments WHERE key = 'bad')",
    )
    with open_service(url) as service:
        assert "last answer of experiment 'bad'" in str(service.ledger.verify().problem)
        assert not service.audits.firm().sound
        with pytest.raises(BrokenPromiseError, match="last answer"):
            service.experiments.stop("bad")
        changed(url, f"UPDATE answers SET hour = {int(time.time()) // 3600}")
        service.experiments.stop("bad")
        assert service.ledger.verify().sound


TOMBSTONES = {
    "all replaced": "UPDATE tombstones SET visitor = randomblob(16)",
    "one replaced": "UPDATE tombstones SET visitor = randomblob(16) WHERE rowid = 1",
    "one longer": "UPDATE tombstones SET visitor = CAST(visitor || x'00' AS BLOB) WHERE rowid = 1",
    "of another erasure": "UPDATE tombstones SET entry = (SELECT max(entry) FROM tombstones)",
    "one removed": "DELETE FROM tombstones WHERE rowid = 1",
    "one erasure removed": "DELETE FROM tombstones WHERE entry = (SELECT min(entry) FROM tombstones)",
    "all removed": "DELETE FROM tombstones",
    "one added": "INSERT INTO tombstones SELECT experiment_id, randomblob(16), entry "
    "FROM tombstones WHERE rowid = 1",
}


@pytest.mark.parametrize("what", TOMBSTONES)
def test_one_change_of_tombstones_is_noticed(url: str, what: str) -> None:
    """Without its tombstone an erased visitor is drawn for again, at a risk."""
    with open_service(url) as service:
        service.visitors.erase([f"v{i}" for i in range(5)])
        service.visitors.erase([f"v{i}" for i in range(5, 9)])
        assert service.ledger.verify().sound
    changed(url, TOMBSTONES[what])
    with open_service(url) as service:
        service.decide_batch("bad", [(f"v{i}", "a") for i in range(9)])
        assert "tombstones of experiment" in str(service.ledger.verify().problem)
        assert not service.audits.run("bad").sound
        assert not service.audits.firm().sound


def test_last_answers_set_back_free_nothing_and_are_noticed(tmp_path: Path) -> None:
    """Known visitors only for 95 days; then one UPDATE pretends that nobody came, and a stop."""
    address, now = f"sqlite:///{tmp_path / 'store.db'}", [times.now()]
    with times.running_on(lambda: now[0]):
        with serving(address, budget=1) as service:
            for key in ("first", "second"):
                service.experiments.create(key, arms=["x", "y"], segments=["a", "b"], budget=1)
            service.experiments.start("first")
            for _ in range(96):
                service.decide("first", "v", "a")
                now[0] += DAY + 1
                service.beat()
            assert service.ledger.verify().sound
        changed(address, "UPDATE answers SET hour = hour - 95 * 24")
        with open_service(address) as service:
            assert "last answer of experiment 'first'" in str(service.ledger.verify().problem)
            assert not service.audits.firm().sound
            service.experiments.stop("first")
            with pytest.raises(InsufficientBudgetError):
                service.experiments.start("second")
            (stop,) = (e.detail for e in service.ledger.entries() if e.kind == "stop")
            assert json.loads(stop)["last_answer"] == (now[0] - DAY - 1) // HOUR
            changed(address, "DELETE FROM answers")
            with pytest.raises(InsufficientBudgetError):
                service.experiments.start("second")
            assert not service.ledger.verify().sound


def test_a_last_answer_in_the_future_is_noticed(url: str) -> None:
    """It would count for ever."""
    changed(url, "UPDATE answers SET hour = hour + 1000")
    with open_service(url) as service:
        assert "last answer of experiment" in str(service.ledger.verify().problem)


def test_the_last_answers_are_chained_once_a_day(tmp_path: Path) -> None:
    """Also where other entries are recorded all the time."""
    start = times.now()
    now = [start]
    with times.running_on(lambda: now[0]), serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
        running(service, "one")
        running(service, "two")
        for hour in range(80):
            now[0] = start + hour * HOUR
            if hour < 30:
                service.decide("one", "v", "a")
            service.decide("two", f"v{hour}", "a")
            service.experiments.note("two", "looked at it")
            service.beat()
        clocks = [json.loads(e.detail) for e in service.ledger.entries() if e.kind == "clock"]
        ids = [service.experiments.get(key).id for key in ("one", "two")]
        hours = [[clock["answers"].get(identity) for identity in ids] for clock in clocks]
        first = start // HOUR
        # The first answer of an hour is followed by the entry, where it is due.
        assert hours == [[first + 25, first + 24], [first + 29, first + 50], [None, first + 75]]
        assert service.ledger.verify().sound

"""Drafts are changed, copied and removed; notes and labels are acts in the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete
from tests.service.support import running, serving

from deniable.audit.log import audit_log
from deniable.errors import InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage import commitments
from deniable.storage.listing import Search
from deniable.storage.schema import arms, experiments, segments


def draft(service: Deniable, key: str = "checkout", **more: Any) -> None:
    service.experiments.create(
        key, arms=["old", "new"], segments=["a", "b"], **{"budget": 1.0, **more}
    )


def test_a_draft_is_changed_and_then_promises_the_change(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 's.db'}") as service:
        draft(service, layer="page", planned_visitors=10)
        assert service.decide("checkout", "v", "a").arm == "old"
        changed = service.experiments.redraft(
            "checkout", arms=["bold", NewArm("new", "New!"), "third"], budget=0.5, layer=None
        )
        assert [arm.key for arm in changed.arms] == ["bold", "new", "third"]
        assert (changed.budget, changed.layer, changed.planned_visitors) == (0.5, None, 10)
        assert changed.default_arm == "bold"  # the old one is gone
        assert service.decide("checkout", "v", "a").arm == "bold"
        service.experiments.start("checkout")
        assert service.decide("checkout", "v", "a").arm in ("bold", "new", "third")
        assert service.ledger.verify().sound
        assert service.audits.firm().sound
        assert service.audits.promise("checkout").budget_nano == 500_000_000
        with pytest.raises(WrongStateError, match="needs draft"):
            service.experiments.redraft("checkout", budget=3.0)
        with pytest.raises(WrongStateError, match="needs draft"):
            service.experiments.discard("checkout")


def test_a_wrong_change_changes_nothing() -> None:
    with serving("memory:") as service:
        draft(service)
        before = service.experiments.get("checkout")
        for wrong in ({"budget": -1.0}, {"arms": ["one"]}, {"default_arm": "x"}, {"colour": 1}):
            with pytest.raises(InvalidArgumentError):
                service.experiments.redraft("checkout", **wrong)
        assert service.experiments.get("checkout") == before


def test_a_draft_is_removed_and_its_name_is_free(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 's.db'}") as service:
        draft(service)
        service.experiments.label("checkout", owner="Ada", tags=["x"])
        service.experiments.note("checkout", "not needed")
        assert service.decide("checkout", "v", "a").arm == "old"
        service.experiments.discard("checkout")
        with pytest.raises(UnknownNameError):
            service.decide("checkout", "v", "a")
        assert service.experiments.used_labels() == ([], [])
        assert service.ledger.verify().sound
        assert service.audits.firm().sound
        draft(service, default_arm="new")
        assert service.decide("checkout", "v", "a").arm == "new"
        service.experiments.start("checkout")
        service.decide("checkout", "v", "a")
        assert service.ledger.verify().sound
        service.ledger.export_log(tmp_path / "log.jsonl")
    assert audit_log(tmp_path / "log.jsonl").sound


def test_a_started_experiment_cannot_be_removed_by_an_entry(tmp_path: Path) -> None:
    """The planted fault: rows of a running experiment are removed, and the ledger is told `discard`."""
    with serving(f"sqlite:///{tmp_path / 's.db'}") as service:
        made = running(service)
        with service._store.begin() as connection:
            commitments.lock_chain(connection)
            commitments.record(connection, "discard", made, key=made.key)
            for owned in (arms, segments):
                connection.execute(
                    delete(owned).where(owned.c.experiment_id == bytes.fromhex(made.id))
                )
            connection.execute(
                delete(experiments).where(experiments.c.id == bytes.fromhex(made.id))
            )
        assert not service.ledger.verify().sound
        assert not service.audits.firm().sound


def test_copies_are_drafts_of_their_own() -> None:
    with serving("memory:") as service:
        running(
            service,
            arms=[
                NewArm("a", "A", 0.7),
                NewArm("b", "B", 0.29),
            ],  # whole nano-nats by rounding down
            strategy="constant",
            holdout=0.1,
        )
        copy = service.experiments.duplicate("checkout", "second")
        first = service.experiments.get("checkout")
        assert (copy.status, copy.key) == ("draft", "second")
        for name in ("arms", "segments", "strategy", "budget_nano", "holdout", "metrics"):
            assert getattr(copy, name) == getattr(first, name)
        with pytest.raises(WrongStateError, match="exists already"):
            service.experiments.duplicate("checkout", "second")


def test_notes_and_labels_are_in_the_ledger() -> None:
    with serving("memory:") as service:
        draft(service)
        service.experiments.note("checkout", "  Two\nlines ")
        service.experiments.label("checkout", owner="Ada", tags=["b", "a", "b", ""])
        told = {e.kind: json.loads(e.detail) for e in service.experiments.events("checkout")}
        assert told["note"] == {"text": "Two\nlines"}
        assert told["label"] == {"owner": "Ada", "tags": ["a", "b"]}
        assert service.experiments.labels("checkout").tags == ("a", "b")
        for text in ("", "  ", "x" * 2_001, "\x1b[31m"):
            with pytest.raises(InvalidArgumentError):
                service.experiments.note("checkout", text)
        with pytest.raises(InvalidArgumentError):
            service.experiments.label("checkout", tags=[f"t{n}" for n in range(21)])
        assert service.ledger.verify().sound


def test_finding() -> None:
    with serving("memory:") as service:
        for number, name in enumerate(["alpha", "Beta", "gamma_1", "gammaX1"]):
            draft(service, name, budget=0.1 * (number + 1))
        running(service, "serving")
        service.decide_batch("serving", [(f"v{n}", "a") for n in range(7)])
        service.experiments.label("alpha", owner="Ada", tags=["checkout"])

        def keys(**wanted: object) -> list[str]:
            return [e.key for e in service.experiments.find(Search(**wanted)).experiments]  # type: ignore[arg-type]

        assert keys(order="name", descending=False) == [
            "alpha", "Beta", "gamma_1", "gammaX1", "serving",
        ]  # fmt: skip
        assert keys(text="GAMMA_") == ["gamma_1"]  # no pattern
        assert keys(text="checkout") == keys(owner="Ada") == keys(tag="checkout") == ["alpha"]
        assert keys(statuses=("running",)) == ["serving"]
        assert keys(order="visitors")[0] == "serving"
        assert keys(order="budget", statuses=("draft",))[0] == "gammaX1"
        page = service.experiments.find(Search(first=1, limit=2, order="name", descending=False))
        assert ([e.key for e in page.experiments], page.total) == (["Beta", "gamma_1"], 5)
        assert service.experiments.totals() == {"draft": 4, "running": 1}

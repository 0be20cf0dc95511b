"""Labels in the service: one first label per visitor, whatever is sent later; no segment anywhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

import deniable
from deniable.errors import (
    ApprovalNeededError,
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.masks.mask import Mask
from deniable.service.service import Deniable
from deniable.storage.schema import decisions, mask_labels

SEGMENTS = ["sports", "music", "garden"]
KEY = bytes(range(32))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deniable]:
    """A firm with a budget of 3, and a mask of 2 with a known key."""
    monkeypatch.setenv("DENIABLE_MASK_KEY", KEY.hex())
    with deniable.open("memory:") as opened:
        opened.firm.set(budget=3)
        opened.masks.create("interest", segments=SEGMENTS, budget=2)
        yield opened


def reference(**changes: object) -> Mask:
    """The library's mask, which every other engine agrees with."""
    wanted = {"segments": SEGMENTS, "budget": 2, "key": KEY, "name": "interest", **changes}
    return Mask(**wanted)  # type: ignore[arg-type]


def test_labels_are_the_librarys_and_the_first_value_counts(service: Deniable) -> None:
    names = [f"v-{number}" for number in range(300)]
    first = [SEGMENTS[number % 3] for number in range(300)]
    labels = service.masks.label_batch("interest", zip(names, first, strict=True))
    assert labels == reference().labels(names, first)
    later = [SEGMENTS[(number + 1) % 3] for number in range(300)]
    assert labels != reference().labels(names, later)  # a second evaluation would show
    assert service.masks.label_batch("interest", zip(names, later, strict=True)) == labels
    assert service.masks.label_batch("interest", [(name, None) for name in names]) == labels


def test_twice_in_one_batch_counts_once(service: Deniable) -> None:
    pairs = [("v-1", segment) for segment in SEGMENTS * 5]
    assert set(service.masks.label_batch("interest", pairs)) == {reference().label("v-1", "sports")}


def test_an_unknown_segment_is_replaced_once(service: Deniable) -> None:
    for number in range(60):
        name, segment = f"v-{number}", SEGMENTS[number % 3]
        null = reference().label(name, None)
        assert service.masks.label("interest", name) == null
        assert service.masks.label("interest", name, "not listed") == null
        known = service.masks.label("interest", name, segment)
        assert known == reference().label(name, segment)
        assert service.masks.label("interest", name, SEGMENTS[(number + 1) % 3]) == known


def test_a_label_made_elsewhere_is_kept(service: Deniable) -> None:
    other = {"~sports": "~music", "~music": "~garden", "~garden": "~sports"}
    made = other[reference().label("v-1", "sports")]
    assert service.masks.label("interest", "v-1", made) == made
    assert service.masks.label("interest", "v-1", "sports") == made


def test_experiments_decide_and_learn_by_label_alone(service: Deniable) -> None:
    service.experiments.create("e", arms=["a", "b"], mask="interest", planned_visitors=4_000)
    service.experiments.start("e")
    likes = {"sports": "a", "music": "b", "garden": "b"}
    for number in range(1_500):
        segment = SEGMENTS[number % 3]
        shown = service.decide("e", f"v-{number}", segment)
        service.reward(shown.id, int(likes[segment] == shown.arm))
    with service._store.read() as connection:
        rows = connection.execute(select(decisions.c.segment)).scalars().all()
    drawn = reference().labels(
        [f"v-{number}" for number in range(1_500)], [SEGMENTS[n % 3] for n in range(1_500)]
    )
    names = reference().labels_in_order
    assert sorted(rows) == sorted(names.index(label) for label in drawn)
    counted = {(cell.segment, cell.arm): cell.shows for cell in service.experiments.counts("e")}
    assert counted["~sports", "a"] > 3 * counted["~sports", "b"]
    assert counted["~music", "b"] > 3 * counted["~music", "a"]
    assert service.ledger.verify().problem is None


def test_arms_are_kept_and_not_kept(service: Deniable) -> None:
    for key, sticky in (("kept", True), ("again", False)):
        service.experiments.create(key, arms=["a", "b"], mask="interest", sticky=sticky)
        service.experiments.start(key)
    kept = {service.decide("kept", "v-1", segment) for segment in SEGMENTS}
    assert len(kept) == 1
    again = [service.decide("again", "v-1", segment) for segment in SEGMENTS * 40]
    assert len({decision.id for decision in again}) == 120
    assert {decision.arm for decision in again} == {"a", "b"}  # fails with chance 2^-119
    for decision in again:
        service.reward(decision.id, 1)
    assert sum(cell.clicks for cell in service.experiments.counts("again")) == 120
    with service._store.read() as connection:
        rows = connection.execute(select(decisions.c.segment, decisions.c.visitor)).all()
    # One label for life, and nothing that two decisions of the visitor share.
    assert len({row.segment for row in rows}) == 1
    assert len({row.visitor for row in rows}) == 121
    assert [one.experiment for one in service.visitors.stored("v-1")] == ["kept"]


def test_the_budget_is_committed_once(service: Deniable) -> None:
    assert service.firm.current().committed == 2
    for number in range(5):
        service.experiments.create(f"e{number}", arms=["a", "b"], mask="interest")
        service.experiments.start(f"e{number}")
        service.decide(f"e{number}", "v-1", "sports")
    assert service.firm.current().committed == 2
    with pytest.raises(InsufficientBudgetError) as refused:
        service.masks.create("age", segments=["young", "old"], budget="1.000000001")
    assert (refused.value.remaining, refused.value.requested) == (10**9, 10**9 + 1)
    service.masks.create("age", segments=["young", "old"], budget=1)
    with pytest.raises(WrongStateError, match="stop e0, e1"):
        service.masks.end("interest")
    for number in range(5):
        service.experiments.stop(f"e{number}")
    service.masks.end("interest")
    assert service.firm.current().committed == 3  # until a window after its last answer
    for attempt in (
        lambda: service.masks.label("interest", "v-9", "sports"),
        lambda: service.masks.end("interest"),
        lambda: service.experiments.create("late", arms=["a", "b"], mask="interest"),
    ):
        with pytest.raises(WrongStateError, match="has ended"):
            attempt()


def test_a_new_period_is_a_new_commitment(service: Deniable) -> None:
    service.experiments.create("e", arms=["a", "b"], mask="interest")
    service.experiments.start("e")
    with pytest.raises(WrongStateError, match="another version or period"):
        service.masks.create("interest", segments=SEGMENTS, budget=1)
    with pytest.raises(WrongStateError, match="have its earlier labels"):
        service.masks.create("interest", segments=["young", "old"], budget=1, period="2027")
    service.masks.create("interest", segments=SEGMENTS, budget=1, period="2027")
    assert service.firm.current().committed == 3
    names = [f"v-{number}" for number in range(50)]
    for name in names:
        service.decide("e", name, "sports")
    found = [service.visitors.labels(name) for name in names]
    expected = reference(budget=1, period="2027").labels(names, ["sports"] * 50)
    assert [(label.period, label.label) for (label,) in found] == [("2027", e) for e in expected]


def test_erased_visitors_get_equal_chances_until_the_end(service: Deniable) -> None:
    names = [f"v-{number}" for number in range(200)]
    service.masks.label_batch("interest", [(name, "sports") for name in names])
    service.visitors.erase(names)
    assert service.visitors.labels("v-1") == []
    null = reference().labels(names, [None] * 200)
    for segment in SEGMENTS:
        again = service.masks.label_batch("interest", [(name, segment) for name in names])
        assert again == null
    with service._store.read() as connection:
        assert connection.execute(select(mask_labels.c.label).distinct()).scalars().all() == [None]
    entry = service.ledger.entries()[-1]
    assert (entry.kind, '"labels": 200' in entry.detail) == ("erase_labels", True)


def test_access_requests_tell_label_period_and_arms(service: Deniable) -> None:
    service.experiments.create("e", arms=["a", "b"], mask="interest")
    service.experiments.start("e")
    shown = service.decide("e", "v-1", "garden")
    (label,) = service.visitors.labels("v-1")
    assert (label.mask, label.period) == ("interest", "life")
    assert label.label == reference().label("v-1", "garden")
    (stored,) = service.visitors.stored("v-1")
    assert (stored.segment, stored.arm, stored.risk) == (label.label, shown.arm, 0.0)


def test_no_file_of_the_store_holds_a_segment_or_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DENIABLE_MASK_KEY", raising=False)
    path = tmp_path / "store.db"
    with deniable.open(f"sqlite:///{path}") as service:
        service.firm.set(budget=3)
        service.masks.create("interest", segments=SEGMENTS, budget=2)
        service.experiments.create("e", arms=["a", "b"], mask="interest")
        service.experiments.start("e")
        for number in range(400):
            service.decide("e", f"v-{number}", "garden")
            service.masks.label("interest", f"w-{number}", "garden")
    key = tmp_path / "store.db.mask.key"
    assert key.stat().st_mode & 0o777 == 0o600
    everything = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*") if file != key)
    assert everything.count(b"garden") <= 12  # definitions; 800 visitors sent it
    assert key.read_text().strip().encode() not in everything
    assert bytes.fromhex(key.read_text()) not in everything
    with sqlite3.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM mask_labels").fetchone() == (800,)
        shares = dict(
            plain.execute("SELECT segment, count(*) FROM decisions GROUP BY 1").fetchall()
        )
    assert (
        len(shares) == 3
    )  # 400 visitors of one segment, and all labels: fails with chance < 1e-20
    # Without its key the service decides nothing on it, and makes no other one.
    key.rename(tmp_path / "elsewhere")
    with deniable.open(f"sqlite:///{path}") as service:
        for attempt in (
            lambda: service.decide("e", "new", "garden"),
            lambda: service.masks.label("interest", "new", "garden"),
        ):
            with pytest.raises(WrongStateError, match="does not have the key"):
                attempt()
        with pytest.raises(WrongStateError, match="key of the firm's masks is missing"):
            service.masks.create("age", segments=["a", "b"], budget=1)
    key.write_text("11" * 32)
    key.chmod(0o600)
    with deniable.open(f"sqlite:///{path}") as service:
        with pytest.raises(WrongStateError, match="does not have the key"):
            service.masks.label("interest", "new", "garden")
        with pytest.raises(WrongStateError, match="labels from another key"):
            service.masks.create("age", segments=["a", "b"], budget=1)


def test_refusals_name_what_is_wrong_and_repeat_nothing(service: Deniable) -> None:
    for visitor in ("", "v 1", "vö", "v" * 257):
        with pytest.raises(InvalidArgumentError, match="printable ASCII") as refused:
            service.masks.label("interest", visitor, "sports")
        assert not visitor or visitor not in str(refused.value)
    service.experiments.create("e", arms=["a", "b"], mask="interest")
    service.experiments.start("e")
    with pytest.raises(InvalidArgumentError, match="printable ASCII"):
        service.decide("e", "vö", "sports")
    with pytest.raises(UnknownNameError):
        service.masks.label("other", "v", "sports")
    with pytest.raises(UnknownNameError):
        service.experiments.create("x", arms=["a", "b"], mask="other")
    with pytest.raises(InvalidArgumentError, match="labels take their place"):
        service.experiments.create("x", arms=["a", "b"], mask="interest", segments=["a"])
    with pytest.raises(InvalidArgumentError, match="unbounded"):
        service.experiments.create(
            "x", arms=["a", "b"], mask="interest", strategy="joint", budget=1
        )
    with pytest.raises(InvalidArgumentError, match="only experiments on a mask"):
        service.experiments.create("x", arms=["a", "b"], segments=["a"], budget=1, sticky=False)


def test_a_mask_above_the_limit_needs_a_second_person(service: Deniable) -> None:
    service.firm.change_settings(start_above=0.5)
    with pytest.raises(ApprovalNeededError):
        service.masks.create("age", segments=["young", "old"], budget=1)
    service.masks.create("age", segments=["young", "old"], budget="0.5")


def test_layers_and_holdouts_work_at_no_cost(service: Deniable) -> None:
    for key in ("one", "two"):
        service.experiments.create(key, arms=["a", "b"], mask="interest", layer="page", holdout=0.1)
        service.experiments.start(key, share=0.5)
        for number in range(400):
            service.decide(key, f"v-{number}", "sports")
    with service._store.read() as connection:
        rows = connection.execute(select(decisions.c.experiment_id, decisions.c.role)).all()
    roles = {
        key: [row.role for row in rows if row.experiment_id == key] for key in {r[0] for r in rows}
    }
    for mine in roles.values():
        assert 120 < mine.count(0) < 240  # about 180 of 400; others see the neutral row
        assert mine.count(2) > 2
    assert service.firm.current().committed == 2


def test_rows_are_labels_by_context(service: Deniable) -> None:
    service.experiments.create("e", arms=["a", "b"], mask="interest", contexts=["phone"])
    service.experiments.start("e")
    labels = reference().labels_in_order
    for number in range(90):
        name, segment = f"v-{number}", SEGMENTS[number % 3]
        for context in (None, "phone"):
            service.decide("e", name, segment, context=context)
    with service._store.read() as connection:
        rows = connection.execute(select(decisions.c.segment, decisions.c.visitor)).all()
    drawn = [
        labels.index(reference().label(f"v-{number}", SEGMENTS[number % 3])) for number in range(90)
    ]
    # One label in both contexts; an arm, and a row that cannot be linked, in each.
    assert sorted(row.segment for row in rows) == sorted([*drawn, *(3 + label for label in drawn)])
    assert len({row.visitor for row in rows}) == 180
    assert service.ledger.verify().problem is None

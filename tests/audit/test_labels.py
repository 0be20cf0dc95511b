"""Audits of labels: a sound service passes, and each planted fault is found by its check."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.service.test_labels import KEY, SEGMENTS, reference

import deniable
from deniable.audit.checks import broken
from deniable.audit.labels import channel_check, expected_label, shares_check
from deniable.masks.definition import definition
from deniable.masks.mask import Mask
from deniable.service import table_making
from deniable.service.batch import JobBatch
from deniable.service.service import Deniable
from deniable.storage.store import FirstLabel, NewLabel
from deniable.storage.table_counts import table_counts

Patch = pytest.MonkeyPatch


@pytest.fixture
def service(monkeypatch: Patch) -> Iterator[Deniable]:
    monkeypatch.setenv("DENIABLE_MASK_KEY", KEY.hex())
    with deniable.open("memory:") as opened:
        opened.firm.set(budget=3)
        opened.masks.create("interest", segments=SEGMENTS, budget=2)
        for key, sticky in (("kept", True), ("again", False)):
            opened.experiments.create(key, arms=["a", "b"], mask="interest", sticky=sticky)
            opened.experiments.start(key)
        yield opened


def visited(service: Deniable, visitors: int = 600) -> None:
    chosen = random.Random(4)
    for number in range(visitors):
        segment = chosen.choice(SEGMENTS)
        for key in ("kept", "again"):
            arm = service.decide(key, f"v-{number}", segment)
            service.reward(arm.id, int((segment == "sports") == (arm.arm == "a")))


def found(service: Deniable) -> set[str]:
    return {name for key in ("kept", "again") for name in broken(service.audits.run(key).checks)}


def test_a_sound_service_passes(service: Deniable) -> None:
    visited(service)
    service.visitors.erase(["v-1", "v-2"])
    assert not found(service)
    assert service.audits.firm().sound


def _shared_randomness(patch: Patch) -> None:
    draw = Mask._u
    patch.setattr(Mask, "_u", lambda mask, message, _number: draw(mask, message, 0))


def _five_percent_off(patch: Patch) -> None:
    label = Mask.label_of_group

    def more_often(mask: Mask, visitor: str, number: int) -> str:
        own = number < len(mask.groups) and hash(visitor) % 20 == 0
        return mask.labels_in_order[number] if own else label(mask, visitor, number)

    patch.setattr(Mask, "label_of_group", more_often)


class _Forgetful:
    """A transaction that does not find some first labels."""

    def __init__(self, whole: Any, forgets: Callable[[FirstLabel], bool]) -> None:
        self._whole, self._forgets = whole, forgets

    def labels(self, mask: bytes, visitors: Sequence[bytes]) -> dict[bytes, FirstLabel]:
        stored = self._whole.labels(mask, visitors)
        return {name: label for name, label in stored.items() if not self._forgets(label)}

    def put_labels(self, rows: Sequence[NewLabel]) -> int:
        self._whole.put_labels(rows)
        return len(rows)


def _forgotten(patch: Patch, forgets: Callable[[FirstLabel], bool]) -> None:
    label = JobBatch._labels

    def again(work: Any, mask: Any, pairs: Any) -> list[int]:
        whole, work._tx = work._tx, _Forgetful(work._tx, forgets)
        try:
            return label(work, mask, pairs)
        finally:
            work._tx = whole

    patch.setattr(JobBatch, "_labels", again)


def _redrawn_on_change(patch: Patch) -> None:
    _forgotten(patch, lambda _label: True)


def _redrawn_after_erasure(patch: Patch) -> None:
    _forgotten(patch, lambda label: label.label is None)


def _second_value_at_the_endpoint(patch: Patch) -> None:
    def evaluated(work: JobBatch, mask: Any, jobs: Any) -> None:
        for job in jobs:
            pairs = zip(job.visitors, job.segments, strict=True)
            work.labels.append((job, [mask.labels[mask.first(*pair)[0]] for pair in pairs]))

    patch.setattr(JobBatch, "label", evaluated)


def _segment_in_decisions(patch: Patch) -> None:
    rows = JobBatch._rows

    def kept(work: JobBatch, state: Any, asked: Any) -> dict[bytes, tuple[str, int]]:
        made = rows(work, state, asked)
        return {
            visitor: (name, SEGMENTS.index(segment) if segment in SEGMENTS else made[visitor][1])
            for visitor, (name, _, segment) in asked.items()
        }

    patch.setattr(JobBatch, "_rows", kept)


def _trusted_learner(patch: Patch) -> None:
    """Counts by the true segment, which the service remembers in memory."""
    truth: dict[bytes, str] = {}
    counted: dict[bytes, list[list[int]]] = {}
    rows, draw, count = JobBatch._rows, JobBatch._draw, table_counts

    def remembered(work: JobBatch, state: Any, asked: Any) -> Any:
        truth.update({visitor: segment for visitor, (_, _, segment) in asked.items()})
        return rows(work, state, asked)

    def drawn(work: JobBatch, state: Any, new: Any, answers: Any) -> None:
        draw(work, state, new, answers)
        shows = counted.setdefault(state.id, [[0, 0] for _ in SEGMENTS])
        for visitor in new:
            if truth[visitor] in SEGMENTS:
                arm = state.arm_keys.index(answers[visitor].arm)
                shows[SEGMENTS.index(truth[visitor])][arm] += 1

    def by_segment(connection: Any, experiment: Any, *more: Any) -> Any:
        made = count(connection, experiment, *more)
        made["shows"] = counted.get(bytes.fromhex(experiment.id), made["shows"])
        made["rewards"] = [[0, 0] for _ in SEGMENTS]
        return made

    patch.setattr(JobBatch, "_rows", remembered)
    patch.setattr(JobBatch, "_draw", drawn)
    patch.setattr(table_making, "table_counts", by_segment)


FAULTS: dict[Callable[[Patch], None], str] = {
    _shared_randomness: "rehearsed labels",
    _five_percent_off: "rehearsed labels",
    _redrawn_on_change: "rehearsed labels",
    _redrawn_after_erasure: "rehearsed labels",
    _second_value_at_the_endpoint: "rehearsed labels",
    _segment_in_decisions: "rehearsed labels",
    _trusted_learner: "counts follow from the decisions",
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__.strip("_"))
def test_every_fault_is_caught(
    service: Deniable, monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    plant(monkeypatch)
    visited(service, 300)
    assert FAULTS[plant] in found(service)


def test_the_audit_computes_the_same_labels_by_itself() -> None:
    mask = reference(groups={"outdoor": ["sports", "garden"], "music": ["music"]})
    names = [f"v-{number}" for number in range(500)]
    for group, segment in ((0, "garden"), (1, "music"), (None, None)):
        numbers = [expected_label(definition(mask), KEY, name, group) for name in names]
        expected = mask.labels(names, [segment] * 500)
        assert [mask.labels_in_order[number] for number in numbers] == expected


def test_a_channel_beyond_its_budget_and_impossible_shares_are_found() -> None:
    plain = definition(reference())
    assert channel_check(plain, 2 * 10**9).outcome == "kept"
    assert channel_check(plain, 2 * 10**9 - 1_000).outcome == "broken"
    assert shares_check(plain, [0, 0, 0]).outcome == "not tested"
    assert shares_check(plain, [4_000, 3_000, 3_000]).outcome == "kept"
    assert shares_check(plain, [9_000, 500, 500]).outcome == "broken"


def test_a_removed_tombstone_is_found(service: Deniable) -> None:
    visited(service, 50)
    service.visitors.erase(["v-1", "v-2"])
    with service._store.begin() as connection:
        connection.exec_driver_sql("DELETE FROM mask_labels WHERE label IS NULL")
    assert found(service) == {"erased labels"}

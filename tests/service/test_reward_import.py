"""Rewards from files: counted once, counted right, refused as a whole."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from tests.service.support import running

from deniable.errors import InvalidArgumentError, StoreUnavailableError
from deniable.service import reward_import
from deniable.service.reward_import import ImportSummary
from deniable.service.service import Deniable
from deniable.storage import times
from deniable.storage.records import MICRO, Decision, Metric


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)
    return path


def decided(service: Deniable, n: int = 100, key: str = "checkout") -> list[Decision]:
    return service.decide_batch(key, [(f"v{i}", "a") for i in range(n)])


def total(service: Deniable, metric: int = 0) -> float:
    """From the rows of the store, not from the counters."""
    from sqlalchemy import func, select

    from deniable.storage.schema import rewards

    with service._store.read() as connection:
        found = connection.execute(
            select(func.sum(rewards.c.value)).where(rewards.c.metric == metric)
        ).scalar()
    return int(found or 0) / MICRO


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_by_decision_once(service: Deniable, tmp_path: Path, kind: str) -> None:
    running(service)
    ids = [one.id for one in decided(service)]
    path = tmp_path / f"rewards.{kind}"
    if kind == "csv":
        write(path, ["Decision", "value"], [(one, i % 2) for i, one in enumerate(ids)])
    else:
        pl.DataFrame({"decision": ids, "value": [i % 2 for i in range(100)]}).write_parquet(path)
    assert service.import_rewards(path) == ImportSummary(100, applied=100)
    assert service.import_rewards(path) == ImportSummary(100, duplicate=100)
    assert total(service) == 50
    assert sum(cell.clicks for cell in service.experiments.counts("checkout")) == 50
    assert service.ledger.verify().sound


def test_by_visitor_and_experiment(memory: Deniable, tmp_path: Path) -> None:
    running(memory, metrics=[Metric("click"), Metric("revenue", 50 * MICRO)])
    decided(memory)
    rows = [(f" v{i} ", "checkout", f"{i / 4:.2f}", "revenue") for i in range(100)]
    path = write(tmp_path / "r.csv", ["visitor", "experiment", "amount", "metric"], rows)
    assert memory.import_rewards(path).applied == 100
    assert total(memory, metric=1) == pytest.approx(sum(i / 4 for i in range(100)))
    other = write(tmp_path / "s.csv", ["user_id", "paid"], [(f"v{i}", 1) for i in range(100)])
    found = memory.import_rewards(other, experiment="checkout", columns={"value": "paid"})
    assert found.applied == 100
    assert total(memory) == 100


def test_the_first_row_of_a_decision_counts(memory: Deniable, tmp_path: Path) -> None:
    running(memory, metrics=[Metric("revenue", 50 * MICRO)])
    ids = [one.id for one in decided(memory, 10)]
    rows = [(one, 7) for one in ids] + [(one, 9) for one in ids]
    path = write(tmp_path / "r.csv", ["decision", "value"], rows)
    assert memory.import_rewards(path) == ImportSummary(20, applied=10, duplicate=10)
    assert total(memory) == 70


BAD_ROWS = [
    (("x", "not-a-number", "click", "EUR"), "1 without a number of 0 or more (first: row 5)"),
    (("x", "NaN", "click", "EUR"), "1 without a number of 0 or more (first: row 5)"),
    (("x", "inf", "click", "EUR"), "1 without a number of 0 or more (first: row 5)"),
    (("x", "-1", "click", "EUR"), "1 without a number of 0 or more (first: row 5)"),
    (("x", "", "click", "EUR"), "1 without a number of 0 or more (first: row 5)"),
    (("x", "1.5", "click", "EUR"), "1 above the metric's cap (first: row 5)"),
    (("x", "1", "clicks", "EUR"), "1 with a metric that the experiment does not have"),
    (("x", "1", "click", "USD"), "1 in another currency (first: row 5)"),
    (("", "1", "click", "EUR"), "1 without an id (first: row 5)"),
]


@pytest.mark.parametrize(("row", "told"), BAD_ROWS, ids=[told[:12] + r[1] for r, told in BAD_ROWS])
def test_a_bad_row_refuses_the_whole_file(
    memory: Deniable, tmp_path: Path, row: tuple[str, ...], told: str
) -> None:
    running(memory, metrics=[Metric("click")])
    ids = [one.id for one in decided(memory, 20)]
    rows = [[one, "1", "click", "EUR"] for one in ids]
    rows[3] = [ids[3] if row[0] else "", *row[1:]]
    path = write(tmp_path / "r.csv", ["decision", "value", "metric", "currency"], rows)
    with pytest.raises(InvalidArgumentError) as refusal:
        memory.import_rewards(path, currency="eur")
    assert told in str(refusal.value)
    assert "nothing was applied" in str(refusal.value)
    assert ids[3] not in str(refusal.value)
    assert total(memory) == 0
    found = memory.import_rewards(path, currency="eur", skip_bad=True)
    assert found.applied == total(memory) == 19
    assert sum(found.skipped.values()) == 1


def test_half_the_ids_unknown(memory: Deniable, tmp_path: Path) -> None:
    running(memory)
    ids = [one.id for one in decided(memory, 10)]
    tag = ids[0][:8]
    strange = [f"{tag}{i:024x}" for i in range(4)] + ["f" * 32, "no id at all"]
    path = write(tmp_path / "r.csv", ["decision", "value"], [(one, 1) for one in ids[:6] + strange])
    with pytest.raises(InvalidArgumentError, match="6 of 12 are not; nothing was applied"):
        memory.import_rewards(path)
    assert total(memory) == 0
    found = memory.import_rewards(path, allow_unknown=True)
    assert found == ImportSummary(12, applied=6, unknown=6)


def test_late_rewards_are_counted_as_such(
    memory: Deniable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [times.now()]
    monkeypatch.setattr(times, "now", lambda: clock[0])
    running(memory, attribution_seconds=60)
    early = [one.id for one in decided(memory, 10)]
    clock[0] += 50 * MICRO
    fresh = [one.id for one in memory.decide_batch("checkout", [("w", "a"), ("x", "a")])]
    clock[0] += 11 * MICRO
    path = write(tmp_path / "r.csv", ["decision", "value"], [(one, 1) for one in early + fresh])
    assert memory.import_rewards(path) == ImportSummary(12, applied=2, late=10)


def test_an_interrupted_import_is_run_again(
    memory: Deniable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(memory)
    ids = [one.id for one in decided(memory, 60)]
    path = write(tmp_path / "r.csv", ["decision", "value"], [(one, 1) for one in ids])
    monkeypatch.setattr(reward_import, "AT_ONCE", 25)
    whole = memory._applied
    parts: list[int] = []

    def fails_in_the_middle(rewards: Sequence[tuple[bytes, str | None, int]]) -> dict[str, int]:
        if len(parts) == 1:
            raise StoreUnavailableError("the power went out")
        parts.append(len(rewards))
        return whole(rewards)

    monkeypatch.setattr(memory, "_applied", fails_in_the_middle)
    with pytest.raises(StoreUnavailableError):
        memory.import_rewards(path)
    assert total(memory) == 25
    monkeypatch.setattr(memory, "_applied", whole)
    told: list[tuple[str, int, int]] = []
    found = memory.import_rewards(path, progress=lambda *step: told.append(step))
    assert found == ImportSummary(60, applied=35, duplicate=25)
    assert told == [
        ("checking", 60, 60),
        ("applying", 25, 60),
        ("applying", 50, 60),
        ("applying", 60, 60),
    ]


def test_files_that_are_none(memory: Deniable, tmp_path: Path) -> None:
    running(memory)
    path = write(tmp_path / "r.csv", ["who", "what"], [("a", "b")])
    with pytest.raises(InvalidArgumentError, match="it has who and what"):
        memory.import_rewards(path)
    path = write(tmp_path / "r.csv", ["visitor", "value"], [("a", "1")])
    with pytest.raises(InvalidArgumentError, match="--experiment"):
        memory.import_rewards(path)
    with pytest.raises(InvalidArgumentError, match="one that exists"):
        memory.import_rewards(path, experiment="nope")
    with pytest.raises(InvalidArgumentError, match="no such column"):
        memory.import_rewards(path, experiment="checkout", currency="EUR")
    with pytest.raises(InvalidArgumentError, match="one of visitor and value"):
        memory.import_rewards(path, columns={"value": "paid"})
    with pytest.raises(InvalidArgumentError, match="one of decision"):
        memory.import_rewards(path, columns={"worth": "value"})
    broken = tmp_path / "r.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidArgumentError, match="a CSV or Parquet file"):
        memory.import_rewards(broken)
    empty = tmp_path / "empty.csv"
    empty.touch()
    with pytest.raises(InvalidArgumentError, match="a CSV or Parquet file"):
        memory.import_rewards(empty)
    mixed = write(
        tmp_path / "m.csv", ["visitor", "value", "currency"], [("a", 1, "EUR"), ("b", 1, "USD")]
    )
    with pytest.raises(InvalidArgumentError, match="one of the 2 currencies"):
        memory.import_rewards(mixed, experiment="checkout")

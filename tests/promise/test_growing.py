"""Arms and segments that are added to a running experiment: what the promise is before and after.

The oracle decodes the stored bytes itself and compares ratios with e^budget in 50 decimal digits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mpmath import mp, mpf
from sqlalchemy import select, update
from tests.promise.support import entries_of, taught
from tests.service.support import published, running, serving

from deniable.audit.exact import exact_proof
from deniable.audit.log import audit_log
from deniable.audit.promise import GIVEN_THE_TIME
from deniable.documents.rendering import markdown
from deniable.errors import BrokenPromiseError, InvalidArgumentError, WrongStateError
from deniable.privacy.tables import Table, decoded_table
from deniable.service.drafts import NewArm
from deniable.service.experiment_state import ExperimentStates
from deniable.service.service import Deniable
from deniable.storage import commitments, experiments, promises
from deniable.storage.counts import Sample
from deniable.storage.records import Role
from deniable.storage.schema import commitments as ledger
from deniable.storage.schema import decisions, segments, tables

pytestmark = pytest.mark.usefixtures("strict_audits")

WAYS: dict[str, dict[str, Any]] = {
    "constant": {"strategy": "constant"},
    "dynamic": {"strategy": "dynamic"},
    "joint": {"strategy": "joint"},
    "in a layer": {"strategy": "dynamic", "layer": "page", "holdout": 0.2},
    "by arm": {
        "strategy": "dynamic",
        "arms": [NewArm("old", budget=0.5), NewArm("new", budget=2.0)],
    },
}
BEST = {"a": "old", "b": "new", "c": "bold"}


@pytest.fixture
def service(store_url: str) -> Iterator[Deniable]:
    with serving(store_url) as opened:
        yield opened


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deniable]:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    with serving("memory:") as opened:
        yield opened


def grown(service: Deniable, **options: Any) -> None:
    """Two arms and two segments; then a segment, later an arm, and another segment with no table."""
    running(service, **{"arms": ["old", "new"], **options})
    own = 1.0 if "arms" in options else None
    taught(service, "checkout", BEST, visitors=60)
    service.experiments.add_segment("checkout", "c")
    taught(service, "checkout", BEST, visitors=40, name="u")
    service.experiments.add_arm("checkout", "bold", budget=own, label="Bold")
    taught(service, "checkout", BEST, visitors=80, name="w")
    service.experiments.add_segment("checkout", "d")


def stored(service: Deniable, key: str = "checkout") -> list[tuple[int, dict[str, Any], list[Any]]]:
    """(version, counts, rows) of each table as stored; the first row is for unlisted segments."""
    identity = bytes.fromhex(service.experiments.get(key).id)
    query = select(tables).where(tables.c.experiment_id == identity).order_by(tables.c.number)
    with service._store.read() as connection:
        found = connection.execute(query).all()
    decoded = []
    for row in found:
        counts, blob = json.loads(row.counts), bytes(row.rows)
        entries = [int.from_bytes(blob[i : i + 9], "little") for i in range(0, len(blob), 9)]
        width = len(counts["shows"][0])
        rows = [tuple(entries[i : i + width]) for i in range(0, len(entries), width)]
        decoded.append((row.version, counts, rows))
    return decoded


def kept(rows: list[Any], budgets: list[float]) -> bool:
    """Whether no arm moves odds by more than e^budget, in 50 digits; retired arms are nobody's."""
    for column, budget in zip(zip(*rows, strict=True), budgets, strict=False):
        least, most = min(column), max(column)
        with mp.workdps(50):
            if most and (not least or mpf(most) / least > mp.exp(mpf(budget))):
                return False
    return True


@pytest.mark.parametrize("way", WAYS)
def test_every_table_keeps_the_budget_and_every_audit_says_so(memory: Deniable, way: str) -> None:
    grown(memory, **WAYS[way])
    experiment = memory.experiments.get("checkout")
    assert [arm.key for arm in experiment.arms] == ["old", "new", "bold"]
    assert experiment.segments == ("a", "b", "c", "d")
    assert experiment.version == 2
    budgets = [budget / 1e9 for budget in experiment.budgets]
    found = stored(memory)
    shapes = {(version, len(rows) - 1, len(rows[0])) for version, _, rows in found}
    assert shapes == {(1, 2, 2), (1, 3, 2), (2, 3, 3)}
    together: dict[int, list[Any]] = {}
    for version, counts, rows in found:
        assert all(sum(row) == 2**64 for row in rows)
        assert len(rows) == len(counts["shows"]) + 1
        assert kept(rows, budgets)
        if "joint" not in way:
            together.setdefault(version, []).extend(rows)
    # Over all tables of a version, whatever segments they list; over all versions they are not kept.
    assert all(kept(rows, budgets) for rows in together.values())
    if "joint" not in way:  # which may retire an arm that is new again
        everything = [(*row, 0)[:3] for rows in together.values() for row in rows]
        assert not kept(everything, budgets)
    audit = memory.audits.run("checkout")
    assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
    assert audit.promise.grade == GIVEN_THE_TIME
    assert audit.promise.versions == {1: (0, 1), 2: (0, 1, 2)}
    assert memory.ledger.verify().problem is None
    assert memory.audits.firm().sound


@pytest.mark.parametrize("way", ["constant", "joint"])
def test_on_every_store_and_in_every_reading(service: Deniable, tmp_path: Path, way: str) -> None:
    grown(service, **WAYS[way])
    before = service.experiments.get("checkout").table_number
    shown = {
        one.number: decoded_table(one.rows, 3) for one in service.experiments.tables("checkout")
    }
    for number, (_, counts, (unlisted, *rows)) in enumerate(stored(service), 1):
        height, width = len(counts["shows"]), len(counts["shows"][0])
        later = (0,) * (3 - width)
        assert shown[number].unlisted == unlisted + later
        assert shown[number].rows[:height] == tuple(row + later for row in rows)
        assert set(shown[number].rows[height:]) <= {unlisted + later}
        assert len(shown[number].rows) == 4
    assert service.audits.run("checkout").sound
    assert service.audits.firm().sound
    assert service.ledger.verify().problem is None
    # The log of the whole life, checked from the file alone.
    service.ledger.export_log(tmp_path / "log.parquet")
    found = audit_log(tmp_path / "log.parquet")
    assert found.sound, found.verdict
    # What was shown before an arm or a segment has the chances of that time.
    service.ledger.export(tmp_path / "private.csv", experiment="checkout", shape="private")
    told = pl.read_csv(tmp_path / "private.csv")
    assert told.filter(pl.col("version") == 1)["propensity_bold"].unique().to_list() == [0.0]
    assert told.filter(pl.col("version") == 2)["propensity_bold"].min() > 0  # type: ignore[operator]
    evidence = service.experiments.evidence("checkout")
    assert evidence.probabilities.shape[1:] == (4, 3)
    assert evidence.probabilities.sum(axis=2) == pytest.approx(1)
    assert service.experiments.results("checkout").visitors == evidence.shows.sum()
    taught(service, "checkout", {**BEST, "d": "old"}, visitors=40, name="z")
    assert service.experiments.get("checkout").table_number > before
    assert len(stored(service)[-1][2]) == 5
    assert service.audits.run("checkout").sound


def test_a_new_segment_is_unlisted_until_the_next_table(memory: Deniable) -> None:
    running(memory, strategy="constant", budget=3.0)
    taught(memory, "checkout", {"a": "old", "b": "new"}, visitors=200)
    memory.decide("checkout", "somebody", "c")  # the writer knows the table in force
    number = memory.experiments.get("checkout").table_number
    version = memory.experiments.add_segment("checkout", "c").version
    assert (version, memory.experiments.get("checkout").table_number) == (1, number)
    with memory._store.read() as connection:
        experiment = experiments.by_key(connection, "checkout")
        state = ExperimentStates(memory._store, memory._key)._state(connection, experiment)
    assert state.segments["c"] == 2
    assert state.rows[2] == state.unlisted
    assert state.rows[0] != state.unlisted != state.rows[1]
    memory.decide_batch("checkout", [(f"c{i}", "c") for i in range(50)])
    assert entries_of(memory, "checkout")[-50:][0][:3] == (number, Role.MEMBER, 2)
    taught(memory, "checkout", {"c": "bold"}, visitors=100, name="d")
    unlisted, *rows = stored(memory)[-1][2]
    assert rows[2] not in (unlisted, rows[0], rows[1])


def test_who_came_before_stays_unlisted_and_keeps_the_arm(memory: Deniable) -> None:
    running(memory, strategy="constant")
    pairs = [(f"v{i}", "c") for i in range(60)]
    first = memory.decide_batch("checkout", pairs)
    memory.experiments.add_segment("checkout", "c")
    memory.experiments.add_arm("checkout", "late")
    assert memory.decide_batch("checkout", pairs) == first
    assert {entry[2] for entry in entries_of(memory, "checkout")} == {-1}


def test_counts_go_on_where_they_were(memory: Deniable) -> None:
    """The sums are those of all decisions, each once."""
    grown(memory, strategy="constant")
    taught(memory, "checkout", {"d": "new"}, visitors=30, name="last")
    expected = Counter((segment, arm) for _, _, segment, arm in entries_of(memory, "checkout"))
    published(memory)
    shows = stored(memory)[-1][1]["shows"]
    assert [[expected[s, a] for a in range(3)] for s in range(4)] == shows


# -- faults -----------------------------------------------------------------------------------


def accused(service: Deniable, number: int, table: Table) -> bool:
    """Whether the exact check says of a table that it is not what it should be."""
    promise = service.audits.promise("checkout")
    others = tuple(
        replace(one, table=table) if one.number == number else one for one in promise.tables
    )
    proofs = exact_proof(replace(promise, tables=others))
    return any(number in proof.not_replayed for proof in proofs)


def test_tables_that_were_widened_otherwise_are_accused(memory: Deniable) -> None:
    grown(memory, strategy="constant")
    promise = memory.audits.promise("checkout")
    early = promise.tables[1]
    rows, unlisted = early.table.rows, early.table.unlisted
    assert not accused(memory, 2, early.table)
    assert accused(memory, 2, Table((*rows[:2], rows[0], rows[3]), unlisted))
    shared = tuple((row[0], row[1] - 5, 5) for row in rows)
    assert accused(memory, 2, Table(shared, (unlisted[0], unlisted[1] - 5, 5)))


def test_tables_of_another_shape_than_the_chain_says_are_accused(memory: Deniable) -> None:
    grown(memory, strategy="joint")
    promise = memory.audits.promise("checkout")
    assert promise.segments_since[:2] == (1, 1)
    assert promise.arms_since == (1, 1, 2)
    first = promise.segments_since[2]
    for since in (first - 1, first + 1):
        changed = replace(promise, segments_since=(1, 1, since, promise.segments_since[3]))
        wrong = {number for proof in exact_proof(changed) for number in proof.not_replayed}
        assert wrong == {min(first, since)}
    same_version = replace(promise, arms_since=(1, 1, 1))
    assert {n for p in exact_proof(same_version) for n in p.not_replayed} >= {1, 2}


def test_a_new_segment_that_is_served_from_another_row_is_accused(memory: Deniable) -> None:
    running(memory, strategy="constant", budget=5.0)
    taught(memory, "checkout", {"a": "old", "b": "new"}, visitors=100)
    memory.experiments.add_segment("checkout", "c")
    memory.decide("checkout", "first", "c")
    state = memory.writer.engine._states.by_key.get("checkout")
    assert state is not None
    state.rows[2] = state.rows[0]
    memory.decide_batch("checkout", [(f"c{i}", "c") for i in range(80)])
    audit = memory.audits.run("checkout")
    assert [check.name for check in audit.checks if check.outcome == "broken"][:1] == [
        "draws follow their tables"
    ]


def test_a_decision_of_a_segment_before_it_was_listed_is_accused(memory: Deniable) -> None:
    running(memory, strategy="constant")
    memory.decide_batch("checkout", [(f"v{i}", "c") for i in range(20)])
    taught(memory, "checkout", {"a": "old"}, visitors=20)
    memory.experiments.add_segment("checkout", "c")
    assert memory.audits.run("checkout").sound
    with memory._store.begin() as connection:
        connection.execute(update(decisions).where(decisions.c.segment == -1).values(segment=2))
    broken = {
        check.name for check in memory.audits.run("checkout").checks if check.outcome == "broken"
    }
    assert {"segments in order", "the ledger"} <= broken


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("add_arm", {"version": 1}),  # not raised
        ("add_arm", {"version": 3}),
        ("add_arm", {"arm": "old"}),
        ("add_arm", {"budget_nano": 1}),  # the others have none of their own
        ("add_segment", {"segment": "a"}),
        ("add_segment", {"after": 0}),
        ("add_segment", {"after": 2}),
    ],
)
def test_entries_that_cannot_be_are_not_believed(
    memory: Deniable, kind: str, wrong: dict[str, Any]
) -> None:
    """Written by somebody who can extend the chain: its links hold, and what it says does not."""
    running(memory, strategy="constant")
    details: dict[str, dict[str, Any]] = {
        "add_arm": {"arm": "x", "budget_nano": None, "version": 2},
        "add_segment": {"segment": "x", "after": 1},
    }
    with memory._store.begin() as connection:
        experiment = experiments.by_key(connection, "checkout")
        commitments.record(connection, kind, experiment, **{**details[kind], **wrong})
        with pytest.raises(BrokenPromiseError, match="cannot follow"):
            promises.promise_of(connection, experiment)
        experiments.change(connection, experiment)
    with pytest.raises(WrongStateError, match="ledger verify"):
        memory.decide("checkout", "v", "a")


def test_an_own_budget_above_the_committed_one_is_not_believed(memory: Deniable) -> None:
    running(memory, arms=[NewArm("x", budget=0.5), NewArm("y", budget=1)], strategy="constant")
    detail: dict[str, Any] = {
        "arm": "z",
        "budget_nano": 1_000_000_001,
        "version": 2,
    }
    with memory._store.begin() as connection:
        experiment = experiments.by_key(connection, "checkout")
        commitments.record(connection, "add_arm", experiment, **detail)
        with pytest.raises(BrokenPromiseError, match="cannot follow"):
            promises.promise_of(connection, experiment)


@pytest.mark.parametrize("kind", ["add_arm", "add_segment"])
def test_changed_entries_and_rows_are_noticed(service: Deniable, kind: str) -> None:
    grown(service, strategy="constant")
    query = select(ledger.c.seq, ledger.c.detail).where(ledger.c.kind == kind)
    with service._store.begin() as connection:
        entry = connection.execute(query).first()
        assert entry is not None
        other = entry.detail.replace('"bold"', '"cold"').replace('"c"', '"e"')
        change = update(ledger).where(ledger.c.seq == entry.seq)
        connection.execute(change.values(detail=other))
    assert "was changed" in str(service.ledger.verify().problem)
    with service._store.begin() as connection:
        connection.execute(change.values(detail=entry.detail))
    assert service.ledger.verify().problem is None
    with service._store.begin() as connection:  # a segment that nobody added
        experiment = experiments.by_key(connection, "checkout")
        connection.execute(
            segments.insert().values(
                experiment_id=bytes.fromhex(experiment.id), position=4, name="e"
            )
        )
        experiments.change(connection, experiment)
    assert "segments" in str(service.ledger.verify().problem)
    with pytest.raises(WrongStateError, match="ledger verify"):
        service.decide("checkout", "somebody", "e")


# -- refusals ---------------------------------------------------------------------------------


def test_what_cannot_be_added(service: Deniable) -> None:
    life = service.experiments
    life.create("draft", arms=["x", "y"], segments=["s"], budget=1)
    with pytest.raises(WrongStateError, match="needs running or paused"):
        life.add_arm("draft", "z")
    with pytest.raises(WrongStateError, match="needs running or paused"):
        life.add_segment("draft", "t")
    running(service)
    life.switch_off("checkout", "bold")
    before = life.get("checkout")
    for arm, words in (("old", "no arm"), ("bold", "switched off or not"), ("a b", "letters")):
        with pytest.raises(InvalidArgumentError, match=words):
            life.add_arm("checkout", arm)
    with pytest.raises(InvalidArgumentError, match="all arms share one"):
        life.add_arm("checkout", "fine", budget=0.5)
    for name in ("a", "", "a\n", "x" * 129):
        with pytest.raises(InvalidArgumentError) as refused:
            life.add_segment("checkout", name)
        assert refused.value.value == "..."
    running(service, "own", arms=[NewArm("x", budget=0.5), NewArm("y", budget=1)])
    for budget in (None, 1.1, 0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError, match="budget"):
            life.add_arm("own", "z", budget=budget)
    assert life.add_arm("own", "z", budget=0.75).budgets[2] == 750_000_000
    assert service.firm.current().committed == 2.0  # as before
    life.stop("own")
    with pytest.raises(WrongStateError):
        life.add_arm("own", "late", budget=0.5)
    with pytest.raises(WrongStateError):
        life.add_segment("own", "late")
    assert life.get("checkout") == before
    assert service.ledger.verify().problem is None


def test_the_joint_strategy_has_its_limits(memory: Deniable) -> None:
    life = memory.experiments
    running(memory, "wide", arms=[f"a{i}" for i in range(200)], segments=["s"], strategy="joint")
    running(memory, "long", segments=[f"s{i}" for i in range(200)], strategy="joint")
    with pytest.raises(InvalidArgumentError, match="at most 200"):
        life.add_arm("wide", "more")
    with pytest.raises(InvalidArgumentError, match="at most 200"):
        life.add_segment("long", "more")
    life.pause("long")
    assert len(life.add_arm("long", "more").arms) == 4
    assert life.get("long").status == "paused"


def test_documents_say_what_was_added(memory: Deniable) -> None:
    grown(memory, strategy="constant")
    text = markdown(memory.documents.draft("checkout", "statement"))
    assert "a version was added, and the tables before and after that keep the budget each" in text
    assert "ntil “bold” was added" in text
    memory.experiments.switch_off("checkout", "old")
    both = markdown(memory.documents.draft("checkout", "statement"))
    assert "a version was switched off or added" in both


def test_plans_of_intervals_stay_those_of_the_start(memory: Deniable) -> None:
    """A plan that changes once visitors came would not be one."""
    running(memory, strategy="constant", planned_visitors=9_000, budget=0.1)
    taught(memory, "checkout", {"a": "old"}, visitors=50)
    before = memory.experiments.evidence("checkout").state()
    memory.experiments.add_segment("checkout", "c")
    after = memory.experiments.evidence("checkout").state()
    assert after.horizon.tolist() == [*before.horizon, before.horizon[0]]
    assert after.typical == before.typical
    memory.experiments.add_arm("checkout", "fourth")
    more = memory.experiments.evidence("checkout").state()
    assert more.typical == 0.25  # the largest that four arms can have
    assert more.horizon.tolist() == after.horizon.tolist()


def test_totals_over_time_have_a_place_for_arms_that_came_later(memory: Deniable) -> None:
    running(memory)
    before = memory.experiments.get("checkout")
    sample = Sample(datetime(2026, 1, 1, tzinfo=UTC), (5, 6, 7), (1, 2, 3), 0.5)
    memory.experiments.add_samples([(before, sample)])
    memory.experiments.add_arm("checkout", "fourth")
    found = memory.experiments.samples("checkout")
    assert found == [replace(sample, shows=(5, 6, 7, 0), clicks=(1, 2, 3, 0))]

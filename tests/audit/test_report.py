"""Sound experiments pass, every planted fault is found, and by the check that should find it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.audit.bandit import Bandit, by_arm, larger_excess, leaks_segment, moved, promise

from deniable.audit.decisions import DecisionLog
from deniable.audit.draws import compare_draws
from deniable.audit.promise import AuditedTable, Promise
from deniable.audit.report import Audit, audit
from deniable.errors import InvalidTableError
from deniable.privacy.tables import Table


def broken(found: Audit) -> set[str]:
    return {check.name for check in found.checks if check.outcome == "broken"}


@pytest.mark.parametrize(
    "promised",
    [
        promise(1.0),
        promise(3.0, strategy="constant"),
        by_arm(0.5, 1, 2),
        by_arm(0.5, 1, 2, strategy="dynamic"),
    ],
    ids=["dynamic", "constant", "by arm", "by arm, dynamic"],
)
def test_a_sound_experiment_is_acquitted(promised: Promise) -> None:
    found = audit(*Bandit(promised, unlisted=0.05, held_out=0.05).log(20_000))
    assert found.sound, broken(found)
    assert "20,000 decisions" in found.verdict
    assert "made again from the counts" in " ".join(check.statement for check in found.checks)


def test_false_accusations_are_rare_also_while_learning() -> None:
    """100 short adaptive runs: p-values of the arms are spread evenly, not piled up at 0."""
    values = [
        [test.p_value for test in compare_draws(*Bandit(promise(2.0), seed=seed).log(400))]
        for seed in range(100)
    ]
    arms, likeliest = (np.array([line[place] for line in values]) for place in (0, 1))
    for p_values in (arms, likeliest):
        assert p_values.min() > 1e-4
        assert 0.35 < np.median(p_values) < 0.65


@pytest.mark.parametrize("strategy", ["dynamic", "constant"])
def test_more_excess_than_the_table_is_caught(strategy: str) -> None:
    found = audit(*Bandit(promise(1.0, strategy=strategy), fault=larger_excess(0.1)).log(20_000))
    assert broken(found) >= {"draws follow their tables"}
    p_value = next(c.p_value for c in found.checks if c.name == "likeliest arm shown")
    assert p_value is not None
    assert p_value < 1e-9


def test_a_lying_log_is_caught_by_counts_alone() -> None:
    """Drawn at budget 2.5; promise, tables and rows say budget 1: counts need neither."""
    real = Bandit(promise(2.5, strategy="constant"))
    frame = real.run(20_000)
    told = promise(1.0, strategy="constant")
    tables = tuple(
        replace(published, table=told.made(1, published.shows, published.rewards))
        for published in real.promise.tables
    )
    told = replace(told, tables=tables)
    found = audit(told, DecisionLog.from_frame(frame, told))
    assert "counts alone" in broken(found)
    assert found.proven is not None
    assert 1.0 < found.proven.nats <= 2.5
    assert found.proofs[0].holds  # the tables alone look sound


def test_counts_alone_do_not_accuse_a_sound_experiment_that_uses_its_whole_budget() -> None:
    for seed in range(20):
        found = audit(*Bandit(promise(1.0, strategy="constant"), seed=seed).log(3_000))
        assert found.proven is not None
        assert not found.proven.exceeds


def test_an_arm_that_follows_the_segment_is_caught() -> None:
    found = audit(*Bandit(promise(1.0), fault=leaks_segment(0.1)).log(20_000))
    assert broken(found) == {"draws follow their tables"}


def test_a_second_arm_for_one_visitor_is_caught() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(2_000)
    promised = bandit.promise
    again = frame.head(1).with_columns(shown=(pl.col("shown") + 1) % 3)
    found = audit(promised, DecisionLog.from_frame(pl.concat([frame, again]), promised))
    assert broken(found) == {"one arm per visitor"}
    repeated = audit(promised, DecisionLog.from_frame(pl.concat([frame, frame.head(1)]), promised))
    assert "one arm per visitor" not in broken(repeated)


def test_a_table_above_the_budget_is_caught_by_its_fractions() -> None:
    """One published table of many, tampered with by a part in 10^13 before it is drawn from."""

    def tamper(table: Table) -> Table:
        row = table.rows[0]
        most = row.index(max(row))
        return Table((moved(row, (most + 1) % 3, most, 2**20), *table.rows[1:]), table.unlisted)

    sound = Bandit(promise(1.0, strategy="constant"))
    frame = sound.run(2_000)
    last = sound.promise.tables[-1]
    tables = (*sound.promise.tables[:-1], replace(last, table=tamper(last.table)))
    promised = replace(sound.promise, tables=tables)
    found = audit(promised, DecisionLog.from_frame(frame, promised))
    assert broken(found) == {
        "exact tables",
        "the band of all tables",
        "tables follow from their counts",
    }
    assert "ABOVE" in next(c.statement for c in found.checks if c.name == "exact tables")
    assert f"Tables {last.number} " in " ".join(c.statement for c in found.checks)


def test_a_table_that_does_not_follow_from_its_counts_is_caught() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(2_000)
    last = bandit.promise.tables[-1]
    other = replace(last, rewards=tuple(tuple(reversed(row)) for row in last.rewards))
    promised = replace(bandit.promise, tables=(*bandit.promise.tables[:-1], other))
    assert broken(audit(promised, DecisionLog.from_frame(frame, promised))) == {
        "tables follow from their counts"
    }


def test_a_decision_that_names_a_table_of_another_version_is_caught() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(500)
    two = replace(bandit.promise, versions={1: (0, 1, 2), 2: (0, 1, 2)})
    assert audit(two, DecisionLog.from_frame(frame, two)).sound
    frame[499, "version"] = 2
    assert broken(audit(two, DecisionLog.from_frame(frame, two))) == {"tables in order"}


def test_an_arm_shown_after_it_was_switched_off_is_caught() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(1_000)
    first = bandit.promise
    nothing = ((0, 0, 0),) * 2
    two = replace(first, versions={1: (0, 1, 2), 2: (0, 1)})
    number = len(first.tables) + 1
    published = AuditedTable(number, 2, two.first_table(2), nothing, nothing)
    two = replace(two, tables=(*first.tables, published))
    later = frame.with_columns(version=pl.lit(2), table=pl.lit(number))
    assert "only arms on offer" not in broken(
        audit(two, DecisionLog.from_frame(later.filter(pl.col("shown") < 2), two))
    )
    found = broken(audit(two, DecisionLog.from_frame(later, two)))
    assert {"only arms on offer", "draws follow their tables"} <= found


@pytest.mark.parametrize("promised", [by_arm(0.5, 1, 2), promise(1.0)], ids=["by arm", "symmetric"])
def test_unlisted_visitors_are_served_the_zero_row(promised: Promise) -> None:
    assert audit(*Bandit(promised, unlisted=0.3).log(5_000)).sound
    bandit = Bandit(promised, unlisted=0.3)
    frame = bandit.run(5_000)
    unlisted = pl.col("segment").is_null()
    shown = frame.with_columns(shown=pl.when(unlisted).then(2).otherwise(pl.col("shown")))
    found = audit(bandit.promise, DecisionLog.from_frame(shown, bandit.promise))
    assert "draws follow their tables" in broken(found)


def test_non_members_served_their_segments_row_are_caught() -> None:
    """Recorded as held out, drawn as members: the neutral row is what the log asks for."""
    bandit = Bandit(promise(3.0, strategy="constant"))
    frame = bandit.run(20_000).with_columns(role=(pl.int_range(pl.len()) % 2).cast(pl.Int64))
    found = audit(bandit.promise, DecisionLog.from_frame(frame, bandit.promise))
    assert not found.sound


def test_beliefs_move_within_the_budget_and_the_arm_does_help_the_tracker() -> None:
    beliefs = audit(*Bandit(promise(2.0, strategy="constant")).log(10_000)).beliefs
    assert beliefs is not None
    assert 1.9 < beliefs.arm.moved <= 2 + 1e-9
    assert beliefs.arm.highest <= beliefs.arm.bound + 1e-12
    assert beliefs.arm.guessed > beliefs.arm.guessed_before + 0.05
    assert beliefs.arm_and_response.moved > 2  # the response is not promised
    assert beliefs.arm_and_response.highest > beliefs.arm.bound


def test_beliefs_are_bayes_rule() -> None:
    """Two visitors by hand: constant strategy, two arms, the best arm differs."""
    promised = promise(1.0, arms=2, strategy="constant")
    shows, clicks = ((1, 1), (1, 1)), ((1, 0), (0, 1))
    published = AuditedTable(1, 1, promised.made(1, shows, clicks), shows, clicks)
    promised = replace(promised, tables=(published,))
    frame = pl.DataFrame(
        {
            "visitor": ["a", "b"],
            "segment": [0, 1],
            "shown": [0, 1],
            "table": [1, 1],
            "role": [0, 0],
            "version": [1, 1],
        }
    )
    beliefs = audit(promised, DecisionLog.from_frame(frame, promised)).beliefs
    assert beliefs is not None
    # Prior 1/2 each; the second arm is e times likelier in the second segment.
    assert beliefs.arm.highest == pytest.approx(math.e / (math.e + 1), rel=1e-12)
    assert beliefs.arm.moved == pytest.approx(1.0, rel=1e-12)


def test_names_and_positions_mean_the_same() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(300)
    names = frame.with_columns(
        segment=pl.col("segment").map_elements(lambda i: f"segment-{i}", return_dtype=pl.String),
        shown=pl.col("shown").map_elements(lambda i: f"arm-{i}", return_dtype=pl.String),
    )
    one, two = (DecisionLog.from_frame(given, bandit.promise) for given in (frame, names))
    assert (one.shown == two.shown).all()
    assert (one.segment == two.segment).all()


def test_bad_logs_are_refused_with_their_row() -> None:
    bandit = Bandit(promise(1.0))
    frame = bandit.run(10)
    with pytest.raises(InvalidTableError, match="no column 'table'"):
        DecisionLog.from_frame(frame.drop("table"), bandit.promise)
    unpublished = frame.clone()
    unpublished[2, "table"] = 9
    with pytest.raises(InvalidTableError, match="row 3: the table was never published"):
        DecisionLog.from_frame(unpublished, bandit.promise)
    frame[3, "shown"] = 9
    with pytest.raises(InvalidTableError, match="row 4"):
        DecisionLog.from_frame(frame, bandit.promise)


def test_json_never_names_a_segment() -> None:
    text = json.dumps(audit(*Bandit(promise(1.0)).log(500)).to_dict())
    assert "segment-0" not in text
    assert '"sound": true' in text


def test_before_the_first_visitor_the_design_is_checked() -> None:
    found = audit(promise(1.0))
    assert found.sound
    assert found.verdict.startswith("The promise is kept by design")

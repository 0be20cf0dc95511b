"""What decisions and rewards do to later tables: what they are made from, when, and what that tells."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from tests.promise.support import rows_of
from tests.service.support import published, serving

from deniable.service import table_making
from deniable.service.service import Deniable
from deniable.storage import times
from deniable.storage.records import MICRO, Experiment
from deniable.storage.table_counts import Cut, stored_decisions, table_counts

SEGMENTS, ARMS = ("a", "b"), ("x", "y")


def create(service: Deniable, key: str = "e", **options: Any) -> None:
    """A running experiment with two arms and two segments."""
    service.experiments.create(
        key, arms=ARMS, segments=SEGMENTS, budget=0.5, strategy="constant", **options
    )
    service.experiments.start(key)


# -- what tables are made from --------------------------------------------------------------------


@dataclass
class Counting:
    """The counts of each publication, by the rule alone."""

    window: int | None
    decided: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # segment, arm, table
    rewarded: set[str] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)

    def publish(self, number: int, now: int) -> tuple[list[list[int]], list[list[int]]]:
        """Table `number` is published now: the one before it ends."""
        self.ends[number - 1] = now
        shows, rewards = [[0, 0], [0, 0]], [[0, 0], [0, 0]]
        for decision, (segment, arm, table) in self.decided.items():
            rewarded = decision in self.rewarded
            closed = self.window is None or now >= self.ends[table] + self.window
            shows[segment][arm] += closed or rewarded
            rewards[segment][arm] += MICRO * rewarded
        return shows, rewards


ACTS = st.lists(
    st.sampled_from(["a", "a", "b", "reward", "reward", "publish", "wait"]), min_size=5, max_size=40
)


@settings(max_examples=12)
@given(window=st.sampled_from([None, 15, 100]), acts=ACTS, seed=st.integers(0, 5))
def test_a_show_counts_when_its_window_has_closed_or_its_reward_is_there(
    window: int | None, acts: list[str], seed: int
) -> None:
    """Without an attribution window, it counts at once."""
    rng, model = random.Random(seed), Counting(None if window is None else window * MICRO)
    expected = []
    with pytest.MonkeyPatch.context() as patch:
        clock = [times.now()]
        patch.setattr(times, "now", lambda: clock[0])
        with serving("memory:") as service:
            create(service, attribution_seconds=window)
            table, decided_at = 1, dict[str, int]()
            for number, act in enumerate([*acts, "publish", "wait", "publish", "wait", "publish"]):
                clock[0] += MICRO
                if act in SEGMENTS:
                    shown = service.decide("e", f"v{number}", act)
                    place = (SEGMENTS.index(act), ARMS.index(shown.arm), table)
                    model.decided[shown.id] = place
                    decided_at[shown.id] = clock[0]
                elif act == "reward" and model.decided:
                    decision = rng.choice(sorted(model.decided))
                    service.reward(decision, 1)
                    if window is None or clock[0] - decided_at[decision] <= window * MICRO:
                        model.rewarded.add(decision)
                elif act == "wait":
                    clock[0] += 10 * MICRO
                elif act == "publish":
                    table += 1
                    published(service, "e")
                    expected.append(model.publish(table, clock[0]))
            made = [json.loads(table.counts) for table in service.experiments.tables("e")]
    assert [(counts["shows"], counts["rewards"]) for counts in made[1:]] == expected


# -- when a table appears -------------------------------------------------------------------------


def appeared(segments: str, click: Callable[[int], bool]) -> list[int]:
    """After how many decisions each table of an experiment appeared."""
    with serving("memory:") as service:
        create(service)
        for start in range(0, 450, 30):
            batch = [(f"v{start + i}", segments[(start + i) % len(segments)]) for i in range(30)]
            shown = service.decide_batch("e", batch)
            service.reward_batch([(d.id, int(click(start + i))) for i, d in enumerate(shown)])
        return [table.decisions for table in service.experiments.tables("e")]


def test_when_a_table_appears_depends_on_no_segment_and_no_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    histories: list[tuple[str, Callable[[int], bool]]] = [
        ("ab", lambda _: False),
        ("a", lambda _: True),
        ("bbbz", lambda i: i % 3 == 0),
    ]
    times_of = [appeared(*history) for history in histories]
    assert times_of[0] == times_of[1] == times_of[2]
    assert len(times_of[0]) >= 3

    def faulty(connection: Connection, experiment: Experiment, before: Cut) -> Cut:
        """As if every fourth click were a decision more."""
        every = stored_decisions(connection, experiment, before)
        counts = table_counts(connection, experiment, every, every, 0)
        clicks = sum(map(sum, counts["rewards"]))
        (writer,) = every or {1: 0}
        return {writer: every.get(writer, 0) + clicks // MICRO // 4}

    monkeypatch.setattr(table_making, "stored_decisions", faulty)
    times_of = [appeared(*history) for history in histories]
    assert len({tuple(history) for history in times_of}) > 1


# -- what a later table tells ---------------------------------------------------------------------

TRIALS = 60


def test_the_next_table_tells_the_segment_of_a_first_clicker() -> None:
    """Nothing is promised about it, and the threat model says so: somebody who sees every row knows.

    The table in force at the first visit is the same for all segments, so the own arm tells nothing:
    whatever is learned comes from the next table.
    """
    rng, right = random.Random(1), 0
    with serving("memory:", budget=1000) as service:
        for trial in range(TRIALS):
            key = f"e{trial}"
            create(service, key)
            truth = rng.randrange(2)
            shown = service.decide(key, "victim", SEGMENTS[truth])
            service.reward(shown.id, 1)
            published(service, key)
            rows = rows_of(service, key)[-2:]
            arm = ARMS.index(shown.arm)
            right += int(rows[0][arm] < rows[1][arm]) == truth
    assert right == TRIALS

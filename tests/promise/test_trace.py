"""The trace budget: what a decision and its reward leave in later tables, and faults that are caught."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sqlalchemy import Connection, func, select
from tests.promise.support import rows_of, taught
from tests.promise.trace_support import (
    ARMS,
    ETA,
    SEGMENTS,
    counts_of,
    create,
    flat,
    replaced,
)
from tests.service.support import serving

from deniable.privacy.exact import exp_floor
from deniable.privacy.tables import decoded_table
from deniable.service import table_making
from deniable.storage import experiments, sums, times
from deniable.storage.records import MICRO, Experiment, PublishedTable
from deniable.storage.schema import counters
from deniable.storage.sums import Growth, RunningSums, Sums

CERTAIN = 1e-9


# -- the exact ratio ------------------------------------------------------------------------------


@dataclass
class Scales:
    """No noise; remembers the scales that were asked for, in the order of the cells."""

    asked: list[Fraction] = field(default_factory=list)

    def __call__(self, numerator: int, denominator: int) -> int:
        self.asked.append(Fraction(numerator, denominator))
        return 0


def true_counts(segment: int, arm: int, reward: int) -> tuple[list[int], list[Fraction]]:
    """Shows and rewards that one publication reads of a history in which one visitor is this.

    Returns the sums and the scale of the noise of each, cell by cell, through the whole service.
    """
    scales = Scales()
    with replaced(scales), serving("memory:") as service:
        create(service)
        for number in range(40):  # until the visitor was shown the wanted arm
            name = f"v{number}"
            shown = service.decide("e", name, SEGMENTS[segment])
            if shown.arm == ARMS[arm]:
                break
        for number, other in enumerate(("a", "b", "b")):  # others, who are the same in each history
            service.decide("e", f"o{number}", other)
        if reward:
            service.reward(shown.id, 1)
        service.experiments.publish("e")
        last = counts_of(service)[-1]
    sums = [
        count
        for pair in zip(flat(last["shows"]), flat(last["rewards"]), strict=True)
        for count in pair
    ]
    return sums, scales.asked


def test_every_cell_gets_noise_of_the_promised_scale() -> None:
    """Empty cells too: 4/eta on shows, 4 cap/eta on rewards."""
    _, scales = true_counts(0, 0, 1)
    per_cell = [4 / Fraction(ETA), 4 * MICRO / Fraction(ETA)]
    assert scales == per_cell * (len(SEGMENTS) * len(ARMS))


def largest_exponent(scales: list[Fraction], grid: range = range(-3, 4)) -> Fraction:
    """The log of the worst ratio of any published counts for two neighbours, in exact fractions.

    One visitor is replaced by any other. A count c becomes x with probability proportional to
    exp(-|x - c|/scale), so the log of the ratio of two histories is a sum over cells, and each cell can
    be taken at its worst x; grid points beyond both counts add nothing new.
    """
    worst = Fraction(0)
    people = list(product(range(2), range(2), range(2)))
    for one, other in product(people, repeat=2):
        total = Fraction(0)
        for cell in range(4):
            place = (cell // 2, cell % 2)
            shows = [int(place == who[:2]) for who in (one, other)]
            clicks = [int(place == who[:2]) * who[2] * MICRO for who in (one, other)]
            for (mine, theirs), scale, unit in (
                (shows, scales[2 * cell], 1),
                (clicks, scales[2 * cell + 1], MICRO),
            ):
                total += max((abs(unit * x - theirs) - abs(unit * x - mine)) / scale for x in grid)
        worst = max(worst, total)
    return worst


def test_neighbouring_histories_are_within_e_to_the_eta_exactly() -> None:
    _, scales = true_counts(0, 0, 1)
    assert largest_exponent(scales) == Fraction(ETA)
    assert largest_exponent([scale / 2 for scale in scales]) == 2 * Fraction(ETA)  # a planted fault
    doubled = [scale / 2 if place % 2 else scale for place, scale in enumerate(scales)]
    assert largest_exponent(doubled) > Fraction(ETA)  # rewards alone at half the scale


def test_one_visitor_moves_two_cells_by_one_show_and_one_reward() -> None:
    """The neighbours that the proof assumes are those that the service makes."""
    with replaced(Scales()), serving("memory:") as service:
        for key in ("one", "two"):
            create(service, key)
        first = service.decide("one", "v", "a")
        second = service.decide("two", "v", "b")
        service.reward(first.id, 1)
        service.reward(second.id, 1)
        moved = []
        for key in ("one", "two"):
            service.experiments.publish(key)
            last = counts_of(service, key)[-1]
            moved.append((np.array(last["shows"]), np.array(last["rewards"]) / MICRO))
    shows, rewards = (abs(one - other).sum() for one, other in zip(*moved, strict=True))
    assert (shows, rewards) == (2, 2)  # L1 is 4


def law(x: int, scale: Fraction) -> mpmath.mpf:
    """P(X = x) of the discrete Laplace law."""
    ratio = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
    return (1 - ratio) / (1 + ratio) * ratio ** abs(x)


@pytest.mark.parametrize("rates", [(0.9, 0.1), (0.0, 1.0), (0.3, 0.3)])
def test_own_arm_and_trace_together_are_within_the_sum(rates: tuple[float, float]) -> None:
    """P(arm, published counts | segment) over all arms and counts, for any two reward laws."""
    mpmath.mp.dps = 40
    with serving("memory:") as service:
        create(service, trace=None)
        taught(service, "e", {"a": "x", "b": "y"}, visitors=60)
        table = decoded_table(service.experiments.tables("e")[-1].rows, 2)
    _, scales = true_counts(0, 0, 1)
    shows_scale, click_scale = scales[0], scales[1] / MICRO  # in whole rewards
    grid = range(-1, 3)
    worst = mpmath.mpf(0)
    for arm, counts in product(range(2), product(grid, repeat=4)):
        chance = []
        for segment in range(2):
            # Cells (segment 0, arm) and (segment 1, arm): shows and rewards; the others are alike.
            mixed = mpmath.mpf(0)
            for click in (0, 1):
                rate = rates[segment] if click else 1 - rates[segment]
                point = mpmath.mpf(rate)
                for cell in range(2):
                    here = int(cell == segment)
                    point *= law(counts[2 * cell] - here, shows_scale)
                    point *= law(counts[2 * cell + 1] - here * click, click_scale)
                mixed += point
            chance.append(mixed * table.rows[segment][arm])
        worst = max(worst, chance[0] / chance[1], chance[1] / chance[0])
    bound = mpmath.exp(mpmath.mpf("0.5") + mpmath.mpf(ETA))
    assert worst <= bound
    assert worst > mpmath.exp(mpmath.mpf("0.5"))  # the own arm alone would be promised too little
    assert max(table.worst_ratios()) <= exp_floor(500_000_000)


# -- every decision enters once -------------------------------------------------------------------


@dataclass
class Entering:
    """Which publication each decision has to enter, by the rule alone."""

    window: int | None
    decided: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # segment, arm, table
    rewarded: set[str] = field(default_factory=set)
    entered: dict[str, tuple[int, bool]] = field(default_factory=dict)  # publication, with reward
    ends: dict[int, int] = field(default_factory=dict)

    def publish(self, number: int, now: int) -> None:
        """Table `number` is published now: the one before it ends."""
        self.ends[number - 1] = now
        for one, (_, _, table) in self.decided.items():
            if one not in self.entered:
                closed = now >= self.ends[table] + (self.window or 0)
                if closed or one in self.rewarded:
                    self.entered[one] = (number, one in self.rewarded)

    def counts(self, number: int) -> tuple[list[list[int]], list[list[int]]]:
        shows, rewards = [[0, 0], [0, 0]], [[0, 0], [0, 0]]
        for one, (entered, with_reward) in self.entered.items():
            segment, arm, _ = self.decided[one]
            if entered <= number:
                shows[segment][arm] += 1
                rewards[segment][arm] += MICRO * with_reward
        return shows, rewards


ACTS = st.lists(
    st.sampled_from(["a", "a", "b", "reward", "reward", "publish", "wait"]), min_size=5, max_size=40
)


def entering(
    window: int | None, acts: list[str], seed: int
) -> tuple[Entering, list[dict[str, list[list[int]]]]]:
    """Run these acts through the service, without noise, beside the rule."""
    rng, model = random.Random(seed), Entering(None if window is None else window * MICRO)
    with pytest.MonkeyPatch.context() as patch, replaced(lambda _n, _d: 0):
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
                    one = rng.choice(sorted(model.decided))
                    service.reward(one, 1)
                    if window is None or clock[0] - decided_at[one] <= window * MICRO:
                        model.rewarded.add(one)
                elif act == "wait":
                    clock[0] += 10 * MICRO
                elif act == "publish":
                    table += 1
                    service.experiments.publish("e")
                    model.publish(table, clock[0])
            return model, counts_of(service)


@settings(max_examples=12)
@given(window=st.sampled_from([None, 15, 100]), acts=ACTS, seed=st.integers(0, 5))
def test_every_decision_enters_exactly_one_publication(
    window: int | None, acts: list[str], seed: int
) -> None:
    """Sums of published counts are those of the rule, after each publication, and none is doubled.

    What is rewarded enters with the next publication, else when its window has closed, if that is
    within the run.
    """
    model, published = entering(window, acts, seed)
    for number, counts in enumerate(published, 1):
        assert (counts["shows"], counts["rewards"]) == model.counts(number)
        for *cell, shows, value, _closed in counts["entered"]:
            mine = [one for one, place in model.decided.items() if [place[2], *place[:2]] == cell]
            inside = [
                one for one in mine if model.entered.get(one, (number + 1, False))[0] <= number
            ]
            assert shows == len(inside)
            assert value == MICRO * sum(model.entered[one][1] for one in inside)
    if window is None:
        assert model.entered.keys() == model.decided.keys()


def test_a_decision_counted_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that forgets what entered before counts everything again."""
    real = experiments.published

    def forgetful(*arguments: Any) -> list[PublishedTable]:
        found = real(*arguments)
        for table in found:
            counts = json.loads(table.counts)
            if "entered" in counts:
                counts["entered"] = []
                object.__setattr__(table, "counts", json.dumps(counts).encode())
        return found

    acts = ["a", "reward", "publish", "b", "publish"]
    model, published = entering(None, acts, 0)
    assert published[-1]["shows"] == model.counts(9)[0]
    monkeypatch.setattr(experiments, "published", forgetful)
    model, published = entering(None, acts, 0)
    assert published[-1]["shows"] != model.counts(9)[0]


def test_what_is_decided_while_a_table_is_made_never_enters() -> None:
    """Between the reading of the counts and the table's being in force: lost to learning, no trace.

    Such a decision carries the number of a table that is closed, in which it cannot be told from those
    that entered. So it enters nothing, then or later; its reward neither.
    """
    with replaced(lambda _n, _d: 0), serving("memory:") as service:
        create(service)
        service.decide_batch("e", [(f"v{i}", "a") for i in range(40)])
        store = service._store
        with store.read() as connection:
            experiment = experiments.by_key(connection, "e")
            made = table_making.next_table(connection, experiment)
        late = service.decide("e", "late", "a")
        store.retried(lambda connection: table_making.put_into_force(connection, experiment, made))
        service.reward(late.id, 1)
        service.decide("e", "next", "a")
        service.experiments.publish("e")
        sums = [sum(map(sum, counts["shows"])) for counts in counts_of(service)]
        assert sums == [0, 40, 41]  # 42 were decided
        assert service.experiments.tables("e")[-1].decisions == 42


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
    grown, summed = sums.growth, RunningSums.total

    def rewards(connection: Connection, identity: bytes) -> int:
        mine = counters.c.experiment_id == identity
        values = connection.execute(select(func.sum(counters.c.value)).where(mine)).scalar() or 0
        return int(values) // MICRO // 4

    def faulty(connection: Connection, identity: bytes, first: int = 0) -> Growth:
        found = grown(connection, identity, first)
        return found._replace(decisions=found.decisions + rewards(connection, identity))

    def faulty_sums(self: RunningSums, connection: Connection, experiment: Experiment) -> Sums:
        found = summed(self, connection, experiment)
        more = rewards(connection, bytes.fromhex(experiment.id))
        return found._replace(decisions=found.decisions + more)

    monkeypatch.setattr(sums, "growth", faulty)
    monkeypatch.setattr(RunningSums, "total", faulty_sums)
    times_of = [appeared(*history) for history in histories]
    assert len({tuple(one) for one in times_of}) > 1


# -- Sybils ---------------------------------------------------------------------------------------

TRIALS = 60


def sybils(trace: float | None, seed: int) -> int:
    """How often somebody who sees every row of the next table names the first clicker's segment.

    Seeing the rows is more than any number of fake visitors of known segments can learn. The table in
    force at the first visit is the same for all segments, so the own arm tells nothing: whatever is
    learned is the trace.
    """
    rng, right = random.Random(seed), 0
    with serving("memory:", budget=1000) as service:
        for trial in range(TRIALS):
            key = f"e{trial}"
            create(service, key, trace=trace)
            truth = rng.randrange(2)
            shown = service.decide(key, "victim", SEGMENTS[truth])
            service.reward(shown.id, 1)
            service.experiments.publish(key)
            rows = rows_of(service, key)[-2:]
            arm = ARMS.index(shown.arm)
            lead = rows[0][arm] - rows[1][arm]
            guess = rng.randrange(2) if not lead else int(lead < 0)
            right += guess == truth
    return right


def test_the_attack_succeeds_without_a_trace_budget() -> None:
    assert sybils(None, 1) == TRIALS


def test_the_attack_is_bounded_with_one() -> None:
    trace = 0.2
    most = float(np.exp(trace) / (1 + np.exp(trace)))
    limit = int(binom.isf(CERTAIN, TRIALS, most))
    assert limit < TRIALS  # the attack without a trace budget would be caught
    assert sybils(trace, 2) <= limit
    with replaced(lambda _n, _d: 0):  # and so would a publisher that forgets the noise
        assert sybils(trace, 3) > limit

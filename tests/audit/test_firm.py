"""The firm's account, recomputed: against the service's own account, brute force, and planted faults."""

from __future__ import annotations

import random
from typing import Any

import pytest

from deniable.audit.firm import DAY, HOUR, SKEW, Account, Life, recomputed, within
from deniable.audit.firm_report import TableTally
from deniable.privacy.tables import Table
from deniable.storage import account_rules
from deniable.storage.commitments import Entry
from deniable.storage.promise_entries import PromisedTable
from deniable.storage.promises import Promise
from deniable.storage.records import Metric

NAT = 10**9
NOW = 4_000 * DAY
LAYERS = ("page", "mail")


def slots_of(*places: int) -> str:
    return sum(1 << place for place in places).to_bytes(125, "little").hex()


class Chain:
    """Entries as the service would record them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(
        self, kind: str, at: int, who: bytes | None = None, amount: int = 0, **detail: Any
    ) -> None:
        self.entries.append(Entry(len(self.entries) + 1, kind, who, amount, detail, at))

    def firm(self, at: int, nats: int, days: int, reason: str = "") -> None:
        self.add("firm", at, budget_nano=nats * NAT, window_days=days, reason=reason)

    def start(
        self, who: bytes, at: int, nats: int = 1, layer: str | None = None, places: Any = ()
    ) -> None:
        nano = nats * NAT
        if not any(e.kind == "create" and e.experiment_id == who for e in self.entries):
            self.add("create", at, who, budget_nano=nano)
        slots = None if layer is None else slots_of(*places)
        self.add("start", at, who, nano, layer=layer, slots=slots)

    def stop(self, who: bytes, at: int, last_answer: int | None = -1) -> None:
        hour = at // HOUR if last_answer == -1 else last_answer
        self.add("stop", at, who, last_answer=hour)

    def account(self, now: int = NOW) -> Account:
        return recomputed(self.entries, {}, now)


def random_chain(seed: int) -> Chain:
    """Budgets and windows that change, layers, stops, resumes and a restored store."""
    rng = random.Random(seed)
    chain, at = Chain(), 1_000 * DAY
    chain.firm(at, 1_000, rng.randrange(10, 90))
    live: list[tuple[bytes, str | None, Any]] = []
    for number in range(40):
        at += rng.randrange(0, 20 * DAY)
        act = rng.random()
        if act < 0.55:
            who, layer = number.to_bytes(16, "big"), rng.choice([None, *LAYERS])
            places = sorted(rng.sample(range(12), rng.randrange(1, 5)))
            chain.start(who, at, rng.randrange(1, 9), layer, places)
            live.append((who, layer, places))
        elif act < 0.85 and live:
            who, _, _ = live.pop(rng.randrange(len(live)))
            hour = (at - rng.randrange(0, 30 * DAY)) // HOUR
            chain.stop(who, at, rng.choice([None, hour]))
        elif act < 0.93:
            chain.firm(at, 1_000 + number, rng.randrange(5, 120), "because")
        elif act < 0.97:
            debits = [
                {"layer": "page", "slots": slots_of(1, 2), "cost_nano": 2 * NAT},
                {"layer": None, "slots": None, "cost_nano": NAT},
            ]
            chain.add("restore", at, None, 3 * NAT, lost="", debits=debits)
    return chain


def brute_force(found: Account, at: int) -> int:
    """What a visitor of the worst slots may have lost in the windows that end at a time."""
    known = [setting for setting in found.settings if setting.since <= at]

    def touched(life: Life) -> bool:
        if life.started > at:
            return False
        if life.ended is None:
            return True
        for place, setting in enumerate(known):
            last = life.ended
            if place + 1 < len(known):
                last = min(last, known[place + 1].since + HOUR + SKEW)
                if known[place + 1].since + HOUR + SKEW <= life.started:
                    continue
            if last > at - setting.window_days * DAY:  # its last answer lies in the window
                return True
        return False

    counts = [life for life in found.lives if touched(life)]
    total = sum(life.cost_nano for life in counts if life.layer is None)
    for layer in LAYERS:
        mine = [life for life in counts if life.layer == layer]
        by_slot = [
            sum(life.cost_nano for life in mine if life.slots >> slot & 1) for slot in range(12)
        ]
        total += max(by_slot)
    return total


@pytest.mark.parametrize("seed", range(25))
def test_every_moment_agrees_with_the_service_and_with_brute_force(seed: int) -> None:
    chain = random_chain(seed)
    found = chain.account()
    rng = random.Random(seed)
    first = chain.entries[0].recorded_at
    for _ in range(60):
        at = rng.randrange(first, chain.entries[-1].recorded_at + 150 * DAY)
        nano = [nano for since, nano, _ in found.points if since <= at][-1]
        assert nano == brute_force(found, at)
        if any(entry.kind == "restore" for entry in chain.entries):
            continue  # the service's account tells debits apart only by when they were recorded
        known = account_rules.settings_of(
            entry for entry in chain.entries if entry.recorded_at <= at
        )
        begun = {life.experiment_id for life in found.lives if life.started <= at}
        counted = account_rules.counted(chain.entries, {}, at, known)
        assert nano == account_rules.total_nano(o for o in counted if o.experiment_id in begun)


def test_the_peak_is_the_largest_of_all_moments() -> None:
    for seed in range(10):
        found = random_chain(seed).account()
        for place, peak in enumerate(found.peaks):
            assert peak.nano == max(nano for _, nano, which in found.points if which == place)
            assert peak.nano == brute_force(found, peak.at)


@pytest.fixture
def chain() -> Chain:
    made = Chain()
    made.firm(1_000 * DAY, 3, 30)
    made.start(b"a" * 16, 1_001 * DAY, 2)
    return made


def test_a_window_that_is_full_is_kept_and_one_more_nano_is_not(chain: Chain) -> None:
    chain.start(b"b" * 16, 1_002 * DAY, 1)
    assert [peak.kept for peak in chain.account().peaks] == [True]
    chain.add("create", 1_003 * DAY, b"c" * 16, budget_nano=1)
    chain.add("start", 1_003 * DAY, b"c" * 16, 1, layer=None, slots=None)
    found = chain.account()
    assert [peak.kept for peak in found.peaks] == [False]
    assert found.peaks[0].nano == 3 * NAT + 1


def test_what_was_spent_counts_for_a_window_after_the_last_answer(chain: Chain) -> None:
    """A refill: a second experiment starts the day after the first one stopped."""
    chain.stop(b"a" * 16, 1_010 * DAY)
    chain.start(b"b" * 16, 1_011 * DAY, 2)
    assert not chain.account().peaks[0].kept
    later = Chain()
    later.entries = chain.entries[:-2]
    later.start(b"b" * 16, 1_041 * DAY, 2)
    assert later.account().peaks[0].kept


def test_shortening_the_window_frees_nothing(chain: Chain) -> None:
    chain.stop(b"a" * 16, 1_010 * DAY)
    chain.firm(1_010 * DAY + 3 * HOUR, 3, 1, "shorter")
    chain.start(b"b" * 16, 1_015 * DAY, 2)
    assert not chain.account().peaks[-1].kept


def test_a_decision_after_the_stop_moves_the_end(chain: Chain) -> None:
    """The chain of decisions knows of a later answer than the entry of the stop."""
    chain.stop(b"a" * 16, 1_010 * DAY)
    chain.start(b"b" * 16, 1_041 * DAY, 2)
    assert chain.account().peaks[0].kept
    late = recomputed(chain.entries, {b"a" * 16: 1_012 * DAY}, NOW)
    assert not late.peaks[0].kept


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda c: c.firm(1_002 * DAY, 4, 30), "without a reason"),
        (lambda c: c.firm(1_002 * DAY, 3, 29), "without a reason"),
        (
            lambda c: c.add("resume", 1_002 * DAY, b"a" * 16, NAT, layer=None, slots=None),
            "2,000,000,000 are promised",
        ),
        (lambda c: c.firm(999 * DAY, 3, 30), "older than the one before"),
    ],
)
def test_entries_that_may_not_be(chain: Chain, fault: Any, words: str) -> None:
    assert chain.account().problems == ()
    fault(chain)
    assert words in " ".join(chain.account().problems)


def test_a_slot_given_twice_is_named(chain: Chain) -> None:
    chain.start(b"b" * 16, 1_002 * DAY, 1, "page", (1, 2))
    chain.start(b"c" * 16, 1_003 * DAY, 1, "page", (3,))
    assert chain.account().problems == ()
    chain.start(b"d" * 16, 1_004 * DAY, 1, "page", (2, 7))
    assert "slot that was in use" in chain.account().problems[0]


def test_one_experiment_in_its_window(chain: Chain) -> None:
    chain.stop(b"a" * 16, 1_010 * DAY)
    chain.start(b"b" * 16, 1_060 * DAY, 3)
    found = chain.account()
    assert within(found, b"a" * 16) == (2 * NAT, 3 * NAT, 30)
    assert within(found, b"b" * 16) == (3 * NAT, 3 * NAT, 30)
    assert within(found, b"x" * 16) is None


def _published(number: int, first: int, strategy: str) -> tuple[Table, PromisedTable]:
    """A table whose rows all show the first of two arms with `first` / 8."""
    row = (first * 2**61, (8 - first) * 2**61)
    table = Table((row, row), row)
    ratios = tuple(str(ratio) for ratio in table.worst_ratios())
    return table, PromisedTable(number, 1, table.digest(), "", 0, ratios, strategy, 0, 0)


@pytest.mark.parametrize("strategy", ["constant", "joint"])
def test_tables_in_one_band_are_checked_together(strategy: str) -> None:
    promise = Promise(
        key="e",
        arms=(("a", None, True), ("b", None, True)),
        segments=("s", "t"),
        strategy=strategy,
        budget_nano=10**9,
        layer=None,
        holdout=0,
        default_arm="a",
        attribution_seconds=None,
        metrics=(Metric(),),
        planned_visitors=None,
        weights=(1, 1),
    )

    def problems(*firsts: int) -> list[str]:
        tally = TableTally(promise)
        for number, first in enumerate(firsts, start=1):
            tally.add(*_published(number, first, strategy))
        tally.finish()
        return tally.problems

    assert problems(3, 4) == []
    apart = ["the tables of version 1 together: arm 2 exceeds its budget of 1"]
    assert problems(3, 4, 7) == ([] if strategy == "joint" else apart)  # each alone keeps it

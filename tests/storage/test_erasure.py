"""Erasing and purging: tombstones instead of debits, in short transactions, on both stores."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, pairwise, repeat
from itertools import chain as chained
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select
from tests.passing import pass_until
from tests.storage.support import KEY, NAT, Writer, draft, load, start, stop

from deniable.storage import account, commitments, erasure, times
from deniable.storage.account_rules import DAY
from deniable.storage.connect import connect
from deniable.storage.erasure import FASTEST, HOLD_SECONDS, LASTING_SECONDS, REST, Pace
from deniable.storage.ledger import verify
from deniable.storage.records import MICRO
from deniable.storage.schema import (
    counters,
    decisions,
    experiments,
    rewards,
    tombstones,
)
from deniable.storage.store import Store

VISITORS = [bytes([number]) * 16 for number in range(1, 31)]


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = connect(store_url)
    with opened.begin() as connection:
        account.set_firm(connection, budget_nano=3 * NAT, window_days=90)
        running = start(connection, draft(connection, "shop", layer="page"))
        writer = Writer()
        writer.begin(connection)
        for number, visitor in enumerate(VISITORS):
            decision = writer.decide(connection, running, visitor, number % 2, number % 2)
            if number % 3 == 0:
                writer.reward(connection, decision, MICRO)
                writer.reward(connection, decision, 7 * MICRO, metric=1)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """For few visitors."""
    monkeypatch.setattr(erasure, "FEWEST", 10)


def erase(store: Store, *visitors: bytes) -> int:
    return erasure.erase(store, KEY, lambda _: visitors).decisions


def purge(store: Store, *, running: bool = True, **options: Any) -> int:
    options = {"pace": paced(10, repeat(HOLD_SECONDS)), **options}
    before = times.now() + 1
    return erasure.purge(store, KEY, before=before, running=running, **options).decisions


def paced(size: int, took: Iterable[float], rests: list[float] | None = None) -> Pace:
    """A pace by which each transaction takes the next of these times, whatever it really takes.

    In the middle of it, it also waits for others.
    """
    readings = accumulate(chained.from_iterable((0.0, 0.0, 100.0, seconds) for seconds in took))
    rested = [] if rests is None else rests
    return Pace(size=size, clock=lambda: next(readings), sleep=rested.append)


def counted(store: Store, table: Any, *conditions: Any) -> int:
    with store.read() as connection:
        query = select(func.count()).select_from(table).where(*conditions)
        return int(connection.execute(query).scalar_one())


def problem(store: Store) -> str | None:
    with store.read() as connection:
        return verify(connection, {}).problem


def in_store(store: Store, read: Callable[[Connection], Any]) -> Any:
    with store.read() as connection:
        return read(connection)


def test_a_tombstone_is_keyed_and_tells_nothing_of_the_visitor() -> None:
    derived = hmac.new(KEY, b"deniable tombstone", "sha256").digest()
    expected = hmac.new(derived, VISITORS[0], "sha256").digest()[:16]
    assert erasure.tombstone(KEY, VISITORS[0]) == expected
    assert erasure.tombstone(b"o" * 32, VISITORS[0]) != expected


def test_erasing_leaves_tombstones_and_takes_nothing(store: Store) -> None:
    totals = in_store(store, lambda c: c.execute(select(counters)).all())
    firm = in_store(store, account.current_firm)
    revision = in_store(store, lambda c: load(c, "shop").revision)
    assert erase(store, VISITORS[0], VISITORS[1], b"never seen here!") == 2
    assert problem(store) is None
    gone = in_store(
        store, lambda c: c.execute(select(decisions).where(decisions.c.salt.is_(None))).all()
    )
    assert [getattr(row, name) for row in gone for name in erasure.ERASABLE] == [None] * 8
    assert counted(store, rewards, rewards.c.value.is_(None)) == 2
    assert in_store(store, lambda c: set(c.execute(select(tombstones.c.visitor)).scalars())) == {
        erasure.tombstone(KEY, visitor) for visitor in VISITORS[:2]
    }
    shop = in_store(store, lambda c: load(c, "shop"))
    assert shop.has_tombstones
    assert shop.revision > revision
    assert in_store(store, lambda c: c.execute(select(counters)).all()) == totals
    assert in_store(store, account.current_firm) == firm
    assert erase(store, VISITORS[0]) == 0


def test_visiting_and_erasing_for_ever_costs_nothing(store: Store) -> None:
    """One person cannot empty the firm's budget."""
    before = in_store(store, account.current_firm).remaining_nano
    for number in range(3):
        with store.begin() as connection:
            writer = Writer(id=100 + number)
            writer.begin(connection)
            writer.decide(connection, load(connection, "shop"), b"again and again!", 0, 0)
        assert erase(store, b"again and again!") == 1
    assert in_store(store, account.current_firm).remaining_nano == before
    assert counted(store, tombstones) == 1
    assert problem(store) is None


def test_purging_goes_in_small_transactions(store: Store) -> None:
    told: list[tuple[int, int]] = []
    assert purge(store, progress=lambda done, total: told.append((done, total))) == 30
    assert told == [(10, 30), (20, 30), (30, 30)]
    assert problem(store) is None
    assert counted(store, tombstones) == 30
    assert purge(store) == 0


@pytest.mark.parametrize(
    ("took", "done"),
    [
        ([2.0] * 9, [14, 24, 30]),  # too slow: fewer at once, but never fewer than 10
        ([0.1] * 9, [14, 30]),  # at most twice as many as before
        ([1.2] * 9, [14, 26, 30]),
    ],
)
def test_a_purge_adapts_to_what_a_transaction_takes(
    store: Store, took: list[float], done: list[int]
) -> None:
    """Times are lengths of what a transaction should take; it rests for the time and for the disk."""
    rests: list[float] = []
    told: list[int] = []
    seconds = [one * HOLD_SECONDS for one in took]
    purge(store, pace=paced(14, seconds, rests), progress=lambda sofar, _: told.append(sofar))
    assert told == done
    sizes = [done[0], *(after - before for before, after in pairwise(done))]
    wanted = [max(REST * seconds[0], size / FASTEST - seconds[0]) for size in sizes]
    assert rests[:-1] == pytest.approx(wanted[:-1])  # the last one is not as large as it could be
    assert problem(store) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.1, [False, False, False, True]),  # what is told as done is on the disk
        (LASTING_SECONDS, [False, True, False, True]),  # of a long purge, little is done again
    ],
)
def test_a_purge_lasts_at_its_end_and_now_and_then(
    store: Store, seconds: float, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    lasts: list[bool] = []
    retried = store.retried

    def noted(work: Callable[[Connection], Any], *, lasting: bool = True) -> Any:
        lasts.append(lasting)
        return retried(work, lasting=lasting)

    monkeypatch.setattr(store, "retried", noted)
    purge(store, pace=Pace(size=5, clock=accumulated(seconds / 4), sleep=lambda _: None))
    assert lasts == expected
    lasts.clear()
    erase(store, VISITORS[0])
    assert all(lasts)


def accumulated(step: float) -> Callable[[], float]:
    """A clock that goes on by so much whenever it is read, which is four times a transaction."""
    return accumulate(repeat(step)).__next__


def test_a_purge_that_was_interrupted_goes_on(store: Store) -> None:
    def stop_here(done: int, _total: int) -> None:
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        purge(store, progress=stop_here)
    assert problem(store) is None
    assert purge(store) == 20
    assert problem(store) is None


def test_the_age_and_the_status_decide(store: Store) -> None:
    assert purge(store, running=False) == 0
    assert erasure.purge(store, KEY, before=0, running=True).decisions == 0
    with store.begin() as connection:
        stop(connection, load(connection, "shop"))
    assert purge(store, running=False) == 30


def test_tombstones_go_when_the_experiment_no_longer_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "BATCH", 7)
    erase(store, *VISITORS)
    with store.begin() as connection:
        stop(connection, load(connection, "shop"))
    purge(store)
    assert counted(store, tombstones) == 30
    beat = partial(store.retried, commitments.beat)
    pass_until(monkeypatch, beat, times.now() + 91 * DAY)
    purge(store)
    assert counted(store, tombstones) == 0
    assert not in_store(store, lambda c: load(c, "shop").has_tombstones)
    assert problem(store) is None


def test_removed_tombstones_are_noticed(store: Store) -> None:
    """Each would be a second draw."""
    erase(store, *VISITORS[:3])
    some = tombstones.c.visitor == erasure.tombstone(KEY, VISITORS[1])
    with store.begin() as connection:
        removed = connection.execute(select(tombstones).where(some)).one()._asdict()
        connection.execute(tombstones.delete().where(some))
    assert "tombstones" in (problem(store) or "")
    with store.begin() as connection:
        connection.execute(insert(tombstones).values(**removed))
    assert problem(store) is None
    with store.begin() as connection:
        connection.execute(experiments.update().values(has_tombstones=False))
    assert "has_tombstones" in (problem(store) or "")

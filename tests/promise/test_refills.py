"""The firm's budget cannot be refilled: what stopped experiments spent counts for the whole window."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from tests.service.support import serving

from deniable.errors import NANO, InsufficientBudgetError, InvalidArgumentError
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.account_rules import DAY


def spend(service: Deniable, key: str) -> None:
    service.experiments.create(key, arms=["x", "y"], segments=["a", "b"], budget=1)
    service.experiments.start(key)
    service.decide(key, "v", "a")
    service.experiments.stop(key)


def test_five_rounds_spend_one_nat(store_url: str) -> None:
    spent = 0
    with serving(store_url, budget=1) as service:
        for round_ in range(5):
            with suppress(InsufficientBudgetError):
                spend(service, f"round{round_}")
                spent += 1
            service.firm.set(budget=1)  # setting it again, as often as one likes, frees nothing
            service.firm.set(budget=1, window_days=91)  # nor does a longer window
            with pytest.raises(InvalidArgumentError, match="reason"):
                service.firm.set(budget=1, window_days=90)  # a shorter one is a recorded act
            service.firm.set(budget=1, window_days=90, reason="back to a quarter")
        assert spent == 1
        assert service.firm.current().committed_nano == NANO
        with pytest.raises(InsufficientBudgetError):
            service.firm.set(budget=0.5)


class Clock:
    """The machine's clock, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.start = self.now = times.now()
        monkeypatch.setattr(times, "now", lambda: self.now)

    def at(self, days: float) -> None:
        """Set it, forward or back."""
        self.now = self.start + round(days * DAY)

    def passes(self, service: Deniable, first: int, last: int, step: int = 1) -> None:
        """Time goes by while the service runs."""
        for day in range(first, last + 1, step):
            self.at(day)
            service.beat()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def starts(service: Deniable, key: str) -> bool:
    """Whether the budget is free."""
    try:
        spend(service, key)
    except InsufficientBudgetError:
        service.experiments.discard(key)
        return False
    return True


def test_it_is_free_again_a_window_after_the_last_answer(store_url: str, clock: Clock) -> None:
    with serving(store_url, budget=1) as service:
        spend(service, "first")
        clock.passes(service, 1, 90)
        assert not starts(service, "second")
        clock.at(89)  # a clock that is behind
        assert not starts(service, "third")
        clock.passes(service, 91, 91)
        assert starts(service, "fourth")
        assert service.firm.current().committed_nano == NANO


def test_showing_a_kept_arm_is_an_answer(store_url: str, clock: Clock) -> None:
    """Bulk evaluation draws nothing, but it shows arms: the window begins after it."""
    with serving(store_url, budget=1) as service:
        service.experiments.create("first", arms=["x", "y"], segments=["a", "b"], budget=1)
        service.experiments.start("first")
        service.decide("first", "v", "a")
        clock.passes(service, 1, 95)
        assert service.visitors.decisions("stranger") == {}
        assert set(service.visitors.decisions("v")) == {"first"}
        service.experiments.stop("first")
        assert not starts(service, "second")
        clock.passes(service, 96, 185)
        assert not starts(service, "third")
        clock.passes(service, 186, 187)
        assert starts(service, "fourth")
        assert service.audits.firm().sound
        assert service.ledger.verify().sound


@pytest.mark.parametrize("days", [8, 91, 400, 30_000])
def test_a_clock_that_jumps_ahead_frees_nothing(store_url: str, clock: Clock, days: int) -> None:
    with serving(store_url, budget=1) as service:
        spend(service, "first")
        clock.at(days)
        assert service.firm.current().committed_nano == NANO
        assert not starts(service, "ahead")
        service.beat()  # what is recorded then does not make the time true
        assert not starts(service, "still-ahead")
        clock.at(1)
        assert not starts(service, "back")
        assert service.firm.current().committed_nano == NANO
        assert service.audits.firm().sound


@pytest.mark.parametrize("hours", [2, 50, 24 * 400])
def test_a_clock_that_was_ahead_can_be_corrected(store_url: str, clock: Clock, hours: int) -> None:
    """The chain's time does not go back; one entry tells of the correction, and all verifies."""
    clock.at(hours / 24)
    with serving(store_url, budget=1) as service:
        service.experiments.create("first", arms=["x", "y"], segments=["a", "b"], budget=1)
        service.experiments.start("first")
        early = service.decide("first", "v", "a")
    clock.at(0)
    with open_service(store_url) as service:
        service.beat()
        late = service.decide("first", "w", "b")
        service.reward_batch([(early.id, 1), (late.id, 1)])
        service.beat()
        entries = service.ledger.entries()
        (told,) = [entry for entry in entries if entry.kind == "clock"]
        assert json.loads(told.detail)["behind"] >= hours * DAY // 24
        recorded = [entry.recorded_at for entry in entries]
        assert recorded == sorted(recorded)
        clock.at(1 / 24)
        service.experiments.stop("first")
        assert service.ledger.verify().problem is None
        assert service.audits.run("first").sound
        assert service.audits.firm().sound


def test_a_store_that_was_off_goes_on_where_it_stopped(store_url: str, clock: Clock) -> None:
    """Off for 120 days, 40 days into the window: 50 days are left, and then it is free."""
    with serving(store_url, budget=1) as service:
        spend(service, "first")
        clock.passes(service, 1, 40)
    clock.at(160)
    with open_service(store_url) as service:
        assert not starts(service, "at-once")
        clock.passes(service, 160, 210)
        assert not starts(service, "too-early")
        clock.passes(service, 211, 212)
        assert starts(service, "then")
        assert service.audits.firm().sound
        # Who knows that the time has passed may say so: a recorded act with a reason.
        assert not starts(service, "more")
        service.firm.set(budget=2, reason="the store was off for 120 days")
        assert starts(service, "more-again")


def test_an_outage_of_some_days_counts(store_url: str, clock: Clock) -> None:
    with serving(store_url, budget=1) as service:
        spend(service, "first")
        clock.passes(service, 0, 91, step=7)
        clock.at(91.2)
        assert starts(service, "second")


def test_a_gap_after_the_end_reinstates_nothing(store_url: str, clock: Clock) -> None:
    with serving(store_url, budget=1) as service:
        spend(service, "first")
        clock.passes(service, 1, 92)
        assert starts(service, "second")
        clock.at(300)
        assert not starts(service, "third")
        clock.passes(service, 300, 393)
        assert starts(service, "fourth")
        assert service.audits.firm().sound


def test_a_running_service_says_so_once_a_day(store_url: str, clock: Clock) -> None:
    with serving(store_url, budget=1) as service:
        service.experiments.create("checkout", arms=["x", "y"], segments=["a"], budget=1)
        service.experiments.start("checkout")
        for hour in range(24 * 5):
            clock.at(hour / 24)
            service.decide("checkout", "v", "a")
        found = [one for one in service.ledger.entries() if one.kind == "clock"]
        assert 3 <= len(found) <= 5

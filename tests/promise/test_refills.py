"""The firm's budget cannot be refilled: what stopped experiments spent counts for the whole window."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.service.support import serving

from deniable.errors import NANO, InsufficientBudgetError, InvalidArgumentError
from deniable.service.service import Deniable
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


def test_it_is_free_again_a_window_after_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    start = times.now()
    with serving("memory:", budget=1) as service:
        spend(service, "first")
        monkeypatch.setattr(times, "now", lambda: start + 90 * DAY)
        with pytest.raises(InsufficientBudgetError):
            spend(service, "second")
        monkeypatch.setattr(times, "now", lambda: start + 90 * DAY - DAY)  # a clock that is behind
        with pytest.raises(InsufficientBudgetError):
            spend(service, "third")
        monkeypatch.setattr(times, "now", lambda: start + 91 * DAY)
        spend(service, "fourth")
        assert service.firm.current().committed_nano == NANO

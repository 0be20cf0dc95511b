"""A spent budget gives no free draws, and coming back after an erasure gives none and costs none."""

from __future__ import annotations

import pytest
from tests.promise.support import entries_of, rows_of, taught
from tests.service.support import running, serving

from deniable.errors import NANO, InsufficientBudgetError, WrongStateError
from deniable.privacy.tables import decoded_table
from deniable.storage.records import Role


def test_a_later_member_of_a_spent_layer_pays_like_the_first(store_url: str) -> None:
    """Erase, create, start: it used to cost nothing once the layer's price was spent."""
    with serving(store_url, budget=1) as service:
        running(service, "first", layer="page")
        service.decide_batch("first", [(f"v{i}", "a") for i in range(20)])
        service.experiments.stop("first")
        service.visitors.erase([f"v{i}" for i in range(20)])
        for number in range(3):
            key = f"later{number}"
            service.experiments.create(
                key, arms=["x", "y"], segments=["a", "b"], budget=1, layer="page"
            )
            with pytest.raises((InsufficientBudgetError, WrongStateError)):
                service.experiments.start(key)
            service.decide_batch(key, [(f"v{i}", "ab"[i % 2]) for i in range(20)])
            assert entries_of(service, key) == []  # a draft draws for nobody
        assert service.firm.current().committed_nano == NANO


def test_a_second_experiment_beside_a_spent_budget_is_refused(store_url: str) -> None:
    with serving(store_url, budget=1) as service:
        running(service, "first", layer="page", budget=1)
        service.experiments.create("second", arms=["x", "y"], segments=["a"], budget=0.1)
        with pytest.raises(InsufficientBudgetError) as refused:
            service.experiments.start("second")
        assert refused.value.remaining == 0


def test_visiting_and_erasing_for_ever(store_url: str) -> None:
    """Twenty rounds of one person: no draw from a row that knows the segment, and no debit."""
    with serving(store_url, budget=1) as service:
        running(service, arms=["x", "y"], strategy="constant")
        taught(service, "checkout", {"a": "x", "b": "y"}, visitors=60)
        before, decided = service.firm.current(), len(entries_of(service, "checkout"))
        counts = service.experiments.counts("checkout")
        for _ in range(20):
            service.decide("checkout", "one", "a")
            service.visitors.erase(["one"])
        service.decide("checkout", "one", "a")
        rounds = entries_of(service, "checkout")[decided:]
        assert [role for _, role, _, _ in rounds] == [Role.MEMBER] + [Role.ERASED] * 20
        assert service.firm.current() == before
        total = sum(cell.shows for cell in counts)
        assert sum(cell.shows for cell in service.experiments.counts("checkout")) == total + 1
        # The neutral row is not the row of either segment here, so the difference matters.
        last = decoded_table(service.experiments.tables("checkout")[-1].rows, 2)
        assert last.unlisted not in last.rows
        assert last.unlisted in rows_of(service, "checkout")
        assert service.ledger.verify().sound

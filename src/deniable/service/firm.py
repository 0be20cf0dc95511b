"""The firm's budget: at most so much in any window of so many days."""

from __future__ import annotations

from deniable.errors import InvalidArgumentError
from deniable.service.drafts import MAX_DAYS
from deniable.storage import account, commitments
from deniable.storage.account import Balance, Counted
from deniable.storage.records import Firm
from deniable.storage.store import Store

MAX_NANO = 10**15


class FirmBudget:
    """The part of `Deniable` that sets and shows the firm's budget."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def set(self, *, budget: float, window_days: int = 90, reason: str = "") -> Firm:
        """Promise at most this budget, in nats, in any window of so many days.

        What counts already goes on counting: no change of budget or window frees anything.

        Args:
            budget: Gamma, rounded down to whole nano-nats.
            window_days: the length of the window; an experiment counts from its start until so many
                days after its last answer.
            reason: why; required to raise a budget that was set before.

        Raises:
            InsufficientBudgetError: more than this counts already; nothing changes.
        """
        from deniable import _validation as check
        from deniable.privacy.composition import nano_down

        budget_nano = nano_down(budget)
        if budget_nano > MAX_NANO:
            raise InvalidArgumentError("budget", budget, "at most a million nats")
        window_days = check.whole("window_days", window_days, 1, MAX_DAYS)
        if len(reason) > 500 or not (reason.isprintable() or not reason):
            raise InvalidArgumentError("reason", reason, "printable text of up to 500 characters")
        return self._store.retried(
            lambda connection: account.set_firm(
                connection, budget_nano=budget_nano, window_days=window_days, reason=reason
            )
        )

    def current(self) -> Firm:
        """The budget and what counts of it now. UnknownNameError before the first `set`."""
        with self._store.read() as connection:
            return account.current_firm(connection)

    def counting(self) -> list[Counted]:
        """What counts now: experiments, what they cost, and until when."""
        with self._store.read() as connection:
            return account.counting(connection, commitments.moment(connection))

    def balances(self) -> list[Balance]:
        """What counted over time, oldest first; times as stored."""
        with self._store.read() as connection:
            return account.balances(connection)

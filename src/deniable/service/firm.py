"""The firm's budget: a maximum in any window of a given number of days."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.service.approvals import Approvals
from deniable.service.limits import LONGEST_FIRM_NAME, LONGEST_REASON, MAX_DAYS, MAX_NANO
from deniable.storage import account, commitments
from deniable.storage.account import Balance, FirmSettings, read_settings, write_settings
from deniable.storage.account_rules import Counted
from deniable.storage.records import Firm
from deniable.storage.store import Store


class FirmBudget:
    """The part of `Deniable` that sets and shows the firm's budget."""

    def __init__(self, store: Store, approvals: Approvals) -> None:
        self._store = store
        self._approvals = approvals

    def set(self, *, budget: float, window_days: int = 90, reason: str = "") -> Firm:
        """Promise at most this budget, in nats, in any window of this many days.

        Existing commitments keep counting: no change of budget or window frees anything.

        Args:
            budget: Gamma, rounded down to whole nano-nats.
            window_days: the length of the window; an experiment counts from its start until this
                many days after its last answer.
            reason: the reason; required for raising an existing budget.

        Raises:
            InsufficientBudgetError: more than this already counts; nothing changes.
            ApprovalNeededError: the firm's rules require a second person for raising it.
        """
        from deniable import _validation as check
        from deniable.privacy.composition import nano_down

        budget_nano = nano_down(budget)
        if budget_nano > MAX_NANO:
            raise InvalidArgumentError("budget", budget, "at most a million nats")
        window_days = check.whole("window_days", window_days, 1, MAX_DAYS)
        if len(reason) > LONGEST_REASON or not (reason.isprintable() or not reason):
            raise InvalidArgumentError(
                "reason", reason, f"printable text of up to {LONGEST_REASON} characters"
            )

        def work(connection: Connection) -> Firm:
            commitments.lock_chain(connection)
            if account.is_weaker(connection, budget_nano, window_days):
                self._approvals.require_budget(connection, budget_nano, window_days)
            return account.set_firm(
                connection, budget_nano=budget_nano, window_days=window_days, reason=reason
            )

        with self._approvals.asking():
            return self._store.retried(work)

    def current(self) -> Firm:
        """Return the budget and how much of it counts now. Raises UnknownNameError if none is set."""
        with self._store.read() as connection:
            return account.current_firm(connection)

    def settings(self) -> FirmSettings:
        """Return the firm's settings, such as its name on documents."""
        with self._store.read() as connection:
            return read_settings(connection)

    def change_settings(
        self,
        *,
        name: str | None = None,
        contact: str | None = None,
        purpose: str | None = None,
        legal_basis: str | None = None,
        retention_days: int | Literal["never"] | None = None,
        start_above: float | Literal["never"] | None = None,
        approve_budget: bool | None = None,
        approve_erasure: bool | None = None,
    ) -> FirmSettings:
        """Set what documents print, how long visitors are kept, and approval rules.

        The ledger records every change.

        Args:
            name: name on documents.
            contact: whom visitors and authorities can ask, printed on documents.
            purpose: why the firm runs experiments, printed on documents.
            legal_basis: on which it relies, printed on documents.
            retention_days: age in days at which decisions of stopped experiments lose their visitor,
                or "never".
            start_above: budget in nats above which starting an experiment needs a second person, or
                "never".
            approve_budget: whether raising the firm's budget or shortening its window needs one.
            approve_erasure: whether erasing visitors needs one.

        Arguments that are None leave the setting unchanged.

        Raises:
            ApprovalNeededError: the new rules would require a second person less often, or erase
                visitors earlier where erasing needs one.
        """
        from deniable import _validation as check
        from deniable.privacy.composition import nano_down

        given: JsonObject = {
            "approve_budget": approve_budget,
            "approve_erasure": approve_erasure,
        }
        changed = {key: value for key, value in given.items() if value is not None}
        texts = {"name": name, "contact": contact, "purpose": purpose, "legal_basis": legal_basis}
        changed |= {key: firm_text(key, text) for key, text in texts.items() if text is not None}
        if retention_days is not None:
            changed["retention_days"] = (
                None
                if retention_days == "never"
                else check.whole("retention_days", retention_days, 1, MAX_DAYS)
            )
        if start_above is not None:
            changed["start_above_nano"] = None if start_above == "never" else nano_down(start_above)

        def work(connection: Connection) -> FirmSettings:
            commitments.lock_chain(connection)
            before = read_settings(connection)
            after = replace(before, **changed)
            self._approvals.require_rules(connection, before, after)
            if after.forgets_earlier_than(before):
                words = f"erase visitors after {after.retention_days} days"
                self._approvals.require_erasure(connection, words, after.retention_days)
            return write_settings(connection, after)

        with self._approvals.asking():
            return self._store.retried(work)

    def counting(self) -> list[Counted]:
        """Return what counts now: experiments, their cost, and until when."""
        with self._store.read() as connection:
            return account.counting(connection, commitments.moment(connection))

    def balances(self) -> list[Balance]:
        """Return the balance over time, oldest first; times in the stored format."""
        with self._store.read() as connection:
            return account.balances(connection)


def firm_text(argument: str, value: str) -> str:
    """Validate what documents print: names are short, everything else is a sentence or two."""
    text = value.strip()
    most = LONGEST_FIRM_NAME if argument == "name" else LONGEST_REASON
    if len(text) > most or not (text.isprintable() or not text):
        raise InvalidArgumentError(argument, value, f"printable text of up to {most} characters")
    return text

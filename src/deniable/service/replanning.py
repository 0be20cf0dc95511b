"""Drafts with another budget: before an experiment starts, its promise can still be changed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from deniable.errors import NANO, InvalidArgumentError, WrongStateError
from deniable.service.drafts import MAX_BUDGET
from deniable.service.runtime import serving_schedule
from deniable.storage import commitments, experiments
from deniable.storage.records import Experiment, StrategyName
from deniable.storage.store import Store


class Replanning:
    """The part of `Deniable` that changes drafts."""

    _store: Store

    def replan(self, budgets_nano: Mapping[str, tuple[int, StrategyName]]) -> list[Experiment]:
        """Give drafts other budgets and strategies, all of them or none.

        Args:
            budgets_nano: experiment key -> (budget in nano-nats, strategy).

        Raises:
            WrongStateError: one of them is not a draft, or its arms have budgets of their own.
        """

        def work(connection: Connection) -> list[Experiment]:
            commitments.lock_chain(connection)
            return [_replanned(connection, key, *new) for key, new in budgets_nano.items()]

        return self._store.retried(work)


def _replanned(
    connection: Connection, key: str, budget_nano: int, strategy: StrategyName
) -> Experiment:
    if not 0 <= budget_nano <= MAX_BUDGET * NANO:
        raise InvalidArgumentError("budget", budget_nano / NANO, f"0 to {MAX_BUDGET:g} nats")
    draft = experiments.by_key(connection, key)
    if draft.status != "draft":
        raise WrongStateError(f"experiment {key!r} is {draft.status}: its budget is promised")
    if draft.arm_specific:
        raise WrongStateError(f"the arms of {key!r} have budgets of their own")
    changed = experiments.change(connection, draft, budget_nano=budget_nano, strategy=strategy)
    serving_schedule(changed).table(1 << 62)  # checked exactly, before it can ever be drawn from
    commitments.record(connection, "replan", changed, budget_nano=budget_nano, strategy=strategy)
    return changed

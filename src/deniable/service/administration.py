"""Administration: the firm's budget, and an experiment's life from draft to stopped.

What carries the promise (arms, segments, strategy, budget) is fixed by `create_experiment`. Starting
commits the budget against the firm's in the same transaction; a group of experiments that never share
a visitor costs its largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from sqlalchemy import Connection

from deniable.errors import InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.service.drafts import MAX_DAYS, NewArm, draft
from deniable.service.runtime import serving_schedule
from deniable.storage import commitments, experiments, times
from deniable.storage.records import Cell, Experiment, Firm, Status
from deniable.storage.store import Store

T = TypeVar("T")

MAX_NANO = 10**15


class Administration:
    """The part of `Deniable` that changes experiments and the firm."""

    _store: Store

    def set_firm(self, *, budget: float, days: float | None = None) -> Firm:
        """Open a new period with this budget in nats; running experiments are committed to it anew.

        Args:
            budget: Gamma, rounded down to whole nano-nats.
            days: how long the period lasts from now; None: until the next one is opened.

        Raises:
            InsufficientBudgetError: the running experiments need more; nothing changes.
        """
        from deniable.privacy.composition import nano_down

        budget_nano = nano_down(budget)
        if budget_nano > MAX_NANO:
            raise InvalidArgumentError("budget", budget, "at most a million nats")
        if days is not None and not 0 < days <= MAX_DAYS:
            raise InvalidArgumentError("days", days, f"above 0, at most {MAX_DAYS}")
        ends_at = None if days is None else times.now() + int(days * 86_400_000_000)
        return self._changed(
            lambda connection: commitments.open_period(connection, budget_nano, ends_at)
        )

    def firm(self) -> Firm:
        """The present period. UnknownNameError before the first `set_firm`."""
        with self._store.read() as connection:
            return commitments.current_firm(connection)

    def create_experiment(
        self,
        key: str,
        *,
        arms: Sequence[str | NewArm],
        segments: Sequence[str],
        budget: float | None = None,
        strategy: Literal["constant", "dynamic"] = "dynamic",
        planned_visitors: int | None = None,
        group: str | None = None,
        default_arm: str | None = None,
        attribution_seconds: int | None = None,
    ) -> Experiment:
        """A new draft. Nothing is committed yet; `decide` answers the default arm.

        Args:
            key: its name: letters, digits, `.`, `_` and `-`.
            arms: 2 or more, by key or as `NewArm`.
            segments: the segments that are learned apart, 1 or more.
            budget: the cap on every visitor's risk in nats; left out where the arms have budgets.
            strategy: `dynamic` follows the clock up to the budget, `constant` starts with it.
            planned_visitors: for people.
            group: experiments of one group never share a visitor and cost their largest.
            default_arm: for everybody before the start and after a stop without a winner; the
                first arm if not given.
            attribution_seconds: rewards later than this do not count.

        Raises:
            WrongStateError: the key is in use.
        """
        planned = draft(
            key,
            arms=arms,
            segments=segments,
            budget=budget,
            strategy=strategy,
            planned_visitors=planned_visitors,
            group=group,
            default_arm=default_arm,
            attribution_seconds=attribution_seconds,
        )

        def create(connection: Connection) -> Experiment:
            created = experiments.insert_draft(connection, planned)
            commitments.record(
                connection,
                "create",
                created,
                key=created.key,
                arms=[[arm.key, arm.budget_nano] for arm in created.arms],
                segments=len(created.segments),
                strategy=created.strategy,
                budget_nano=created.budget_nano,
                group=created.group,
            )
            return created

        return self._changed(create)

    def start(self, key: str) -> Experiment:
        """draft -> running; commits the budget.

        Raises:
            InsufficientBudgetError: with what remains and what was requested.
            WrongStateError: not a draft.
        """

        def begin(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "draft")
            firm = commitments.current_firm(connection)
            cost = experiment.budget_nano
            if experiment.group is not None:
                taken = commitments.group_cost(connection, experiment.group, firm)
                cost = max(0, cost - taken)
            commitments.debit(connection, cost)
            commitments.record(connection, "start", experiment, cost, firm=firm.id)
            return experiments.change(
                connection, experiment, status="running", started_at=times.now()
            )

        return self._changed(begin)

    def pause(self, key: str) -> Experiment:
        """running -> paused: known visitors keep their arm, new ones get a uniform one."""
        return self._moved(key, "pause", ("running",), "paused")

    def resume(self, key: str) -> Experiment:
        """paused -> running."""
        return self._moved(key, "resume", ("paused",), "running")

    def stop(self, key: str, *, promote: str | None = None) -> Experiment:
        """running or paused -> stopped, for good: everybody gets the promoted (or default) arm."""

        def end(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            winner = None if promote is None else _position(experiment, promote)
            commitments.record(connection, "stop", experiment, winner=promote)
            return experiments.change(
                connection, experiment, status="stopped", winner=winner, stopped_at=times.now()
            )

        return self._changed(end)

    def switch_off(self, key: str, arm: str) -> Experiment:
        """A new version without this arm; visitors who hold it keep it."""

        def switch(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            if not experiment.arms[_position(experiment, arm)].active:
                raise WrongStateError(f"arm {arm!r} is switched off already")
            if len(experiment.active_arms) < 3:
                raise WrongStateError("two arms must stay on: stop the experiment and promote one")
            changed = experiments.switch_off(connection, experiment, arm)
            # Draws from the new version's final table only once exact arithmetic has passed it.
            serving_schedule(changed).table(1 << 62)
            commitments.record(connection, "switch_off", changed, arm=arm, version=changed.version)
            return changed

        return self._changed(switch)

    def experiment(self, key: str) -> Experiment:
        """One experiment, or UnknownNameError."""
        with self._store.read() as connection:
            return experiments.by_key(connection, key)

    def experiments(self) -> list[Experiment]:
        """All of them, oldest first."""
        with self._store.read() as connection:
            return experiments.everything(connection)

    def counts(self, key: str) -> list[Cell]:
        """Shows and clicks of each arm in each segment, over all writers. Private."""
        with self._store.read() as connection:
            return experiments.cells(connection, experiments.by_key(connection, key))

    def _moved(self, key: str, kind: str, before: tuple[Status, ...], after: Status) -> Experiment:
        def move(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, *before)
            commitments.record(connection, kind, experiment)
            return experiments.change(connection, experiment, status=after)

        return self._changed(move)

    def _changed(self, work: Callable[[Connection], T]) -> T:
        """`work` in one transaction in which nobody else changes budgets or experiments."""

        def alone(connection: Connection) -> T:
            commitments.lock_chain(connection)
            return work(connection)

        return self._store.retried(alone)


def _in_state(connection: Connection, key: str, *allowed: Status) -> Experiment:
    experiment = experiments.by_key(connection, key)
    if experiment.status not in allowed:
        wanted = " or ".join(allowed)
        raise WrongStateError(f"experiment {key!r} is {experiment.status}; this needs {wanted}")
    return experiment


def _position(experiment: Experiment, arm: str) -> int:
    for position, known in enumerate(experiment.arms):
        if known.key == arm:
            return position
    raise UnknownNameError("arm", arm)

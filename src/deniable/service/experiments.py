"""Experiments, from draft to stopped: all changes to them.

`create` fixes everything that carries the promise: arms, segments, strategy and budgets. Starting
commits the budget against the firm's in the same transaction, takes slots of the layer, and
publishes the first table. While an experiment runs, arms can be switched off, and arms and segments
can be added. Each change is chained, and a change of the arms is a new version of the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from deniable.errors import NANO, InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.privacy.tables import with_arm, without_arm
from deniable.service.approvals import Approvals
from deniable.service.drafts import (
    NewArm,
    added_arm,
    added_context,
    added_segment,
    arguments_of,
    check_rows,
    check_weights,
    checked_text,
    draft,
    redrafted,
)
from deniable.service.experiment_views import ExperimentViews
from deniable.service.limits import MAX_BUDGET, MAX_LABEL, MAX_NOTE, MAX_TAGS
from deniable.service.publisher import Publisher
from deniable.service.table_making import (
    first_neutral,
    first_table,
    put_first_table,
    recipe_of,
)
from deniable.storage import (
    account,
    commitments,
    experiments,
    listing,
    masks,
    promise_entries,
    promises,
    times,
)
from deniable.storage.listing import Labels
from deniable.storage.records import Arm, Experiment, Metric, PublishedTable, Status
from deniable.storage.store import Store
from deniable.strategies import TABLE_RULES

T = TypeVar("T")


class Experiments(ExperimentViews):
    """The part of `Deniable` that changes experiments. The methods for reading are inherited."""

    def __init__(self, store: Store, publisher: Publisher, approvals: Approvals) -> None:
        super().__init__(store)
        self._publisher = publisher
        self._approvals = approvals

    # -- lifecycle ---------------------------------------------------------------------------

    def create(
        self,
        key: str,
        *,
        arms: Sequence[str | NewArm],
        segments: Sequence[str] = (),
        contexts: Sequence[str] = (),
        observed: bool = True,
        budget: float | None = None,
        strategy: str | None = None,
        planned_visitors: int | None = None,
        mask: str | None = None,
        sticky: bool = True,
        layer: str | None = None,
        holdout: float = 0.0,
        default_arm: str | None = None,
        attribution_seconds: int | None = None,
        metrics: Sequence[Metric] = (Metric(),),
    ) -> Experiment:
        """Create a draft. Nothing is committed yet; `decide` returns the default arm.

        Args:
            key: its name, made of letters, digits, `.`, `_` and `-`.
            arms: 2 or more, as keys or `NewArm` objects.
            segments: the segments that are learned separately.
            contexts: instead of segments, values that a tracker reads for itself wherever an arm is
                shown, such as the device. Each is learned separately, and needs no budget.
            observed: whether third parties may see what visitors are shown. If not, segments need
                no bound, and only keys with the scope `unobserved` may decide.
            budget: the limit on every visitor's risk, in nats; omit it if the arms have budgets, or
                if nothing needs a bound.
            strategy: how tables are made from counts; by default `joint` for segments, `dynamic`
                if arms have budgets of their own, and `unbounded` for the rest.
            planned_visitors: for information, and for strategies that plan ahead.
            mask: learn by the labels of this mask instead of by segments, with no budget.
            sticky: whether a visitor keeps an arm. On a mask it may be False: then each request is
                a decision of its own, stored without the visitor.
            layer: experiments in one layer have different slots and share no visitors.
            holdout: the share of visitors to hold out, from 0 to 0.5.
            default_arm: shown before the start, and after a stop without a winner; defaults to the
                first arm.
            attribution_seconds: rewards later than this do not count.
            metrics: the rewards to record; the first metric decides.

        Raises:
            WrongStateError: the key is in use.
        """
        planned = draft(
            key,
            arms=arms,
            segments=self._rows(mask, segments),
            contexts=contexts,
            observed=observed,
            budget=budget,
            strategy=strategy,
            planned_visitors=planned_visitors,
            mask=mask,
            sticky=sticky,
            layer=layer,
            holdout=holdout,
            default_arm=default_arm,
            attribution_seconds=attribution_seconds,
            metrics=metrics,
        )

        def create(connection: Connection) -> Experiment:
            created = experiments.insert_draft(connection, planned)
            commitments.record(
                connection, "create", created, **promise_entries.create_detail(created)
            )
            return created

        return self._changed(create)

    def _rows(self, mask: str | None, segments: Sequence[str]) -> Sequence[str]:
        """Return the labels of a mask, or the given segments without one."""
        if mask is None:
            return segments
        with self._store.read() as connection:
            stored = masks.named(connection, mask)
        if stored.ended_at is not None:
            raise WrongStateError(f"mask {mask!r} has ended")
        if segments and tuple(segments) != stored.labels:
            raise InvalidArgumentError(
                "segments", "...", "none on a mask: its labels take their place"
            )
        return stored.labels

    def redraft(self, key: str, **changes: Any) -> Experiment:
        """Change a draft. Everything except its key can change until it starts.

        Args:
            key: the draft.
            changes: arguments of `create`; others stay unchanged.

        Raises:
            WrongStateError: it is not a draft, so its promise is fixed.
        """
        if changes.get("mask") is not None:
            changes["segments"] = self._rows(changes["mask"], changes.get("segments", ()))

        def change(connection: Connection) -> Experiment:
            before = _in_state(connection, key, "draft")
            changed = experiments.redraft(connection, before, redrafted(before, changes))
            commitments.record(
                connection, "redraft", changed, **promise_entries.create_detail(changed)
            )
            return changed

        return self._changed(change)

    def duplicate(self, key: str, new_key: str) -> Experiment:
        """Create a draft with the arms, segments and settings of an experiment in any state."""
        return self.create(new_key, **arguments_of(self.get(key)))

    def discard(self, key: str) -> None:
        """Delete a draft. It never drew an arm; its key can be reused."""

        def remove(connection: Connection) -> None:
            experiment = _in_state(connection, key, "draft")
            commitments.record(connection, "discard", experiment, key=experiment.key)
            experiments.discard(connection, experiment)

        self._changed(remove)

    def note(self, key: str, text: str) -> None:
        """Add a note about an experiment to the ledger. It cannot be changed or removed.

        Notes record what happened and why. They must not contain anything about a visitor.
        """
        words = checked_text("text", text, MAX_NOTE)
        if not words:
            raise InvalidArgumentError("text", text, "some words")

        def add(connection: Connection) -> None:
            experiment = experiments.by_key(connection, key)
            commitments.record(connection, "note", experiment, text=words)

        self._changed(add)

    def label(self, key: str, *, owner: str = "", tags: Sequence[str] = ()) -> Labels:
        """Set the owner and tags of an experiment, replacing earlier ones."""
        words = [checked_text("tags", tag, MAX_LABEL) for tag in tags]
        named = Labels(
            checked_text("owner", owner, MAX_LABEL), tuple(sorted({word for word in words if word}))
        )
        if len(named.tags) > MAX_TAGS:
            raise InvalidArgumentError("tags", len(named.tags), f"at most {MAX_TAGS}")

        def put(connection: Connection) -> Labels:
            experiment = experiments.by_key(connection, key)
            listing.set_labels(connection, experiment, named)
            commitments.record(
                connection, "label", experiment, owner=named.owner, tags=list(named.tags)
            )
            return named

        return self._changed(put)

    def start(self, key: str, *, share: float = 1.0) -> Experiment:
        """Start a draft: commit the budget and publish the first table.

        Args:
            key: the experiment.
            share: share of its layer's slots to take; without a layer it always has all visitors.

        Raises:
            InsufficientBudgetError: with the remaining and the requested budget.
            ApprovalNeededError: the firm's rules require a second person.
            WrongStateError: not a draft, or the layer has too few free slots.
        """
        if not 0.001 <= share <= 1:
            raise InvalidArgumentError("share", share, "0.001 to 1")

        def begin(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "draft")
            self._approvals.require_start(connection, key, experiment.budget_nano, share)
            slots = None
            if experiment.layer is not None:
                slots = account.take_slots(connection, experiment.layer, round(share * 1000))
            account.commit(
                connection,
                experiment,
                "start",
                slots,
                **promise_entries.rows_detail(
                    recipe_of(experiment).fixed_band(), first_neutral(experiment)
                ),
            )
            started = experiments.change(
                connection,
                experiment,
                status="running",
                started_at=times.as_datetime(commitments.moment(connection)),
                slots=slots,
            )
            return put_first_table(connection, started)

        with self._approvals.asking():
            return self._changed(begin)

    def pause(self, key: str) -> Experiment:
        """Pause a running experiment: known visitors keep their arm, new ones get the neutral row."""
        return self._moved(key, "pause", ("running",), "paused")

    def resume(self, key: str) -> Experiment:
        """Resume a paused experiment. The new commitment costs nothing while the old one counts."""

        def go_on(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "paused")
            account.commit(connection, experiment, "resume", experiment.slots)
            return experiments.change(connection, experiment, status="running")

        return self._changed(go_on)

    def stop(self, key: str, *, promote: str | None = None) -> Experiment:
        """Stop a running or paused experiment for good. Everyone gets the promoted (or default) arm."""

        def end(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            if promote is not None:
                _arm(experiment, promote)
            last_answer = account.last_hour(connection, bytes.fromhex(experiment.id))
            detail = promise_entries.stop_detail(promote, last_answer)
            commitments.record(connection, "stop", experiment, **detail)
            return experiments.change(
                connection,
                experiment,
                status="stopped",
                winner=promote,
                stopped_at=times.as_datetime(commitments.moment(connection)),
            )

        return self._changed(end)

    def switch_off(self, key: str, arm: str) -> Experiment:
        """Create a new version of the promise without this arm. Visitors who have it keep it.

        The tables of the new version keep the budget among themselves, not together with the old
        ones: whoever is shown the arm came before. The grade over all versions is "given the time".
        The new neutral row follows from the old one and the arm alone.
        """

        def switch(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            if not _arm(experiment, arm).active:
                raise WrongStateError(f"arm {arm!r} is switched off already")
            if len(experiment.active_arms) < 3:
                raise WrongStateError(
                    "two arms must stay active: stop the experiment and promote one"
                )
            before = promises.check(connection, experiment).neutral[-1]
            changed = experiments.switch_off(connection, experiment, arm)
            band = recipe_of(changed).fixed_band()
            place = [other.key for other in changed.arms].index(arm)
            neutral = promises.fixed_neutral(band, without_arm(before, place))
            detail = promise_entries.switch_off_detail(arm, changed.version, band, neutral)
            commitments.record(connection, "switch_off", changed, **detail)
            return put_first_table(connection, changed)

        return self._changed(switch)

    def add_arm(
        self, key: str, arm: str, *, budget: float | None = None, label: str = ""
    ) -> Experiment:
        """Create a new version of the promise with one more arm. Visitors who have an arm keep it.

        The first table of the new version is published immediately. Seeing the new arm reveals that
        a visitor came after it was added, so the grade over all versions is "given the time". The
        firm's account does not change.

        Args:
            key: the experiment, running or paused.
            arm: the new arm's key.
            budget: its own budget in nats, if arms have their own budgets; at most the largest of
                them, which the firm has committed.
            label: text for people.

        Raises:
            InvalidArgumentError: the key is in use, the budget is missing or too large, or the
                strategy cannot enlarge its tables.
            WrongStateError: it is neither running nor paused.
        """

        def add(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            new = added_arm(experiment, NewArm(arm, label, budget))
            before = promises.check(connection, experiment).neutral[-1]
            changed = experiments.add_arm(connection, experiment, new)
            band = recipe_of(changed).fixed_band()
            neutral = promises.fixed_neutral(band, with_arm(before))
            detail = promise_entries.add_arm_detail(new, changed.version, band, neutral)
            commitments.record(connection, "add_arm", changed, **detail)
            return put_first_table(connection, changed)

        return self._changed(add)

    def add_segment(self, key: str, segment: str) -> Experiment:
        """List one more segment. The next table has a row for it.

        Until then, its visitors get the row of the table in force for unlisted segments. Visitors
        who came before stay unlisted. The version does not change, because the new row keeps the
        budget together with everything that the other rows keep it with.

        Args:
            key: the experiment, running or paused.
            segment: the new segment's name.

        Raises:
            InvalidArgumentError: it is already listed, or the strategy cannot enlarge its tables.
            WrongStateError: the experiment is neither running nor paused.
        """

        def add(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            name = added_segment(experiment, segment)
            promises.check(connection, experiment)
            changed = experiments.add_segment(connection, experiment, name)
            detail = promise_entries.add_segment_detail(name, changed.table_number)
            commitments.record(connection, "add_segment", changed, **detail)
            return changed

        return self._changed(add)

    def add_context(self, key: str, context: str) -> Experiment:
        """List one more context. The next table has a row for it; none is ever removed.

        Until then, its visitors get the mean row of the table in force. In the new context they are
        drawn for again, as whoever changes the context is.

        Args:
            key: the experiment, running or paused.
            context: the new context's name.

        Raises:
            InvalidArgumentError: it is already listed, or the experiment has segments.
            WrongStateError: the experiment is neither running nor paused.
        """

        def add(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, "running", "paused")
            name = added_context(experiment, context)
            promises.check(connection, experiment)
            changed = experiments.add_context(connection, experiment, name)
            detail = promise_entries.add_context_detail(name, changed.table_number)
            commitments.record(connection, "add_context", changed, **detail)
            return changed

        return self._changed(add)

    def replan(self, budgets_nano: Mapping[str, tuple[int, str]]) -> list[Experiment]:
        """Set new budgets and strategies for drafts, all or none.

        Args:
            budgets_nano: experiment key -> (budget in nano-nats, strategy).

        Raises:
            WrongStateError: one of them is not a draft, or its arms have their own budgets.
        """
        return self._changed(
            lambda connection: [
                _replanned(connection, key, *new) for key, new in budgets_nano.items()
            ]
        )

    def publish(self, key: str) -> PublishedTable | None:
        """Publish the next table if it is due. Returns None if not, or if it has stopped."""
        return self._publisher.publish(key)

    def _moved(self, key: str, kind: str, before: tuple[Status, ...], after: Status) -> Experiment:
        def move(connection: Connection) -> Experiment:
            experiment = _in_state(connection, key, *before)
            commitments.record(connection, kind, experiment)
            return experiments.change(connection, experiment, status=after)

        return self._changed(move)

    def _changed(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction that locks all budgets and experiments."""

        def alone(connection: Connection) -> T:
            commitments.lock_chain(connection)
            return work(connection)

        return self._store.retried(alone)


def _in_state(connection: Connection, key: str, *allowed: Status) -> Experiment:
    experiment = experiments.by_key(connection, key, lock=True)
    if experiment.status not in allowed:
        wanted = " or ".join(allowed)
        raise WrongStateError(f"experiment {key!r} is {experiment.status}; this needs {wanted}")
    return experiment


def _arm(experiment: Experiment, key: str) -> Arm:
    for arm in experiment.arms:
        if arm.key == key:
            return arm
    raise UnknownNameError("arm", key)


def _replanned(connection: Connection, key: str, budget_nano: int, strategy: str) -> Experiment:
    if not 0 <= budget_nano <= MAX_BUDGET * NANO:
        raise InvalidArgumentError("budget", budget_nano / NANO, f"0 to {MAX_BUDGET:g} nats")
    draft = experiments.by_key(connection, key)
    if draft.status != "draft":
        raise WrongStateError(f"experiment {key!r} is {draft.status}: its budget is promised")
    if draft.arm_specific:
        raise WrongStateError(f"the arms of {key!r} have budgets of their own")
    changed = experiments.change(connection, draft, budget_nano=budget_nano, strategy=strategy)
    check_rows(
        strategy,
        len(changed.arms),
        len(changed.segments),
        len(changed.contexts[1:]),
        observed=changed.observed,
        mask=changed.mask is not None,
    )
    if budget_nano and not TABLE_RULES[strategy].bounded:
        raise InvalidArgumentError("budget", budget_nano / NANO, f"0 with the {strategy} strategy")
    first_table(changed)  # raises unless the table passes the exact check
    check_weights(changed)
    commitments.record(connection, "replan", changed, **promise_entries.replan_detail(changed))
    return changed

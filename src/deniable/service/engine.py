"""Runs batches of jobs and keeps state between them.

The engine caches experiment states, the writer's identity and the end of its chain. If a batch
fails, it retries, rereads this state from the store, or answers without the store.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import select

from deniable.errors import (
    DeniableError,
    StoreUnavailableError,
    UnknownNameError,
    WrongStateError,
    causes,
)
from deniable.service.batch import (
    HOUR,
    JobBatch,
    checked_ids,
    checked_rewards,
    outcomes_of,
)
from deniable.service.experiment_state import (
    ExperimentState,
    ExperimentStates,
    MaskState,
    OutOfDate,
)
from deniable.service.jobs import DecideJob, Job, LabelJob, RewardJob
from deniable.service.lease import Identity, claim, release
from deniable.storage import commitments, times
from deniable.storage.schema import experiments as table
from deniable.storage.schema import writers
from deniable.storage.store import Chain, HotTransaction, Store, TryAgain

_log = logging.getLogger("deniable")

PAUSES = (0.0, 0.0, 0.01, 0.05, 0.25)
"""Seconds to wait before each retry of a batch."""

REREADS = 20
"""How often a batch may find its experiments changed before giving up."""


class _RollBack(Exception):
    """Raised to roll back a probe's transaction."""


@dataclass
class Counts:
    """Counts since the start of this process. They reveal nothing about segments, arms or visitors.

    Attributes:
        decisions: answered decisions, including those of known visitors.
        new_decisions: decisions drawn and stored.
        unstored: decisions answered without the store because it failed.
        rewards: answered rewards.
        batches: committed transactions.
    """

    decisions: int = 0
    new_decisions: int = 0
    unstored: int = 0
    rewards: int = 0
    batches: int = 0

    def add(self, jobs: Sequence[Job]) -> None:
        """Count one finished batch."""
        self.batches += 1
        for job in jobs:
            if isinstance(job, DecideJob):
                self.decisions += len(job.answers)
            elif isinstance(job, RewardJob) and job.error is None:
                self.rewards += len(job.rewards)


class Engine:
    """Runs batches. Must be used by one thread at a time.

    Args:
        store: the store to write to.
        key: key for visitor HMACs.
        mask_key: returns the key of the firm's masks, if this process has it.
        grown: called with each experiment that may have grown enough for its next table.
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        mask_key: Callable[[], bytes | None],
        *,
        grown: Callable[[ExperimentState], None],
    ) -> None:
        self._store = store
        self._key = key
        self._grown = grown
        self._states = ExperimentStates(store, key, mask_key)
        self._identity: Identity | None = None
        self._chain: Chain | None = None
        self._last: tuple[int, Chain] | None = None  # writer and end of its chain, as last stored
        self.counts = Counts()
        self.failing = False
        self._skip_store_until = 0.0
        self._outage = ""  # why the store was last unavailable
        self._logged = ""  # the cause of an outage that was logged last
        self._beaten_hour = 0

    def run(self, jobs: Sequence[Job]) -> None:
        """Answer every job. On return, `answers` or `error` is set on each."""
        began = time.monotonic()
        skipping = began < self._skip_store_until and any(job.size for job in jobs)
        try:
            if skipping:
                raise StoreUnavailableError(self._outage)
            self._stored(jobs)
            if self.failing:
                _log.warning("decisions are stored again")
            self.failing, self._skip_store_until, self._logged = False, 0.0, ""
        # Nothing has been acknowledged, so any failure is answered from the neutral row, and the
        # writer keeps running.
        except Exception as error:  # noqa: BLE001
            if not skipping:
                self._note_failure(error, began)
            self._answer_without_store(jobs, error)
        self.counts.add(jobs)

    def _note_failure(self, error: Exception, began: float) -> None:
        """Log a new cause, and decide for how long the store is not used."""
        if causes(error) != self._logged:  # not for every batch of an outage
            self._logged = causes(error)
            _log.error("decisions cannot be stored: %s", self._logged)
        self.failing = True
        self._chain = None
        if isinstance(error, StoreUnavailableError):
            # Spend at most half of the time waiting for a hanging store.
            took = time.monotonic() - began
            self._outage = str(error)
            self._skip_store_until = max(self._skip_store_until, began + 2 * took)

    def probe(self) -> None:
        """Do everything that a decision needs up to the commit, then roll back. Raises on failure."""
        identity = self._identity = self._identity or self._store.retried(claim)
        with self._store.read() as connection:
            key = connection.execute(
                select(table.c.key).where(table.c.status == "running").limit(1)
            ).scalar()
        if key is None:
            return
        self._states.learn((key,), ())
        try:
            with self._store.hot() as transaction:
                chain = self._chain or self._reread_chain(transaction, identity)
                batch = JobBatch(transaction, identity, chain, times.now(), self._key)
                nobody = DecideJob(key, (os.urandom(16).hex(),), (None,), lambda _job: None)
                for state in self._states.current(transaction, (key,), ()):
                    sound = not (state.differences or state.lacks_key)
                    if state.serves_draws and sound and state.unlisted is not None:
                        batch.decide(state, (nobody,))
                        batch.store()
                raise _RollBack
        except _RollBack:
            pass
        except OutOfDate as changed:  # the store works; the next batch rereads anyway
            self._states.reread(changed.ids)
        finally:
            self._chain = None

    def beat(self) -> None:
        """Let the chain say once a day that the service is running, even where nothing happens."""
        try:
            self._store.retried(commitments.beat)
        except Exception as error:  # noqa: BLE001 - no decision depends on it; tried again in an hour
            _log.warning("the ledger has no entry of today: %s", causes(error))

    def state(self, experiment: str) -> ExperimentState | None:
        """Return an experiment's cached state, if any."""
        return self._states.by_key.get(experiment)

    def labels_of(self, mask: str) -> Sequence[str]:
        """Return all labels of a mask; none if it was never asked for one."""
        return self._states.labels_of(mask)

    def close(self) -> None:
        """Release the chain."""
        identity, self._identity = self._identity, None
        if identity is not None:
            with suppress(StoreUnavailableError):
                self._store.retried(lambda connection: release(connection, identity))

    def _stored(self, jobs: Sequence[Job]) -> None:
        """Run one durable transaction, with retries where they can help. Fails fast during an outage."""
        pauses = () if self.failing else PAUSES
        for pause in (*pauses, None):
            try:
                self._attempt(jobs)
            except TryAgain as lost:
                self._chain = None
                if pause is None:
                    raise StoreUnavailableError(str(lost)) from lost
                time.sleep(pause)
            else:
                return

    def _attempt(self, jobs: Sequence[Job]) -> None:
        """Run the batch with experiment states that are current within its transaction."""
        deciding, rewarding = _by_experiment(jobs), _by_tag(jobs)
        labelling = _by_mask(jobs)
        self._states.learn(deciding, rewarding)
        for _ in range(REREADS):
            try:
                self._transact(deciding, rewarding, labelling)
            except OutOfDate as changed:
                self._states.reread(changed.ids)
                self._states.learn(deciding, rewarding)  # a draft may have been replaced
            else:
                return
        raise TryAgain("an experiment keeps changing")

    def _transact(
        self,
        deciding: dict[str, list[DecideJob]],
        rewarding: dict[bytes, list[RewardJob]],
        labelling: dict[str, list[LabelJob]],
    ) -> None:
        if self._chain is None:
            self._check_not_older()
        masks = self._states.masks(labelling) if labelling else {}
        identity = self._identity = self._identity or self._store.retried(claim)
        rewarded = dict.fromkeys(job for jobs in rewarding.values() for job in jobs)
        asked = [job for job in rewarded if job.outcomes is not None]
        told: dict[tuple[bytes, int], str] | None = {} if asked else None
        with self._store.hot() as transaction:
            chain = self._chain or self._reread_chain(transaction, identity)
            states = self._states.current(transaction, deciding, rewarding)
            # A clock that was set back must not make a decision older than its table.
            now = max(times.now(), *(state.chained_at for state in states), 0)
            batch = JobBatch(transaction, identity, chain, now, self._key)
            rewards, refused = checked_rewards(states, rewarding)
            for mask in masks.values():
                if mask.mask is not None and not mask.ended:
                    batch.label(mask, labelling[mask.name])
            unstored = []
            for state in states:
                asked_for, bad = checked_ids(state, deciding.get(state.key, ()))
                refused |= bad
                mine = [job for job in asked_for if job.observed == state.observed]
                if mine and (state.differences or state.lacks_key):
                    continue
                if mine and state.serves_draws:
                    batch.decide(state, mine)
                elif mine:
                    unstored.append((state, mine))
                if state.id[:4] in rewards:
                    batch.reward(state, rewards[state.id[:4]], told)
            if batch.changed or not (
                deciding or rewarding or labelling
            ):  # an empty batch is a probe
                chain = batch.store()
        self._chain, self._last = chain, (identity.writer, chain)
        self._finish(batch, states, deciding, unstored, now)
        if now // HOUR != self._beaten_hour:
            self._beaten_hour = now // HOUR
            self.beat()
        for name, labels in labelling.items():
            refusal = _mask_refusal(name, masks.get(name))
            refused |= dict.fromkeys(labels, refusal) if refusal is not None else {}
        for job, error in refused.items():
            job.error = error
        for job in asked:
            if told is not None and job.error is None:
                job.outcomes = outcomes_of(job, states, told)

    def _finish(
        self,
        batch: JobBatch,
        states: Sequence[ExperimentState],
        deciding: dict[str, list[DecideJob]],
        unstored: Sequence[tuple[ExperimentState, Sequence[DecideJob]]],
        now: int,
    ) -> None:
        """Answer the jobs; the transaction is durable."""
        for job, answers in batch.answers:
            job.answers = answers
        for labelled, labels in batch.labels:
            labelled.answers = labels
        for state, jobs in unstored:
            for job in jobs:
                job.answers = [state.unstored(self._key) for _ in job.visitors]
        known = {state.key: state for state in states}
        for key, jobs in deciding.items():
            for job in jobs:
                job.error = _refusal(key, known.get(key), job.observed)
        for state in states:
            if state.key in deciding:
                state.answered_hour = now // HOUR
                if state.mask is not None:
                    state.mask.answered_hour = now // HOUR
            new = batch.new_decisions[state]
            self.counts.new_decisions += new
            state.new_decisions += new
            if new and state.new_decisions >= state.look_after:
                self._grown(state)

    def _check_not_older(self) -> None:
        """Raise if the store has lost what this process stored: visitors would be drawn for again."""
        if self._last is None:
            return
        writer, (seq, head) = self._last
        with self._store.read() as connection:
            found = connection.execute(
                select(writers.c.seq, writers.c.head).where(writers.c.id == writer)
            ).one_or_none()
        if found is None or found.seq < seq or (found.seq == seq and found.head != head):
            raise StoreUnavailableError(
                "the store is older than what this process has stored: end all processes and run "
                "`deniable restore`"
            )

    def _reread_chain(self, transaction: HotTransaction, identity: Identity) -> Chain:
        chain = transaction.chain(identity.writer, identity.owner)
        if chain is None:
            self._identity = None
            raise TryAgain("this writer's chain was taken over")
        return chain

    def _answer_without_store(self, jobs: Sequence[Job], error: Exception) -> None:
        refusal = (
            error
            if isinstance(error, DeniableError)
            else StoreUnavailableError(f"the batch could not be stored: {type(error).__name__}")
        )
        for job in jobs:
            state = self._states.by_key.get(job.experiment) if isinstance(job, DecideJob) else None
            if isinstance(job, DecideJob) and state is not None and not state.differences:
                job.answers = [state.unstored(self._key) for _ in job.visitors]
                self.counts.unstored += len(job.answers)
            else:
                job.error = refusal


def _refusal(key: str, state: ExperimentState | None, observed: bool) -> DeniableError | None:
    """Return why this experiment refuses a request, whatever the segment; None if it does not."""
    if state is None:
        return UnknownNameError("experiment", key)
    if state.differences:
        return WrongStateError(
            f"experiment {key!r} is not served: its stored {', '.join(state.differences)} "
            "is not what the ledger says; run `deniable ledger verify`"
        )
    if observed and not state.observed:
        return WrongStateError(
            f"experiment {key!r} is for visits that nobody observes: ask for it as unobserved"
        )
    if state.observed and not observed:
        return WrongStateError(f"experiment {key!r} is not declared unobserved")
    return None if state.mask is None else _mask_refusal(state.mask.name, state.mask)


def _by_experiment(jobs: Sequence[Job]) -> dict[str, list[DecideJob]]:
    """Group the decide jobs of a batch by experiment key, in order."""
    grouped: dict[str, list[DecideJob]] = {}
    for job in jobs:
        if isinstance(job, DecideJob) and job.visitors:
            grouped.setdefault(job.experiment, []).append(job)
    return grouped


def _mask_refusal(name: str, mask: MaskState | None) -> DeniableError | None:
    """Return why no label of this mask is given; None if they are."""
    if mask is None:
        return UnknownNameError("mask", name)
    if mask.ended:
        return WrongStateError(f"mask {name!r} has ended")
    if mask.mask is None:
        return WrongStateError(f"this process does not have the key of mask {name!r}")
    return None


def _by_mask(jobs: Sequence[Job]) -> dict[str, list[LabelJob]]:
    """Group the label jobs of a batch by mask, in order."""
    grouped: dict[str, list[LabelJob]] = {}
    for job in jobs:
        if isinstance(job, LabelJob) and job.visitors:
            grouped.setdefault(job.mask, []).append(job)
    return grouped


def _by_tag(jobs: Sequence[Job]) -> dict[bytes, list[RewardJob]]:
    """Group the reward jobs of a batch by the tags at the start of their decision ids."""
    grouped: dict[bytes, list[RewardJob]] = {}
    for job in jobs:
        if isinstance(job, RewardJob):
            for tag in {decision[:4] for decision, _, _ in job.rewards}:
                grouped.setdefault(tag, []).append(job)
    return grouped

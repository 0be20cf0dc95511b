"""Requests about single visitors: show, look up and erase what is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from deniable.errors import NANO, InvalidArgumentError
from deniable.service.approvals import Approvals
from deniable.service.ids import DecisionIds, normalised, visitor_hash, visitor_scopes
from deniable.service.jobs import checked_visitor
from deniable.storage import erasure, experiments, masks, times
from deniable.storage.account import read_settings, record_answers
from deniable.storage.account_rules import HOUR
from deniable.storage.erasure import Erasure
from deniable.storage.records import (
    MICRO,
    OTHER,
    UNKNOWN_SEGMENT,
    Decision,
    Experiment,
    Role,
    Status,
)
from deniable.storage.schema import StoredRow, arms, decisions, rewarded_decisions, rewards
from deniable.storage.schema import experiments as experiment_rows
from deniable.storage.store import Store


@dataclass(frozen=True)
class StoredDecision:
    """One decision with everything stored about its visitor.

    Attributes:
        experiment: the experiment's key.
        status: status of the experiment.
        decided_at: time of the decision.
        segment: the given segment or context; None if the experiment does not list it.
        arm: the shown arm.
        risk: the limit on the visitor's privacy risk, in nats.
        reward: reward of the deciding metric; None if there is none.
    """

    experiment: str
    status: Status
    decided_at: datetime
    segment: str | None
    arm: str
    risk: float
    reward: float | None


@dataclass(frozen=True)
class StoredLabel:
    """A visitor's label for life.

    Attributes:
        mask: the mask's name.
        period: the period for which it was drawn.
        label: such as ~sports.
    """

    mask: str
    period: str
    label: str


class Live(NamedTuple):
    """A running or paused experiment.

    Attributes:
        key: its key.
        counts: the id of what counts against the firm's budget because of it: itself, or its mask.
        contexts: its contexts.
        arms: the keys of its arms.
    """

    key: str
    counts: bytes | None
    contexts: list[str]
    arms: list[str]


_LIVE = (
    select(
        experiment_rows.c.id,
        experiment_rows.c.key,
        experiment_rows.c.budget_nano,
        experiment_rows.c.mask,
        experiment_rows.c.contexts,
        arms.c.key,
    )
    .join(arms, arms.c.experiment_id == experiment_rows.c.id)
    .where(experiment_rows.c.status.in_(("running", "paused")), experiment_rows.c.observed)
    .order_by(experiment_rows.c.created_at, experiment_rows.c.key, arms.c.position)
)
_KNOWN = select(
    decisions.c.experiment_id,
    decisions.c.visitor,
    decisions.c.id,
    decisions.c.shown,
).where(
    decisions.c.experiment_id.in_(bindparam("ids", expanding=True)),
    decisions.c.visitor.in_(bindparam("wanted", expanding=True)),
)


class VisitorRequests:
    """The part of `Deniable` that handles requests about single visitors."""

    def __init__(self, store: Store, key: bytes, approvals: Approvals) -> None:
        self._store = store
        self._key = key
        self._approvals = approvals
        self._recorded: dict[bytes, int] = {}  # experiment -> the last hour recorded here

    def decisions(self, visitor: str, context: str | None = None) -> dict[str, Decision]:
        """Return a visitor's decisions in observed running and paused experiments, by experiment key.

        Of an experiment on contexts, that of the current one.

        Never draws. It shows arms, so it counts as an answer: the cost of these experiments counts
        until a window after it.
        """
        return {experiment.key: decision for experiment, decision in self.known(visitor, context)}

    def known(self, visitor: str, context: str | None = None) -> list[tuple[Live, Decision]]:
        """Like `decisions`, with details of the experiments.

        Takes two statements, and one for masks if a live experiment has one. Once an hour, another
        one records the answer before it is given.
        """
        checked_visitor(visitor)
        with self._store.read() as connection:
            arms = connection.execute(_LIVE).all()
            masked = masks.everything_masked(connection) if any(row.mask for row in arms) else []
            used = {mask.name: mask.id for mask in masked}
            live: dict[bytes, Live] = {}
            for identity, key, budget_nano, mask, contexts, arm in arms:
                if identity not in live:
                    counts = identity if budget_nano else used.get(mask)
                    live[identity] = Live(key, counts, json.loads(contexts), [])
                live[identity].arms.append(arm)
            wanted = [
                self._hashes(
                    identity, [c for c in known.contexts if c in (OTHER, context)], visitor
                )[-1]
                for identity, known in live.items()
            ]
            rows = connection.execute(_KNOWN, {"ids": list(live), "wanted": wanted}).all()
        shown = {live[row.experiment_id].counts for row in rows}
        self._answered([identity for identity in shown if identity is not None])
        return [(live[row.experiment_id], self._decision(live, row)) for row in rows]

    def labels(self, visitor: str) -> list[StoredLabel]:
        """Return the labels stored about a visitor: not what they were drawn from, nor the draw."""
        checked_visitor(visitor)
        with self._store.read() as connection:
            return [
                StoredLabel(mask.name, mask.period, mask.labels[number])
                for mask in masks.everything_masked(connection)
                for number in masks.labels_of(
                    connection, mask.id, self._hashes(mask.id, (), visitor)[0]
                )
            ]

    def stored(self, visitor: str) -> list[StoredDecision]:
        """Return everything stored about a visitor, in all experiments that were ever started.

        Args:
            visitor: your id of the visitor; it is hashed here, and neither stored nor logged.
        """
        checked_visitor(visitor)
        found: list[StoredDecision] = []
        with self._store.read() as connection:
            for experiment in experiments.everything(connection):
                if experiment.started_at is None:
                    continue
                identity = bytes.fromhex(experiment.id)
                rows = connection.execute(
                    select(decisions, rewards.c.value.label("reward"))
                    .select_from(rewarded_decisions)
                    .where(
                        decisions.c.experiment_id == identity,
                        decisions.c.visitor.in_(
                            self._hashes(identity, experiment.contexts, visitor)
                        ),
                    )
                )
                found += [_stored_decision(experiment, row) for row in rows]
        return found

    def erase(self, visitors: Iterable[str]) -> Erasure:
        """Erase these visitors in every experiment. Totals and promises stay.

        A keyed tombstone stays until a purge after the experiment no longer counts. A visitor who
        returns gets an arm from the neutral row, so there is no second draw at a risk and nothing to
        debit.
        """
        if isinstance(visitors, str):  # its letters would be erased, and nobody else
            raise InvalidArgumentError("visitors", "...", "a list of visitor ids, not one text")
        names = [checked_visitor(visitor) for visitor in visitors]
        words = f"erase {len(names)} visitor{'' if len(names) == 1 else 's'}"
        self._require(words, sorted(normalised(name) for name in names))
        self._store.retried(lambda connection: self._erase_labels(connection, names))
        return erasure.erase(
            self._store,
            self._key,
            lambda experiment: [
                hashed
                for name in names
                for hashed in self._hashes(bytes.fromhex(experiment.id), experiment.contexts, name)
            ],
        )

    def _erase_labels(self, connection: Connection, names: Sequence[str]) -> None:
        for mask in masks.everything_masked(connection):
            hashes = [self._hashes(mask.id, (), name)[0] for name in names]
            masks.erase(connection, mask, hashes)

    def purge(
        self,
        *,
        before: datetime,
        running: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Erasure:
        """Erase all visitors decided before a time, in small transactions.

        It can be interrupted and repeated: completed parts stay done.

        Args:
            before: the time.
            running: include experiments that still draw.
            progress: callback that receives the number done and the total.
        """
        self._require(f"erase all visitors of before {before:%Y-%m-%d %H:%M}", before, running)
        return erasure.purge(
            self._store,
            self._key,
            before=times.as_stored(before),
            running=running,
            progress=progress,
        )

    def retain(self) -> Erasure | None:
        """Erase the visitors whom the firm's settings no longer keep; None if they keep everybody.

        It takes no second person: setting the retention period did.
        """
        with self._store.read() as connection:
            days = read_settings(connection).retention_days
        if days is None:
            return None
        before = times.now() - days * 24 * HOUR
        return erasure.purge(self._store, self._key, before=before, running=False)

    def _answered(self, shown: Sequence[bytes]) -> None:
        hour = times.now() // HOUR
        new = [identity for identity in shown if self._recorded.get(identity, -1) < hour]
        if new:
            self._store.retried(lambda connection: record_answers(connection, new, hour))
            self._recorded |= dict.fromkeys(new, hour)

    def _require(self, words: str, *exactly: object) -> None:
        """Require a second person if the firm's rules say so."""
        with self._approvals.asking(), self._store.read() as connection:
            self._approvals.require_erasure(connection, words, *exactly)

    def _decision(self, live: Mapping[bytes, Live], row: StoredRow) -> Decision:
        ids = DecisionIds(self._key, row.experiment_id)
        return Decision(ids.shown(row.id), live[row.experiment_id].arms[row.shown])

    def _hashes(self, experiment: bytes, contexts: Sequence[str], visitor: str) -> list[bytes]:
        """Return the visitor's stored form in each context."""
        name = normalised(visitor)
        scopes = visitor_scopes(experiment, contexts)
        return [visitor_hash(self._key, scope, name) for scope in scopes]


def _stored_decision(experiment: Experiment, row: StoredRow) -> StoredDecision:
    at_risk = row.role == Role.MEMBER and row.segment != UNKNOWN_SEGMENT
    risk_nano = experiment.budget_nano if at_risk else 0
    return StoredDecision(
        experiment=experiment.key,
        status=experiment.status,
        decided_at=times.as_datetime(row.decided_at),
        segment=experiment.rows[row.segment] if row.segment >= 0 else None,
        arm=experiment.arms[row.shown].key,
        risk=risk_nano / NANO,
        reward=None if row.reward is None else row.reward / MICRO,
    )

"""What is stored about one visitor, for a person who asks to see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from deniable.errors import NANO
from deniable.service.jobs import checked_visitor
from deniable.service.visitors import VisitorHash
from deniable.storage import experiments, times
from deniable.storage.records import Status
from deniable.storage.schema import decisions, rewards
from deniable.storage.store import Store


@dataclass(frozen=True)
class StoredDecision:
    """One decision with all that is kept about its visitor.

    Attributes:
        experiment: its key.
        status: of the experiment.
        decided_at: when.
        segment: as it was given; None where the experiment does not list it.
        arm: what was shown.
        risk: the privacy risk that the visitor was given, in nats.
        reward: 1 a success, 0 none, None not told.
    """

    experiment: str
    status: Status
    decided_at: datetime
    segment: str | None
    arm: str
    risk: float
    reward: int | None


class AccessRequests:
    """The part of `Deniable` that answers a person who asks what is stored about them."""

    _store: Store
    _key: bytes

    def decisions_of(self, visitor: str) -> list[StoredDecision]:
        """Everything stored about a visitor, in every experiment that was ever started.

        Args:
            visitor: the firm's id; it is hashed here and is not stored or logged.
        """
        checked_visitor(visitor)
        found = []
        with self._store.read() as connection:
            for experiment in experiments.everything(connection):
                if experiment.started_at is None:
                    continue
                identity = bytes.fromhex(experiment.id)
                row = connection.execute(
                    select(decisions, rewards.c.value.label("reward"))
                    .outerjoin(
                        rewards,
                        (rewards.c.experiment_id == decisions.c.experiment_id)
                        & (rewards.c.decision_id == decisions.c.id),
                    )
                    .where(
                        decisions.c.experiment_id == identity,
                        decisions.c.visitor == VisitorHash(self._key, identity)(visitor),
                    )
                ).one_or_none()
                if row is not None:
                    found.append(
                        StoredDecision(
                            experiment=experiment.key,
                            status=experiment.status,
                            decided_at=times.as_datetime(row.decided_at),
                            segment=experiment.segments[row.segment] if row.segment >= 0 else None,
                            arm=experiment.arms[row.shown].key,
                            risk=row.risk_nano / NANO,
                            reward=row.reward,
                        )
                    )
        return found

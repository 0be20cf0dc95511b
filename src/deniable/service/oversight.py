"""Oversight: the ledger, its verification, exports, retention and erasure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection, delete, func, select

from deniable.service.export import Shape, export
from deniable.service.jobs import checked_visitor
from deniable.service.visitors import VisitorHash, group_scope
from deniable.storage import commitments, experiments, times
from deniable.storage.erasure import Erasure, forget
from deniable.storage.ledger import Verification, verify
from deniable.storage.records import Commitment, Experiment
from deniable.storage.schema import decisions, memberships
from deniable.storage.store import Store

_Work: TypeAlias = Callable[[Connection, Experiment, Erasure], None]


class Oversight:
    """The part of `Deniable` that looks back."""

    _store: Store
    _key: bytes

    def ledger(self) -> list[Commitment]:
        """Everything that touched the firm's budget or an experiment's state, oldest first."""
        with self._store.read() as connection:
            return commitments.entries(connection)

    def verify_ledger(self, *, noted: Mapping[str, str] | None = None) -> Verification:
        """Check both kinds of chains, the counters and the totals; says what is wrong first.

        Args:
            noted: `heads` of an earlier verification, kept outside of the store: each must still be
                part of its chain.
        """
        with self._store.read() as connection:
            return verify(connection, noted or {})

    def export(self, path: str | Path, *, experiment: str, shape: Shape = "private") -> int:
        """Write decisions to a file by its ending (.parquet, .csv, .jsonl, .vw); returns the rows.

        Args:
            path: the file; its ending is the format.
            experiment: whose decisions.
            shape: `private` (segment, greedy, shown, propensities, risk, version, reward), `public`
                (what a tracker sees: arm and time), `open-bandit` or `vowpal-wabbit` for off-policy
                tools. All but `public` hold segments: keep them in the trusted zone.
        """
        with self._store.read() as connection:
            return export(connection, Path(path), experiments.by_key(connection, experiment), shape)

    def erase(self, visitors: Iterable[str]) -> Erasure:
        """Forget these visitors in every experiment; totals and promise stay.

        Their arm memory goes too: in a running experiment they can be drawn a second time. That
        second spend, the largest risk they were given, is debited from the firm; where it does not
        fit, the experiment is exhausted and serves new visitors uniformly from then on.
        """
        names = [checked_visitor(visitor) for visitor in visitors]

        def work(connection: Connection, experiment: Experiment, outcome: Erasure) -> None:
            hashed = VisitorHash(self._key, bytes.fromhex(experiment.id))
            condition = decisions.c.visitor.in_([hashed(name) for name in names])
            members: list[bytes] = []
            if experiment.group is not None:
                members = list(map(VisitorHash(self._key, group_scope(experiment.group)), names))
            forget(connection, "erase", experiment, condition, members, outcome)

        return self._for_each(work)

    def purge(self, *, before: datetime, running: bool = False) -> Erasure:
        """Forget everybody who was decided for before a time.

        Args:
            before: the time.
            running: also in experiments that still draw, with the debit that `erase` explains.
        """
        limit = times.as_stored(before)

        def work(connection: Connection, experiment: Experiment, outcome: Erasure) -> None:
            if experiment.status != "stopped" and not running:
                return
            forget(connection, "purge", experiment, decisions.c.decided_at < limit, (), outcome)
            if experiment.status == "stopped":
                _drop_unused_members(connection, experiment)

        return self._for_each(work)

    def _for_each(self, work: _Work) -> Erasure:
        """`work` on every experiment, in one transaction that holds the chain of commitments."""

        def everywhere(connection: Connection) -> Erasure:
            commitments.lock_chain(connection)
            outcome = Erasure()
            for experiment in experiments.everything(connection):
                work(connection, experiment, outcome)
            return outcome

        return self._store.retried(everywhere)


def _drop_unused_members(connection: Connection, experiment: Experiment) -> None:
    """Memberships of an experiment of which nobody is left."""
    identity = bytes.fromhex(experiment.id)
    left = connection.execute(
        select(func.count()).where(
            decisions.c.experiment_id == identity, decisions.c.salt.is_not(None)
        )
    ).scalar()
    if not left:
        connection.execute(delete(memberships).where(memberships.c.experiment_id == identity))

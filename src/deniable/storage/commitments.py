"""The firm's account: periods, debits in one atomic statement, and the chain that records them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from sqlalchemy import Connection, func, insert, select, update

from deniable.errors import InsufficientBudgetError, UnknownNameError
from deniable.storage import times
from deniable.storage.chain import commitment_hash
from deniable.storage.records import Commitment, Experiment, Firm
from deniable.storage.schema import COMMITMENT_CHAIN, commitments, experiments, periods, writers


def current_firm(connection: Connection, *, lock: bool = False) -> Firm:
    """The current period, or UnknownNameError; locked until the end of the transaction if asked."""
    query = select(periods).where(periods.c.current)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise UnknownNameError("firm budget", "current")
    return Firm(
        id=row.id.hex(),
        budget_nano=row.budget_nano,
        committed_nano=row.committed_nano,
        starts_at=times.as_datetime(row.starts_at),
        ends_at=times.maybe_datetime(row.ends_at),
    )


def period_end(connection: Connection) -> int | None:
    """When the current period ends, as stored; None where it is open (or there is none)."""
    return connection.execute(select(periods.c.ends_at).where(periods.c.current)).scalar()


def open_period(connection: Connection, budget_nano: int, ends_at: int | None) -> Firm:
    """Close the current period and open one that already carries the live experiments."""
    live = connection.execute(
        select(experiments.c.group_name, experiments.c.budget_nano).where(
            experiments.c.status.in_(("running", "paused"))
        )
    )
    carried = joint_cost((group, budget) for group, budget in live)
    if carried > budget_nano:
        raise InsufficientBudgetError(remaining=budget_nano, requested=carried)
    connection.execute(update(periods).where(periods.c.current).values(current=False))
    connection.execute(
        insert(periods).values(
            id=os.urandom(16),
            budget_nano=budget_nano,
            committed_nano=carried,
            starts_at=times.now(),
            ends_at=ends_at,
            current=True,
        )
    )
    # What was exhausted in the old period can draw again on the new one's account.
    connection.execute(
        update(experiments)
        .where(experiments.c.status != "stopped")
        .values(exhausted=False, revision=experiments.c.revision + 1)
    )
    record(connection, "period", None, carried, budget_nano=budget_nano, ends_at=ends_at)
    return current_firm(connection)


def joint_cost(costs: Iterable[tuple[str | None, int]]) -> int:
    """What experiments cost together: each its budget, those of one group only their largest.

    >>> joint_cost([(None, 2), ("page", 3), ("page", 5), (None, 1)])
    8
    """
    largest: dict[str, int] = {}
    alone = 0
    for group, cost in costs:
        if group is None:
            alone += cost
        else:
            largest[group] = max(cost, largest.get(group, 0))
    return alone + sum(largest.values())


def debit(connection: Connection, amount_nano: int) -> None:
    """Take from the current period: check and debit are one statement."""
    taken = connection.execute(
        update(periods)
        .where(periods.c.current)
        .where(periods.c.committed_nano + amount_nano <= periods.c.budget_nano)
        .values(committed_nano=periods.c.committed_nano + amount_nano)
    )
    if taken.rowcount != 1:
        remaining = current_firm(connection).remaining_nano
        raise InsufficientBudgetError(remaining=remaining, requested=amount_nano)


def group_cost(connection: Connection, group: str, firm: Firm) -> int:
    """What a group already takes of this period: the largest budget of those that ran in it."""
    largest = connection.execute(
        select(func.max(experiments.c.budget_nano)).where(
            experiments.c.group_name == group,
            experiments.c.started_at.is_not(None),
            experiments.c.stopped_at.is_(None)
            | (experiments.c.stopped_at >= times.as_stored(firm.starts_at)),
        )
    ).scalar()
    return largest or 0


def lock_chain(connection: Connection) -> None:
    """Make every other change of budgets wait until this transaction ends.

    SQLite knows no row locks and needs none: its write transactions take turns anyway.
    """
    connection.execute(
        select(writers.c.seq).where(writers.c.id == COMMITMENT_CHAIN).with_for_update()
    )


def record(
    connection: Connection,
    kind: str,
    experiment: Experiment | None,
    amount_nano: int = 0,
    **detail: object,
) -> None:
    """Append one entry to the chain of commitments."""
    row = connection.execute(
        select(writers.c.seq, writers.c.head).where(writers.c.id == COMMITMENT_CHAIN)
    ).one()
    identity = bytes.fromhex(experiment.id) if experiment else None
    seq, moment = row.seq + 1, times.now()
    text = json.dumps(detail, sort_keys=True)
    link = commitment_hash(row.head, seq, kind, identity, amount_nano, text, moment)
    connection.execute(
        insert(commitments).values(
            seq=seq,
            kind=kind,
            experiment_id=identity,
            amount_nano=amount_nano,
            detail=text,
            recorded_at=moment,
            hash=link,
        )
    )
    connection.execute(
        update(writers).where(writers.c.id == COMMITMENT_CHAIN).values(seq=seq, head=link)
    )


def entries(connection: Connection, experiment: Experiment | None = None) -> list[Commitment]:
    """The whole chain, oldest first, or what of it concerns one experiment."""
    query = (
        select(commitments, experiments.c.key)
        .outerjoin(experiments, experiments.c.id == commitments.c.experiment_id)
        .order_by(commitments.c.seq)
    )
    if experiment is not None:
        query = query.where(commitments.c.experiment_id == bytes.fromhex(experiment.id))
    rows = connection.execute(query)
    return [
        Commitment(
            seq=row.seq,
            kind=row.kind,
            experiment=row.key,
            amount_nano=row.amount_nano,
            detail=row.detail,
            recorded_at=times.as_datetime(row.recorded_at),
        )
        for row in rows
    ]

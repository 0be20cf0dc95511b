"""Forgetting visitors: what identifies them goes, what was counted and chained stays.

Of a decision, the visitor's HMAC, segment, greedy and shown arm, clock, risk and the salt are removed
and its reward row is deleted; the commitment is written in their place, so the chain still verifies.
Counters keep their totals.

The visitor's arm memory goes too. In an experiment that still draws, the visitor can come back and be
drawn a second time, a second spend of at most the risk of the first draw plus the budget. The
experiment's own commitment covers the second; the first is debited here, once for all visitors that
are forgotten together (they are different people), from the firm. Where the firm has too little left
the visitors are forgotten all the same and the experiment is exhausted: new visitors get a uniform arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from deniable.errors import InsufficientBudgetError
from deniable.storage import commitments, experiments
from deniable.storage.chain import commitment
from deniable.storage.records import Experiment
from deniable.storage.schema import decisions, memberships, rewards

_PAGE = 500


@dataclass
class Erasure:
    """What was done.

    Attributes:
        decisions: how many decisions were stripped of their visitor.
        debits_nano: experiment key -> what the second draws cost the firm.
        exhausted: experiments that had no budget left for them, and serve uniformly from now on.
    """

    decisions: int = 0
    debits_nano: dict[str, int] = field(default_factory=dict)
    exhausted: list[str] = field(default_factory=list)


def forget(
    connection: Connection,
    kind: str,
    experiment: Experiment,
    condition: ColumnElement[bool],
    members: Sequence[bytes],
    outcome: Erasure,
) -> None:
    """Strip the decisions of one experiment that `condition` holds for.

    Args:
        connection: in a transaction that holds the chain of commitments.
        kind: `erase` or `purge`, for the ledger.
        experiment: whose.
        condition: which of its decisions; erased ones are left as they are.
        members: the visitors' memberships in the experiment's group, to be forgotten as well.
        outcome: is added to.
    """
    identity = bytes.fromhex(experiment.id)
    chosen = condition & (decisions.c.experiment_id == identity) & decisions.c.salt.is_not(None)
    count, largest = connection.execute(
        select(func.count(), func.coalesce(func.max(decisions.c.risk_nano), 0)).where(chosen)
    ).one()
    if members:
        connection.execute(
            delete(memberships).where(
                memberships.c.group_name == experiment.group,
                memberships.c.experiment_id == identity,
                memberships.c.visitor.in_(members),
            )
        )
    if not count:
        return
    while rows := connection.execute(select(decisions).where(chosen).limit(_PAGE)).all():
        _strip(connection, rows)
    outcome.decisions += count
    debit = _debited(connection, experiment, largest, outcome)
    commitments.record(
        connection,
        kind,
        experiment,
        debit,
        decisions=count,
        exhausted=experiment.key in outcome.exhausted,
    )


def _debited(connection: Connection, experiment: Experiment, largest: int, outcome: Erasure) -> int:
    """What the second draws cost, taken from the firm; 0 where there can be none or none is left."""
    firm = commitments.current_firm(connection)
    live = experiment.status in ("running", "paused")
    # Once forgotten, the members of a stopped experiment are free for the others of its group.
    frees_members = experiment.stopped_at is not None and experiment.stopped_at >= firm.starts_at
    can_come_back = live or (experiment.group is not None and frees_members)
    if not largest or experiment.exhausted or not can_come_back:
        return 0
    try:
        commitments.debit(connection, largest)
    except InsufficientBudgetError:
        experiments.exhaust(connection, experiment)
        outcome.exhausted.append(experiment.key)
        return 0
    outcome.debits_nano[experiment.key] = largest
    return largest


def _strip(connection: Connection, rows: Sequence[Any]) -> None:
    for row in rows:
        erasable = (row.visitor, row.salt, row.segment, row.greedy, row.shown)
        here = (decisions.c.experiment_id == row.experiment_id) & (decisions.c.id == row.id)
        connection.execute(
            update(decisions)
            .where(here)
            .values(
                visitor=None,
                salt=None,
                segment=None,
                greedy=None,
                shown=None,
                clock=None,
                risk_nano=None,
                commitment=commitment(*erasable, row.clock, row.risk_nano),
            )
        )
        connection.execute(
            delete(rewards).where(
                rewards.c.experiment_id == row.experiment_id, rewards.c.decision_id == row.id
            )
        )

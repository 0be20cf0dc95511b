"""The table in force as chances: what all rows share, what is tailored, when and why it came."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from deniable.privacy.exact import SPACE
from deniable.privacy.tables import decoded_table
from deniable.storage.records import Experiment, PublishedTable
from deniable.strategies import TABLE_RULES
from deniable.strategies.rules import Grade

MOST_ROWS = 40
"""Segments that are listed."""


@dataclass(frozen=True)
class TableInForce:
    """The table that arms of new visitors are drawn from. Private.

    Attributes:
        number: its number in the experiment.
        version: of the experiment's arms.
        published_at: when it came into force.
        why: the reason, in words; never one visitor.
        rows: a name and, for each arm, its chance and the part of it that all rows share; that
            of unlisted segments is the last.
        shared: the sum of the shared parts.
        unlisted: how many segments are left out of `rows`.
    """

    number: int
    version: int
    published_at: datetime
    why: str
    rows: list[tuple[str, list[tuple[float, float]]]]
    shared: float
    unlisted: int


def table_in_force(
    experiment: Experiment, published: PublishedTable, before: PublishedTable | None
) -> TableInForce:
    """Describe a table.

    Args:
        experiment: whose.
        published: the table.
        before: the one that it replaced; None for the first.
    """
    table = decoded_table(published.rows, len(experiment.arms))
    rows = [*zip(experiment.rows, table.rows, strict=True)][:MOST_ROWS]
    rows.append(("not listed", table.unlisted))
    shared = [min(column) / SPACE for column in zip(*table.rows, table.unlisted, strict=True)]
    return TableInForce(
        number=published.number,
        version=published.version,
        published_at=published.published_at,
        why=_why(published, before),
        rows=[
            (name, [(entry / SPACE, share) for entry, share in zip(row, shared, strict=True)])
            for name, row in rows
        ],
        shared=sum(shared),
        unlisted=max(0, len(experiment.rows) - MOST_ROWS),
    )


def grade_now(experiment: Experiment) -> Grade:
    """What is promised over all versions: "given the time" once an arm was switched off or added."""
    return "given the time" if experiment.version > 1 else TABLE_RULES[experiment.strategy].grade


def _why(published: PublishedTable, before: PublishedTable | None) -> str:
    if before is None:
        return "before the first visitor"
    if before.version != published.version:
        more = _arms_of(published) > _arms_of(before)
        return f"because an arm was {'added' if more else 'switched off'}"
    return f"because decisions had grown from {before.decisions:,} to {published.decisions:,}"


def _arms_of(published: PublishedTable) -> int:
    """How many arms there were when a table was made, on or off."""
    return len(json.loads(published.counts)["shows"][0])

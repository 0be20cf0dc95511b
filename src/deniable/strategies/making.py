"""From an experiment's counts to its table: what the publisher does and an auditor does again."""

from __future__ import annotations

from collections.abc import Sequence

from deniable.privacy.tables import Band, Row, Table
from deniable.strategies import STRATEGIES


def make_table(
    strategy: str,
    *,
    budgets: Row,
    active: Sequence[int],
    shows: Sequence[Sequence[int]],
    rewards: Sequence[Sequence[int]],
    cap: int,
    horizon: int | None = None,
) -> Table:
    """The table that a strategy makes of these counts, checked exactly.

    Args:
        strategy: its name.
        budgets: nano-nats, by arm.
        active: positions of the arms that are on; the others are never shown.
        shows: by segment and arm; noisy counts may be anything.
        rewards: sums of rewards by segment and arm.
        cap: the largest reward of one show.
        horizon: visitors planned for, where known.

    Raises:
        BrokenPromiseError: the table would exceed a budget.
    """
    # Noisy counts are clipped here, where they are used, never where they are summed.
    shown = [[max(0, row[arm]) for arm in active] for row in shows]
    earned = [
        [min(max(0, row[arm]), count * cap) for arm, count in zip(active, counts, strict=True)]
        for row, counts in zip(rewards, shown, strict=True)
    ]
    some_budgets = tuple(budgets[arm] for arm in active)
    made = STRATEGIES[strategy].table(some_budgets, shown, earned, horizon=horizon)
    table = Table(
        rows=tuple(_over_all_arms(row, active, len(budgets)) for row in made.rows),
        zero=_over_all_arms(made.zero, active, len(budgets)),
    )
    table.check(budgets)
    return table


def make_band(strategy: str, *, budgets: Row, active: Sequence[int]) -> Band | None:
    """The band that every table of these arms keeps to; None where the strategy has none.

    Args:
        strategy: its name.
        budgets: nano-nats, by arm.
        active: positions of the arms that are on; the others have 0 everywhere.
    """
    fixed = STRATEGIES[strategy].band(tuple(budgets[arm] for arm in active))
    if fixed is None:
        return None
    return Band(
        floors=_over_all_arms(fixed.floors, active, len(budgets)),
        ceilings=_over_all_arms(fixed.ceilings, active, len(budgets)),
        zero=_over_all_arms(fixed.zero, active, len(budgets)),
    )


def _over_all_arms(row: Row, active: Sequence[int], n_arms: int) -> Row:
    entries = dict(zip(active, row, strict=True))
    return tuple(entries.get(arm, 0) for arm in range(n_arms))

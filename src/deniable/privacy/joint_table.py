"""Integer tables: rows in units of 2^-64 whose worst ratio over segments keeps the budget exactly.

Floating-point rows P(arm | segment) that keep a budget up to rounding error become integer rows
that keep it in exact arithmetic. An arm is shown to every segment or to none: if all its entries
are below 2^-32 they become 0, otherwise each is raised to at least 2^-32. Rows are then mixed with
their mean, by increasing weights, until the exact check passes. Mixing with the mean brings each
arm's entries closer together and preserves the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from deniable import _validation as check
from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.tables import Row

Rows: TypeAlias = tuple[tuple[int, ...], ...]
"""One row of K integers per segment, each row summing to 2^64."""

SMALLEST = 1 << 32
"""The smallest nonzero entry, in units of 2^-64."""

_MIX_BITS = 64  # the weight of the mean is a multiple of 2^-64


def worst_ratio(rows: Sequence[Sequence[int]]) -> Fraction:
    """Return the largest ratio of an arm's entries over two segments: how far seeing it moves the odds.

    >>> worst_ratio([[2**63, 2**63], [2**62, 3 * 2**62]])
    Fraction(2, 1)
    """
    worst = Fraction(1)
    for arm, column in enumerate(zip(*rows, strict=True)):
        low, high = min(column), max(column)
        if low <= 0 < high or low < 0:
            raise BrokenPromiseError(f"arm {arm} is shown to some segments and never to others")
        if high > low:
            worst = max(worst, Fraction(high, low))
    return worst


def keeps_budget(rows: Sequence[Sequence[int]], budget_nano: int) -> bool:
    """Whether no arm's ratio over two segments exceeds e^budget, in exact arithmetic."""
    bound = exp_floor(budget_nano)
    for column in zip(*rows, strict=True):
        low, high = min(column), max(column)
        if low < 0 or high * bound.denominator > low * bound.numerator:
            return False
    return True


def integer_table(table: Sequence[Sequence[float]], budget_nano: int) -> Rows:
    """Return integer rows close to the table that keep the budget exactly.

    Args:
        table: P(arm | segment), one sequence of K probabilities for each segment.
        budget_nano: the budget in nano-nats.

    >>> rows = integer_table([[0.731059, 0.268941], [0.268941, 0.731059]], 1_000_000_000)
    >>> [round(part / 2**64, 6) for part in rows[0]], keeps_budget(rows, 1_000_000_000)
    ([0.731059, 0.268941], True)
    """
    budget = check.whole("budget_nano", budget_nano, 0)
    rows = _rounded(_parts(table))
    total = [sum(column) for column in zip(*rows, strict=True)]
    weight = 0
    while not keeps_budget(mixed := _mix(rows, total, weight), budget):
        weight = max(1, 2 * weight)
        if weight > 1 << _MIX_BITS:
            raise BrokenPromiseError("no mix of the rows keeps the budget")
    return mixed


def mean_row(rows: Sequence[Row], weights: Sequence[int]) -> Row:
    """Return the weighted mean of integer rows, between the least and the largest entry of each arm.

    It therefore does not increase any arm's worst ratio.

    >>> mean_row([(2**63, 2**63), (2**62, 3 * 2**62)], [1, 1]) == (3 * 2**61, 5 * 2**61)
    True
    """
    total = sum(weights)
    sums = [
        sum(weight * part for weight, part in zip(weights, column, strict=True))
        for column in zip(*rows, strict=True)
    ]
    row = [whole // total for whole in sums]
    missing = SPACE - sum(row)
    # Only arms whose mean was rounded down get a unit, so none exceeds its largest entry.
    for arm in sorted(range(len(row)), key=lambda arm: -(sums[arm] % total))[:missing]:
        row[arm] += 1
    return tuple(row)


def _parts(table: Sequence[Sequence[float]]) -> list[list[int]]:
    """Convert entries to units of 2^-64, one row per segment, without small nonzero ones."""
    columns = []
    for chances in zip(*table, strict=True):
        if not all(0 <= chance <= 1 + 1e-9 for chance in chances):
            raise InvalidArgumentError("table", list(chances), "probabilities")
        parts = [int(Fraction(float(chance)) * SPACE) for chance in chances]
        least = SMALLEST if max(parts) >= SMALLEST else 0
        columns.append([max(part, least) if least else 0 for part in parts])
    rows = [list(row) for row in zip(*columns, strict=True)]
    for row in rows:
        if abs(sum(row) - SPACE) > SPACE >> 16:
            raise InvalidArgumentError("table", sum(row) / SPACE, "rows that sum to 1")
    return rows


def _rounded(rows: list[list[int]]) -> list[list[int]]:
    """Scale each row to sum to 2^64; the remainder goes to its largest entry."""
    result = []
    for row in rows:
        total = sum(row)
        scaled = [part * SPACE // total for part in row]
        scaled[scaled.index(max(scaled))] += SPACE - sum(scaled)
        result.append(scaled)
    return result


def _mix(rows: list[list[int]], total: list[int], weight: int) -> Rows:
    """Return (1 - w) row + w mean with w = weight / 2^64, rounded so that every row sums to 2^64.

    The mean of an arm is rounded once for all rows, so that all rows are equal at w = 1.
    """
    n_rows = len(rows)
    mean = _rounded([[part // n_rows for part in total]])[0]
    keep = (1 << _MIX_BITS) - weight
    mixed = []
    for row in rows:
        parts = [keep * own + weight * all_ for own, all_ in zip(row, mean, strict=True)]
        floors = [part >> _MIX_BITS for part in parts]
        floors[floors.index(max(floors))] += SPACE - sum(floors)
        mixed.append(tuple(floors))
    return tuple(mixed)

"""Published tables: integer probabilities that keep the promise exactly.

A row of a table holds one integer per arm, the arm's probability in units of 2^-64, and sums to
2^64. A table has one row per listed segment, and one for all others. Visitors whose arm must reveal
nothing are served from a neutral row, which depends on no data.

The nested family (budgets b_j, c_j = 1/(e^b_j - 1), C = sum c, weights w_j = c_j/C):

    P(j | greedy arm l) = (1 - beta) w_j + beta 1[j = l],      0 <= beta <= beta* = 1/(1 + C)

Any two tables of the family, for any two segments at any two times, differ by at most e^b_j in arm j.
In integers, a `Band` is fixed when an experiment starts: floors F_j, ceilings U_j <= F_j e^b_j and a
neutral row W between them. Every row of the family stays inside the band, so the ratio of any two
entries that were ever published is at most U_j/F_j <= e^b_j, in exact arithmetic.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import accumulate, chain
from struct import Struct

from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE, exp_floor, nano_nats

Row = tuple[int, ...]
"""One integer per arm, summing to 2^64."""

_ENTRY_BYTES = 9  # an entry can be as large as 2^64
_DECIMAL = Context(prec=40)
_BONUS_STEPS = 1 << 32
_PRECISION = 1600  # fractional bits of c_j: 1/(e^1000 - 1) still has 150 of them


@dataclass(frozen=True)
class Table:
    """One table of probabilities.

    Attributes:
        rows: one row per listed segment, in declared order.
        unlisted: the row for all other segments.

    >>> Table(rows=((2**63, 2**63), (2**62, 3 * 2**62)), unlisted=(2**63, 2**63)).worst_ratios()
    (Fraction(2, 1), Fraction(3, 2))
    """

    rows: tuple[Row, ...]
    unlisted: Row

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidArgumentError("rows", self.rows, "one row or more")
        for row in (*self.rows, self.unlisted):
            if len(row) != len(self.unlisted) or min(row) < 0 or sum(row) != SPACE:
                raise BrokenPromiseError("a row is not a probability distribution over the arms")

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.unlisted)

    def row(self, segment: int) -> Row:
        """Return the row at a segment's index; that of unlisted ones for a negative index."""
        return self.rows[segment] if segment >= 0 else self.unlisted

    def worst_ratios(self) -> tuple[Fraction, ...]:
        """Return, per arm, the exact factor by which seeing it can move the odds between two segments.

        Unlisted segments count as one more. An arm that no row shows has the ratio 1. An arm that some
        rows show and others never show would prove the segment, and raises BrokenPromiseError.
        """
        return self._worst_ratios

    @cached_property
    def _worst_ratios(self) -> tuple[Fraction, ...]:
        columns = zip(*self.rows, self.unlisted, strict=True)
        return tuple(_ratio(min(column), max(column)) for column in columns)

    def check(self, budgets: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the worst ratios; raise BrokenPromiseError if one exceeds e^budget (nano-nats)."""
        ratios = self.worst_ratios()
        for ratio, budget in zip(ratios, budgets, strict=True):
            if ratio > exp_floor(budget):
                raise BrokenPromiseError(f"a table exceeds its budget of {budget} nano-nats")
        return ratios

    def encoded(self) -> bytes:
        """Encode the table as bytes: the row of unlisted segments, then the others."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        entries = [*self.unlisted, *chain.from_iterable(self.rows)]
        if max(entries) < SPACE:
            return _packed(len(entries)).pack(*entries)
        return b"".join([entry.to_bytes(_ENTRY_BYTES, "little") for entry in entries])

    def digest(self) -> str:
        """SHA-256 of the encoded table, in hexadecimal."""
        return sha256(self.encoded()).hexdigest()


@lru_cache(maxsize=8)  # publishing and then serving a table decodes it once
def decoded_table(encoded: bytes, n_arms: int) -> Table:
    """Decode a table written by `Table.encoded`."""
    width = n_arms * _ENTRY_BYTES
    if not width or len(encoded) % width or len(encoded) < 2 * width:
        raise BrokenPromiseError("a stored table does not have the shape of its experiment")
    entries: Row = _packed(len(encoded) // _ENTRY_BYTES).unpack(encoded)
    if any(encoded[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]):
        entries = tuple(
            int.from_bytes(encoded[start : start + _ENTRY_BYTES], "little")
            for start in range(0, len(encoded), _ENTRY_BYTES)
        )
    rows = [entries[start : start + n_arms] for start in range(0, len(entries), n_arms)]
    table = Table(rows=tuple(rows[1:]), unlisted=rows[0])
    vars(table)["_encoded"] = encoded  # every sequence of bytes has one meaning, and the reverse
    return table


@lru_cache(maxsize=64)
def _packed(count: int) -> Struct:
    """So many entries below 2^64, whose ninth byte is 0."""
    return Struct("<" + "Qx" * count)


def encoded_size(n_segments: int, n_arms: int) -> int:
    """Size of an encoded table, in bytes."""
    return (n_segments + 1) * n_arms * _ENTRY_BYTES


def stored_table(encoded: bytes, counts: bytes, n_segments: int, n_arms: int) -> Table:
    """Return a stored table in the current shape of its experiment, which may have grown since.

    Arms and segments are only appended, so positions keep their meaning. The table shows arms that
    were added later to no visitor; segments that were added later get its row of unlisted ones, as
    they did then.

    Args:
        encoded: as written by `Table.encoded`.
        counts: JSON of the counts it was made from; the shape of `shows` gives its segments and
            arms.
        n_segments: J, the current number of segments.
        n_arms: K, the current number of arms.

    >>> even = Table(rows=((2**63, 2**63),), unlisted=(2**62, 3 * 2**62))
    >>> grown = stored_table(even.encoded(), b'{"shows": [[0, 0]]}', 2, 3)
    >>> grown.rows[1] == grown.unlisted == (2**62, 3 * 2**62, 0)
    True
    """
    # Both only grow, so an equal size means the current shape.
    if len(encoded) == encoded_size(n_segments, n_arms):
        return decoded_table(encoded, n_arms)
    try:
        shows = json.loads(counts)["shows"]
        then_segments, then_arms = len(shows), len(shows[0])
    except (ValueError, TypeError, KeyError, IndexError):
        raise BrokenPromiseError("a stored table does not say its shape") from None
    table = decoded_table(encoded, then_arms)
    if len(table.rows) != then_segments or then_segments > n_segments or then_arms > n_arms:
        raise BrokenPromiseError("a stored table does not have the shape of its experiment")
    later_arms = (0,) * (n_arms - then_arms)
    rows = table.rows + (table.unlisted,) * (n_segments - then_segments)
    return Table(tuple(row + later_arms for row in rows), table.unlisted + later_arms)


def neutral_row(weights: Sequence[int]) -> Row:
    """Return chances in proportion to whole weights, in units of 2^-64; one unit off at most.

    >>> neutral_row([1, 1]) == (2**63, 2**63), neutral_row([3, 0, 1]) == (3 * 2**62, 0, 2**62)
    (True, True)
    """
    total = sum(weights)
    row = [SPACE * weight // total for weight in weights]
    # Arms whose chance was rounded down most get the units that are left, so 0 stays 0.
    by_rest = sorted(range(len(row)), key=lambda arm: -(SPACE * weights[arm] % total))
    for arm in by_rest[: SPACE - sum(row)]:
        row[arm] += 1
    return tuple(row)


def without_arm(neutral: Row, arm: int) -> Row:
    """Return the neutral row after an arm was switched off: the others in the same proportions.

    >>> without_arm((2**62, 2**62, 2**63), 2) == (2**63, 2**63, 0)
    True
    """
    return neutral_row([0 if place == arm else entry for place, entry in enumerate(neutral)])


def with_arm(neutral: Row) -> Row:
    """Return the neutral row with one more arm, which gets the mean of the arms that are on.

    >>> with_arm((2**63, 0, 2**63)) == neutral_row([1, 0, 1, 1])
    True
    """
    shown = sum(entry > 0 for entry in neutral)
    return neutral_row([*(shown * entry for entry in neutral), SPACE])


def thresholds(row: Row) -> list[int]:
    """Return where each arm's interval of [0, 2^64) ends, padded so that all searches take equally long.

    `bisect_right(thresholds(row), point)` is the arm for a uniform point.

    >>> [bisect_right(thresholds((2**62, 0, 3 * 2**62)), point) for point in (0, 2**62, 2**64 - 1)]
    [0, 2, 2]
    """
    ends = list(accumulate(row[:-1]))
    steps = len(ends).bit_length()
    return ends + [SPACE] * ((1 << steps) - 1 - len(ends))


def draw(row_thresholds: Sequence[int], point: int) -> int:
    """Return the arm whose interval contains this uniformly drawn point."""
    return bisect_right(row_thresholds, point)


@dataclass(frozen=True)
class Band:
    """Integer limits on all entries of an experiment's tables, fixed for its whole life.

    Attributes:
        floors: F_j, the smallest entry that arm j ever has.
        ceilings: U_j, the largest, at most F_j e^b_j.
        neutral: W, the row of risk 0.

    >>> band((10**9, 10**9)).neutral == (2**63, 2**63)
    True
    """

    floors: Row
    ceilings: Row
    neutral: Row

    def check(self, budgets: Sequence[int]) -> None:
        """Raise BrokenPromiseError unless U_j <= F_j e^b_j for every arm and W is inside."""
        for floor, ceiling, neutral, budget in zip(
            self.floors, self.ceilings, self.neutral, budgets, strict=True
        ):
            bound = exp_floor(budget)
            over = ceiling * bound.denominator > bound.numerator * floor
            never = not (floor or neutral or ceiling)  # an arm that is never shown
            if over or not (never or 0 < floor <= neutral <= ceiling):
                raise BrokenPromiseError(f"a band exceeds its budget of {budget} nano-nats")
        if sum(self.neutral) != SPACE:
            raise BrokenPromiseError("the neutral row of a band does not sum to 2^64")

    def holds(self, rows: Iterable[Row]) -> bool:
        """Whether all entries of these rows are within the limits."""
        columns = zip(*rows, strict=True)
        return all(
            floor <= min(column) and max(column) <= ceiling
            for floor, column, ceiling in zip(self.floors, columns, self.ceilings, strict=True)
        )

    def row(self, greedy: Sequence[int], bonus: Fraction) -> Row:
        """Return the row for these tied greedy arms with this share of the largest bonus.

        Args:
            greedy: indices of the greedy arms, which share the bonus.
            bonus: beta/beta*, from 0 (the neutral row) to 1 (the whole budget).
        """
        if not bonus:
            return self.neutral
        numerator, denominator = bonus.numerator, bonus.denominator
        plain = list(self.floors)
        if numerator != denominator:
            plain = [
                -(-(whole * denominator - numerator * (whole - floor)) // denominator)
                for whole, floor in zip(self.neutral, self.floors, strict=True)
            ]
        # The average of the rows in which each tied arm alone is greedy: all of them gain the same.
        share, odd = divmod(SPACE - sum(plain), len(greedy))
        for place, arm in enumerate(sorted(greedy)):
            plain[arm] += share + (place < odd)
        return tuple(plain)


@lru_cache(maxsize=4096)
def band(budgets: Row) -> Band:
    """Compute the band of an experiment with these budgets (nano-nats, per arm).

    F_j = max(1, ceil(2^64 c_j/(1+C))), U_j = floor(F_j e^b_j), and W has the weights c_j/C,
    adjusted to fit the band and sum to 2^64. Raises BrokenPromiseError if no neutral row fits.

    >>> fixed = band((500_000_000, 10**9, 2 * 10**9))
    >>> [round(entry / 2**64, 3) for entry in fixed.neutral]
    [0.676, 0.255, 0.069]
    >>> [round(fixed.row([arm], Fraction(1))[arm] / 2**64, 3) for arm in range(3)]
    [0.775, 0.482, 0.353]
    """
    risks = nano_nats("budgets", budgets)
    if not max(risks):
        share, odd = divmod(SPACE, len(risks))
        even = tuple(share + (arm < odd) for arm in range(len(risks)))
        return Band(even, even, even)
    factors = {risk: _inverse_odds(risk) for risk in set(risks)}
    weights = [factors[risk] for risk in risks]
    total = sum(weights)
    one = 1 << _PRECISION
    floors = [max(1, -(-SPACE * weight // (one + total))) for weight in weights]
    ceilings = []
    for floor, risk in zip(floors, risks, strict=True):
        bound = exp_floor(risk)
        ceilings.append(min(SPACE, floor * bound.numerator // bound.denominator))
    neutral = fitted([SPACE * weight // total for weight in weights], floors, ceilings)
    made = Band(tuple(floors), tuple(ceilings), neutral)
    made.check(risks)
    return made


def fitted(wanted: Sequence[int], floors: Sequence[int], ceilings: Sequence[int]) -> Row:
    """Adjust a row to lie between floors and ceilings and sum to 2^64.

    >>> [entry >> 60 for entry in fitted([2**63, 2**61], [2**62, 2**60], [2**63, 2**63])]
    [8, 8]
    """
    row = [
        min(max(entry, floor), ceiling)
        for entry, floor, ceiling in zip(wanted, floors, ceilings, strict=True)
    ]
    missing = SPACE - sum(row)
    rooms = [
        (ceiling - entry if missing > 0 else floor - entry)
        for entry, floor, ceiling in zip(row, floors, ceilings, strict=True)
    ]
    if abs(missing) > abs(sum(rooms)):
        raise BrokenPromiseError("no row of risk 0 lies between the floors and ceilings")
    # Spread rounding errors as one unit per arm if that is enough; otherwise fill the largest gaps
    # first.
    sign = 1 if missing > 0 else -1
    left = abs(missing)
    for arm in sorted(range(len(row)), key=lambda arm: -abs(rooms[arm])):
        most = 1 if 0 < left <= len(row) else left
        step = min(most, abs(rooms[arm]))
        row[arm] += sign * step
        left -= step
    for arm in range(len(row)):  # the first round leaves units over if some arms had no room
        room = abs((ceilings[arm] if sign > 0 else floors[arm]) - row[arm])
        step = min(left, room)
        row[arm] += sign * step
        left -= step
    return tuple(row)


def _inverse_odds(risk: int) -> int:
    """Return 1/(e^risk - 1) in fixed point, rounded up."""
    power = exp_floor(risk)
    return -(-(power.denominator << _PRECISION) // (power.numerator - power.denominator))


def _ratio(least: int, most: int) -> Fraction:
    if least:
        return Fraction(most, least)
    if most:
        raise BrokenPromiseError("an arm is shown to some segments and never to others")
    return Fraction(1)


def greedy_arms(shows: Sequence[int], rewards: Sequence[int]) -> list[int]:
    """Return all arms with the highest reward per show, compared exactly; arms never shown count as 0.

    >>> greedy_arms([10, 20, 0], [1, 2, 0])
    [0, 1]
    """
    best, best_shows, best_reward = [0], shows[0] or 1, rewards[0]
    for arm in range(1, len(shows)):
        lead = rewards[arm] * best_shows - best_reward * (shows[arm] or 1)
        if lead > 0:
            best, best_shows, best_reward = [arm], shows[arm] or 1, rewards[arm]
        elif lead == 0:
            best.append(arm)
    return best


def dynamic_bonus(budgets: Row, clock: int) -> Fraction:
    """Return min(beta*, 1 - exploration_n)/beta*, exploration_n = (K log n / n)^(1/3), rounded down.

    Computed in decimal arithmetic of fixed precision, so that auditors get the same number on any
    machine.

    Args:
        budgets: nano-nats per arm.
        clock: n, the number of the segment's next visitor.

    >>> [round(float(dynamic_bonus((10**9, 10**9), clock)), 6) for clock in (2, 10, 51)]
    [0.0, 0.492876, 1.0]
    """
    if clock < 3 or not max(budgets):
        return Fraction(0)
    inverse, largest = _inverse_bonus(budgets)
    # Well past the end of the schedule, floats suffice to tell that it has ended.
    if 1 - (len(budgets) * math.log(clock) / clock) ** (1 / 3) > largest + 1e-9:
        return Fraction(1)
    with localcontext(_DECIMAL):
        rate = len(budgets) * Decimal(clock).ln() / clock
        if rate >= 1:
            return Fraction(0)
        room = 1 - rate ** (Decimal(1) / 3)
    steps = Fraction(room) * inverse * _BONUS_STEPS
    return min(Fraction(1), Fraction(math.floor(steps), _BONUS_STEPS))


@lru_cache(maxsize=4096)
def _inverse_bonus(budgets: Row) -> tuple[Fraction, float]:
    """Return 1/beta* = 1 + C, rounded up (so that shares round down), and beta* as a float."""
    inverse = 1 + Fraction(sum(map(_inverse_odds, budgets)), 1 << _PRECISION)
    return inverse, float(1 / inverse)


def nested_table(
    fixed: Band,
    shows: Sequence[Sequence[int]],
    rewards: Sequence[Sequence[int]],
    bonuses: Sequence[Fraction],
) -> Table:
    """Compute the table of the nested family from these counts alone.

    Args:
        fixed: the experiment's band.
        shows: shows per segment and arm.
        rewards: sums of rewards per segment and arm.
        bonuses: beta/beta* per segment.
    """
    rows = tuple(
        fixed.row(greedy_arms(shown, earned), bonus)
        for shown, earned, bonus in zip(shows, rewards, bonuses, strict=True)
    )
    if not fixed.holds(rows):
        raise BrokenPromiseError("a row lies outside of its experiment's band")
    return Table(rows, fixed.neutral)

"""One label for life: a private stand-in for a person's segment, drawn once by a keyed hash.

The budget is spent on the label. Whatever reads only the label (experiments, pages, mailings,
recommenders, vendors) is post-processing and spends nothing more. The draw is a function of the key,
the visitor and the segment, so Python, JavaScript and SQL give the same label without shared state.

The channel is randomized response on m groups of segments. Its probabilities are integers in units of
2^-64 (`own` for the person's own group, `other` for each other one) whose ratio is at most e^budget,
checked in fractions. A person whose segment is not known yet gets a label from the null row, which
has equal chances.

The draw of one person uses different randomness for each group. If two groups shared it, the labels of
a person whose segment changes would prove the segment.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING
from unicodedata import normalize

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import NANO, BrokenPromiseError, InvalidArgumentError
from deniable.masks.limit import label_limit
from deniable.privacy.exact import SPACE, exp_floor

if TYPE_CHECKING:
    from altair.typing import ChartType

MOST_LABELS = 1000
KEY_BYTES = 32
SPECIFICATION = "deniable-mask-1"
"""The first field of every hashed message: the number of the specification."""

_FIELD, _VALUE, _GROUP = "\x1f", "\x1e", "\x1d"  # separators: of fields, values, groups
_NAME = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)
_VISITOR = re.compile(r"[!-~]{1,256}", re.ASCII)
_NULL = "-"


class Mask:
    """Turns segments into private labels.

    Args:
        segments: the names of all segments, in order.
        budget: in nats; a string such as "1.13" is taken exactly as typed.
        key: 32 secret bytes, the same in every engine. Never in a browser.
        name: of the mask: lower-case letters, digits and hyphens.
        version: raise it when the groups or the budget change. That is a new budget.
        period: a new period draws new labels and spends the budget again.
        groups: label name -> its segments. Without it, every segment is a label of its own.

    >>> mask = Mask(
    ...     segments=["under-25", "25-44", "45-64", "65-plus"],
    ...     budget=1,
    ...     key=bytes(range(32)),
    ...     name="age",
    ... )
    >>> mask.label("v-1", "under-25"), mask.label("v-1", "65-plus"), mask.label("v-1", None)
    ('~under-25', '~45-64', '~45-64')
    >>> round(mask.highest_belief(prior=0.2), 3)
    0.405
    """

    def __init__(
        self,
        *,
        segments: Sequence[str],
        budget: float | str | Decimal,
        key: bytes,
        name: str,
        version: int = 1,
        period: str = "life",
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        names = _names("segments", segments)
        chosen = {segment: [segment] for segment in names} if groups is None else groups
        self._groups = _checked_groups(names, chosen)
        self._budget_nano = _nano(budget)
        self._own, self._other = channel_entries(len(self._groups), self._budget_nano)
        self._key = _secret(key)
        self._name = _identifier("name", name)
        self._version = check.whole("version", version, 1)
        self._period = _identifier("period", period)
        self._segments = names
        self._number_of: dict[str | None, int] = {
            segment: number
            for number, members in enumerate(self._groups.values())
            for segment in members
        }
        self._number_of[None] = len(self._groups)
        self._labels = tuple(f"~{label}" for label in self._groups)
        self._rows = (*map(self._row, range(len(self._groups))), null_row(len(self._groups)))
        self._thresholds = tuple(tuple(accumulate(row))[:-1] for row in self._rows)
        self._head = _FIELD.join((*self.message_head, "")).encode()
        places = (*map(str, range(len(self._groups))), _NULL)
        self._tails = tuple(f"{_FIELD}{place}".encode() for place in places)
        self._check()

    def __repr__(self) -> str:
        labels = len(self._groups)
        return (
            f"Mask({self._name!r}, {labels} labels, budget {self.budget}, key {self.fingerprint})"
        )

    # -- what it is ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the mask."""
        return self._name

    @property
    def version(self) -> int:
        """The version of groups and budget."""
        return self._version

    @property
    def period(self) -> str:
        """The period for which labels are drawn."""
        return self._period

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments, as declared."""
        return self._segments

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Label name (without ~) -> its segments, in declared order."""
        return dict(self._groups)

    @property
    def labels_in_order(self) -> tuple[str, ...]:
        """All labels as they are written, such as ~sports."""
        return self._labels

    @property
    def budget(self) -> Decimal:
        """The budget in nats, exactly."""
        return Decimal(self._budget_nano) / NANO

    @property
    def fingerprint(self) -> str:
        """Identifies the key without revealing it: 16 hex digits."""
        return key_fingerprint(self._key)

    @property
    def channel_hash(self) -> str:
        """Identifies groups and probabilities: 16 hex digits, a part of every hashed message."""
        groups = [_VALUE.join(members) for members in self._groups.values()]
        text = _GROUP.join([*groups, f"{self._own:016x}", f"{self._other:016x}"])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def message_head(self) -> tuple[str, ...]:
        """The fields of every hashed message that come before the visitor and the group."""
        return SPECIFICATION, self._name, str(self._version), self.channel_hash, self._period

    @property
    def entries(self) -> tuple[tuple[int, ...], ...]:
        """Integer rows of the channel in units of 2^-64: one for each group, then the null row."""
        return self._rows

    @property
    def channel(self) -> list[list[Fraction]]:
        """The exact probability of each label (column) for a member of each group (row).

        >>> mask = Mask(segments=["a", "b"], budget="0.5", key=bytes(32), name="m")
        >>> [round(float(p), 3) for p in mask.channel[0]]
        [0.622, 0.378]
        """
        return [[Fraction(entry, SPACE) for entry in row] for row in self._rows[:-1]]

    @property
    def by_segment(self) -> FloatArray:
        """The probability of each label (column) for each segment (row), as floats."""
        rows = np.array(self._rows[:-1], dtype=np.float64) / SPACE
        return np.asarray(rows[[self._number_of[segment] for segment in self._segments]])

    # -- labels -------------------------------------------------------------------------------------

    def label(self, visitor: str, segment: str | None) -> str:
        """Return the label of a visitor, such as "~sports".

        Call it with the first segment that was ever known of the visitor: a label must not follow a
        segment that changes.

        Args:
            visitor: an id of 1 to 256 printable ASCII characters without spaces, compared as it is.
            segment: None if it is not known yet.
        """
        # The id is checked first: a refusal of it must not depend on the segment.
        message = self._head + visitor_bytes(visitor)
        number = self.group_number(segment)
        return self._labels[bisect_right(self._thresholds[number], self._u(message, number))]

    def labels(self, visitors: Iterable[str], segments: Iterable[str | None]) -> list[str]:
        """Return the labels of many visitors, in order; see `label`."""
        return [self.label(v, s) for v, s in zip(visitors, segments, strict=True)]

    def group_number(self, segment: str | None) -> int:
        """Return the number of a segment's group from 0, or the number of groups for None."""
        number = self.group_or_null(segment)
        if number == len(self._groups) and segment is not None:
            # The value is not repeated in the error: errors end up in logs.
            allowed = f"one of the {len(self._segments)} segments of mask {self._name}, or None"
            raise InvalidArgumentError("segment", "...", allowed)
        return number

    def group_or_null(self, segment: str | None) -> int:
        """Like `group_number`, and the number of groups for a segment that is not listed, too."""
        number = self._number_of.get(segment)
        if number is None:
            number = self._number_of.get(normalize("NFC", str(segment)), len(self._groups))
        return number

    def label_of_group(self, visitor: str, number: int) -> str:
        """Return the label of a visitor whose first known group has this number."""
        u = self._u(self._head + visitor_bytes(visitor), number)
        return self._labels[bisect_right(self._thresholds[number], u)]

    def draw(self, visitor: str, segment: str | None) -> str:
        """Return u, the 16 hex digits that decide the label. For test vectors only.

        Whoever knows u and the label of a person can exclude segments.
        """
        message = self._head + visitor_bytes(visitor)
        return f"{self._u(message, self.group_number(segment)):016x}"

    def _u(self, message: bytes, number: int) -> int:
        digest = hmac.digest(self._key, message + self._tails[number], "sha256")
        return int.from_bytes(digest[:8], "big")

    # -- what it tells ------------------------------------------------------------------------------

    def posterior(self, shares: Sequence[float] | None = None) -> FloatArray:
        """Return the share of each segment (column) among the people with each label (row).

        Args:
            shares: of visitors by segment, summing to 1; equal by default.

        >>> mask = Mask(segments=["a", "b", "c", "d"], budget=1, key=bytes(32), name="m")
        >>> mask.posterior()[0].round(3).tolist()
        [0.475, 0.175, 0.175, 0.175]
        """
        weights = _shares(shares, len(self._segments))
        joint = weights * self.by_segment.T
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def highest_belief(self, prior: float) -> float:
        """Return the highest belief that a label can lead to: p e^budget / (p e^budget + 1 - p).

        Args:
            prior: p, a tracker's belief that a person is in a segment, before it sees anything.
        """
        p = check.single("prior", check.probability("prior", prior))
        ratio = float(exp_floor(self._budget_nano))
        return p * ratio / (p * ratio + 1 - p)

    def expected_limit(
        self, shares: Sequence[float] | None = None, *, heterogeneity: float
    ) -> float:
        """Return what the best arm of each label gains, as a share of perfect information.

        Args:
            shares: of visitors by segment, summing to 1; equal by default.
            heterogeneity: h, the part of the differences between arms that differs by segment.

        >>> mask = Mask(segments=["a", "b", "c", "d"], budget=1, key=bytes(32), name="m")
        >>> round(mask.expected_limit(heterogeneity=0.5), 6)
        0.811702
        """
        return label_limit(self.by_segment, _shares(shares, len(self._segments)), heterogeneity)

    def chart(self, shares: Sequence[float] | None = None) -> ChartType:
        """Draw, for each label, how many of 100 people with it are in each segment."""
        from deniable.charts.labels import label_chart
        from deniable.charts.theme import themed

        own = [self._number_of[segment] for segment in self._segments]
        return themed(label_chart(self._labels, self._segments, own, self.posterior(shares)))

    def _row(self, place: int) -> tuple[int, ...]:
        return tuple(
            self._own if label == place else self._other for label in range(len(self._groups))
        )

    def _check(self) -> None:
        """Check in fractions that every label's ratio between any two rows is at most e^budget."""
        most = exp_floor(self._budget_nano)
        for row in self._rows:
            if sum(row) != SPACE or min(row) <= 0:
                raise BrokenPromiseError("a row of the channel does not sum to 2^64")
        for column in zip(*self._rows, strict=True):
            if Fraction(max(column), min(column)) > most:
                raise BrokenPromiseError("the channel would exceed its budget")


def channel_entries(n_labels: int, budget_nano: int) -> tuple[int, int]:
    """Return `own` and `other`, the channel's integers in units of 2^-64.

    ``other = ceil(2^64 / (m - 1 + E))`` with a rational E at most e^budget, and the rest is `own`, so
    own <= E other exactly.

    >>> [f"{entry:016x}" for entry in channel_entries(4, 1_000_000_000)]
    ['79b1a4eec500ab94', '2cc4c905be551c24']
    """
    ratio = exp_floor(budget_nano)
    other = -(-SPACE // (n_labels - 1 + ratio))
    return SPACE - (n_labels - 1) * other, other


def null_row(n_labels: int) -> tuple[int, ...]:
    """Return equal chances in units of 2^-64; what cannot be divided goes to the first labels.

    >>> [f"{entry:x}" for entry in null_row(3)]
    ['5555555555555556', '5555555555555555', '5555555555555555']
    """
    low, rest = divmod(SPACE, n_labels)
    return tuple(low + (place < rest) for place in range(n_labels))


def key_fingerprint(key: bytes) -> str:
    """Return 16 hex digits that identify a key without revealing it."""
    return hmac.digest(key, b"deniable-mask-key", "sha256").hex()[:16]


def _secret(key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        # The key is not repeated in the error: errors end up in logs.
        raise InvalidArgumentError("key", "...", f"{KEY_BYTES} bytes")
    return key


def visitor_bytes(visitor: object) -> bytes:
    """Return the id as it is hashed, or raise InvalidArgumentError."""
    # Ids are refused, never trimmed or normalised: engines differ in that, and one person would get
    # two labels, or two people one.
    if not isinstance(visitor, str) or not _VISITOR.fullmatch(visitor):
        allowed = "1 to 256 printable ASCII characters without spaces"
        raise InvalidArgumentError("visitor", "...", allowed)  # errors end up in logs
    return visitor.encode("ascii")


def _identifier(argument: str, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        allowed = "1 to 64 lower-case letters, digits and hyphens"
        raise InvalidArgumentError(argument, value, allowed)
    return value


def _names(argument: str, values: Sequence[str]) -> tuple[str, ...]:
    names = check.listed(argument, values, "a list of names")
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or name.startswith("~"):
            raise InvalidArgumentError(argument, name, "printable text that does not begin with ~")
    normal = [normalize("NFC", name) for name in names]
    check.distinct(argument, normal, 2)
    return tuple(normal)


def _checked_groups(
    segments: tuple[str, ...], groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    labels = _names("groups", tuple(groups))
    if len(labels) > MOST_LABELS:
        raise InvalidArgumentError("groups", len(labels), f"2 to {MOST_LABELS:,} labels")
    members = [
        tuple(normalize("NFC", segment) for segment in check.listed("groups", names, "lists"))
        for names in groups.values()
    ]
    if not all(members) or sorted(sum(members, ())) != sorted(segments):
        raise InvalidArgumentError("groups", dict(groups), "every segment in one group")
    return dict(zip(labels, members, strict=True))


def _nano(budget: float | str | Decimal) -> int:
    """Convert a budget to nano-nats, exactly as typed; more digits than that are refused."""
    try:
        nano = Decimal(str(budget)) * NANO
        whole = int(nano)
    except (ArithmeticError, ValueError):
        raise InvalidArgumentError("budget", budget, "a number of nats") from None
    if whole != nano or not 1 <= whole <= 700 * NANO:
        raise InvalidArgumentError("budget", budget, "1e-9 to 700 nats, in steps of 1e-9")
    return whole


def _shares(shares: Sequence[float] | None, n_segments: int) -> FloatArray:
    if shares is None:
        return np.full(n_segments, 1 / n_segments)
    weights = check.probability("shares", shares)
    if weights.shape != (n_segments,) or abs(weights.sum() - 1) > 1e-9:
        allowed = f"{n_segments} numbers, one for each segment, that sum to 1"
        raise InvalidArgumentError("shares", shares, allowed)
    return weights

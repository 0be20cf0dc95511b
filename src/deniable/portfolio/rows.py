"""Validates the rows of a portfolio table together: one error lists every bad row."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deniable.errors import InvalidTableError
from deniable.expectations.prior import SEGMENTS
from deniable.strategies import STRATEGIES
from deniable.theory.regret import Form

REQUIRED = ("id", "arms", "visitors")
KNOWN = ("base_rate", "lift", "heterogeneity", "shares", "value")
"""Optional knowledge about an experiment. With a base rate, its expected loss can be computed."""
OPTIONAL = ("segments", "strategy", "min_budget", "max_budget", "committed", "layer", *KNOWN)
COLUMNS = REQUIRED + OPTIONAL
SYNONYMS = {"n_arms": "arms", "n_segments": "segments", "horizon": "visitors"}
"""Names of Python arguments elsewhere in the library, and the former name of a layer."""
_LARGEST_COUNT = 10**15
_LARGEST_BUDGET = 1e6
_LARGEST_WORTH = 1e12


@dataclass(frozen=True)
class Row:
    """One experiment with the types that the solver uses."""

    id: str
    arms: int
    visitors: int
    segments: int
    strategy: str | None
    min_budget: float | None
    max_budget: float | None
    committed: float | None
    layer: str | None
    base_rate: float | None = None
    lift: float | None = None
    heterogeneity: float | None = None
    shares: tuple[float, ...] | None = None
    value: float | None = None


def clean_rows(raw: Sequence[object], form: Form = "summed") -> list[Row]:
    """Validate and convert all rows; raise InvalidTableError with all problems.

    >>> clean_rows([{"id": "a", "arms": 1, "visitors": 9}, {"id": "b", "arms": 2}])
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidTableError: 2 problems: row 1 (a): arms=1: expected a whole number, 2 or
    more; row 2 (b): visitors is missing
    """
    if not raw:
        raise InvalidTableError([(0, "the table has no experiments")])
    given = [row for row in raw if isinstance(row, Mapping)]
    problems: list[tuple[int, str]] = [
        (number, f"row {number}: expected columns {', '.join(COLUMNS)}")
        for number, row in enumerate(raw, start=1)
        if not isinstance(row, Mapping)
    ]
    if problems:
        raise InvalidTableError(problems)
    given = [in_columns(row) for row in given]
    unknown = {key for row in given for key in row} - set(COLUMNS)
    problems += [
        (0, f"unknown column {name!r}: expected {', '.join(COLUMNS)}") for name in sorted(unknown)
    ]
    names = Counter(_text(row.get("id")) for row in given)
    rows = []
    for number, values in enumerate(given, start=1):
        wrong: list[str] = []
        row = _row(values, wrong, form)
        if row.id and names[row.id] > 1:
            wrong.append("the id is not unique")
        label = f" ({row.id})" if row.id else ""
        problems += [(number, f"row {number}{label}: {message}") for message in wrong]
        rows.append(row)
    if problems:
        raise InvalidTableError(problems)
    return rows


def in_columns(row: Mapping[str, object]) -> Mapping[str, object]:
    """Rename synonyms to columns; a synonym next to its column stays, and is rejected."""
    return {key if SYNONYMS.get(key, key) in row else SYNONYMS[key]: row[key] for key in row}


def _row(values: Mapping[str, object], wrong: list[str], form: Form) -> Row:
    name = _text(values.get("id"))
    if name is None:
        wrong.append("id is missing")
    arms = _count(values, "arms", 2, wrong)
    visitors = _count(values, "visitors", 1, wrong)
    shares = _shares(values, wrong)
    segments = len(shares) if shares else default_segments(form)
    if not _missing(values.get("segments")):
        segments = _count(values, "segments", 1, wrong)
        if shares is not None and len(shares) != segments:
            wrong.append(
                f"shares={len(shares)} of them: expected one for each of {segments} segments"
            )
    strategy = _text(values.get("strategy"))
    names = [name for name, kind in STRATEGIES.items() if form in kind.forms]
    if strategy is not None and strategy not in names:
        wrong.append(f"strategy={strategy!r}: expected {' or '.join(names)}, or nothing")
    elif strategy is not None and not STRATEGIES[strategy].fits(arms, segments):
        limit = STRATEGIES[strategy].largest
        wrong.append(f"strategy={strategy!r}: expected at most {limit} arms and {limit} segments")
    least, most, held = (
        _amount(values, column, wrong) for column in ("min_budget", "max_budget", "committed")
    )
    if least is not None and most is not None and least > most:
        wrong.append(f"min_budget={least:g} is above max_budget={most:g}")
    if held is not None and most is not None and held > most:
        wrong.append(f"committed={held:g} is above max_budget={most:g}")
    if held is not None and least is not None and held < least:
        wrong.append(f"committed={held:g} is below min_budget={least:g}")
    layer = _text(values.get("layer"))
    rate, lift, mixed = (
        _amount(values, column, wrong) for column in ("base_rate", "lift", "heterogeneity")
    )
    if _missing(values.get("base_rate")):
        told = [column for column in ("lift", "heterogeneity") if not _missing(values.get(column))]
        wrong += [f"{column}={values[column]!r}: expected a base_rate beside it" for column in told]
    return Row(
        *(name or "", arms, visitors, segments, strategy, least, most, held, layer),
        *(rate, lift, mixed, shares, _amount(values, "value", wrong)),
    )


def default_segments(form: Form) -> int:
    """Return the default number of segments; with one there would be nothing to protect."""
    return 1 if form == "paper" else SEGMENTS


def _missing(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _text(value: object) -> str | None:
    return None if _missing(value) else str(value).strip() or None


def _number(value: object) -> float | None:
    """Return the number in a cell, or None; CSV cells may be text."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _count(values: Mapping[str, object], column: str, least: int, wrong: list[str]) -> int:
    value = values.get(column)
    if _missing(value):
        wrong.append(f"{column} is missing")
        return least
    number = _number(value)
    good = number is not None and math.isfinite(number) and number == math.floor(number)
    if number is None or not good or not least <= number <= _LARGEST_COUNT:
        wrong.append(f"{column}={value!r}: expected a whole number, {least} or more")
        return least
    return int(number)


_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys(
        ("min_budget", "max_budget", "committed"),
        ("a number of nats, 0 or more", lambda x: 0 <= x <= _LARGEST_BUDGET),
    ),
    "base_rate": ("a click rate above 0 and below 1", lambda x: 0 < x < 1),
    "lift": ("a relative difference above 0, up to 1", lambda x: 0 < x <= 1),
    "heterogeneity": ("a number from 0 to 1", lambda x: 0 <= x <= 1),
    "value": ("what a click is worth, above 0", lambda x: 0 < x <= _LARGEST_WORTH),
}
"""Column -> what is allowed, in words and as a check."""


def _amount(values: Mapping[str, object], column: str, wrong: list[str]) -> float | None:
    value, (words, allowed) = values.get(column), _NUMBERS[column]
    if _missing(value):
        return None
    number = _number(value)
    if number is None or not allowed(number):
        wrong.append(f"{column}={value!r}: expected {words}")
        return None
    return number


def _shares(values: Mapping[str, object], wrong: list[str]) -> tuple[float, ...] | None:
    """Parse the shares of visitors by segment: a list, or text separated by spaces or slashes."""
    value = values.get("shares")
    if isinstance(value, str) and value.strip():
        value = re.split(r"[\s/|;]+", value.strip())
    if not isinstance(value, (list, tuple)):
        if not _missing(value):
            wrong.append(f"shares={value!r}: expected parts of the visitors, like 0.5 0.3 0.2")
        return None
    parts = [_number(part) for part in value]
    if not parts or any(p is None or not 0 < p <= 1 for p in parts):
        wrong.append(f"shares={value!r}: expected parts above 0 that sum to 1")
        return None
    known = tuple(part for part in parts if part is not None)
    if abs(math.fsum(known) - 1) > 1e-6:
        wrong.append(f"shares={value!r}: expected parts that sum to 1, not {math.fsum(known):g}")
        return None
    return known


def over_commitment(
    ids: Iterable[tuple[int, str]], needed: float, available: float
) -> InvalidTableError:
    """Return the error for commitments and minimums that exceed the firm budget."""
    rows = [
        (number, f"row {number} ({name}) needs its committed or minimum budget")
        for number, name in ids
    ]
    head = f"commitments and minimums need {needed:.9g} nats, only {available:.9g} are available"
    return InvalidTableError([(0, head), *rows])

"""Rows of a portfolio table, checked together: one error lists every bad row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deniable.errors import InvalidTableError
from deniable.strategies import STRATEGIES
from deniable.theory.regret import Form

REQUIRED = ("id", "arms", "visitors")
OPTIONAL = ("segments", "strategy", "min_budget", "max_budget", "committed", "group")
COLUMNS = REQUIRED + OPTIONAL
_LARGEST_COUNT = 10**15
_LARGEST_BUDGET = 1e6


@dataclass(frozen=True)
class Row:
    """One experiment with the types the solver uses."""

    id: str
    arms: int
    visitors: int
    segments: int
    strategy: str | None
    min_budget: float | None
    max_budget: float | None
    committed: float | None
    group: str | None


def clean_rows(raw: Sequence[Mapping[str, Any]], form: Form = "summed") -> list[Row]:
    """Every row checked and typed; InvalidTableError with all that is wrong otherwise.

    >>> clean_rows([{"id": "a", "arms": 1, "visitors": 9}, {"id": "b", "arms": 2}])
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidTableError: 2 problems: row 1 (a): arms=1: expected a whole number, 2 or
    more; row 2 (b): visitors is missing
    """
    if not raw:
        raise InvalidTableError([(0, "the table has no experiments")])
    problems: list[tuple[int, str]] = []
    unknown = {key for row in raw for key in row} - set(COLUMNS)
    problems += [
        (0, f"unknown column {name!r}: expected {', '.join(COLUMNS)}") for name in sorted(unknown)
    ]
    names = Counter(_text(row.get("id")) for row in raw)
    rows = []
    for number, values in enumerate(raw, start=1):
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


def _row(values: Mapping[str, Any], wrong: list[str], form: Form) -> Row:
    name = _text(values.get("id"))
    if name is None:
        wrong.append("id is missing")
    arms = _count(values, "arms", 2, wrong)
    visitors = _count(values, "visitors", 1, wrong)
    segments = 1 if _missing(values.get("segments")) else _count(values, "segments", 1, wrong)
    strategy = _text(values.get("strategy"))
    known = [name for name, kind in STRATEGIES.items() if form in kind.forms]
    if strategy is not None and strategy not in known:
        wrong.append(f"strategy={strategy!r}: expected {' or '.join(known)}, or nothing")
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
    group = _text(values.get("group"))
    return Row(name or "", arms, visitors, segments, strategy, least, most, held, group)


def _missing(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _text(value: object) -> str | None:
    return None if _missing(value) else str(value).strip() or None


def _number(value: object) -> float | None:
    """The number a cell holds, or None; CSV cells may be text."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _count(values: Mapping[str, Any], column: str, least: int, wrong: list[str]) -> int:
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


def _amount(values: Mapping[str, Any], column: str, wrong: list[str]) -> float | None:
    value = values.get(column)
    if _missing(value):
        return None
    number = _number(value)
    if number is None or not 0 <= number <= _LARGEST_BUDGET:
        wrong.append(f"{column}={value!r}: expected a number of nats, 0 or more")
        return None
    return number


def over_commitment(
    ids: Iterable[tuple[int, str]], needed: float, available: float
) -> InvalidTableError:
    """The error for commitments and minimums that the firm budget cannot hold."""
    rows = [
        (number, f"row {number} ({name}) needs its committed or minimum budget")
        for number, name in ids
    ]
    head = f"commitments and minimums need {needed:.9g} nats, only {available:.9g} are available"
    return InvalidTableError([(0, head), *rows])

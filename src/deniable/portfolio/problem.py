"""The firm's problem: experiments, existing decisions about them, and one budget.

Budgets are whole nano-nats. A person who writes 0.1 means one tenth, so amounts are read as
decimals: minimum and committed budgets are rounded up, maximum and firm budgets down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError, InvalidTableError
from deniable.expectations.prior import HETEROGENEITY, LIFT
from deniable.portfolio.rows import Row, clean_rows, default_segments
from deniable.privacy.composition import nano_down, nano_up
from deniable.strategies import STRATEGIES
from deniable.theory.regret import Form

FLEXIBLE = "flexible"
"""The regime in which every experiment has its best strategy; other regimes are strategy names."""

OBJECTIVES = ("expected", "bound")
"""What is minimized: expected lost clicks, or the bound on them."""

NanoArray: TypeAlias = NDArray[np.int64]

UNLIMITED_NANO = 2**62
"""A maximum that never binds: far above any best budget, and safe to add in int64 pairs."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known about experiments, by column.

    Attributes:
        base_rate: the usual click rate.
        lift: how much arms usually differ, as a standard deviation relative to the base rate.
        heterogeneity: how much of that differs by segment, from 0 to 1.
        shares: shares of the visitors by segment; None for equal ones.
    """

    base_rate: FloatArray
    lift: FloatArray
    heterogeneity: FloatArray
    shares: tuple[tuple[float, ...] | None, ...]


@dataclass(frozen=True, eq=False)
class Portfolio:
    """Experiments that share a firm budget, by column.

    Attributes:
        ids: their names, all different.
        arms, visitors, segments: K, T and J.
        strategies: name of a strategy, or None to let the solver choose.
        min_nano, max_nano: the least and the most budget; equal for a committed one.
        committed: whether the budget is already promised and cannot change.
        groups: name of the layer; None for a single experiment. A visitor enters at most one
            experiment of a layer, so a layer costs its largest budget, not the sum.
        form: form of the bounds: "summed", or "paper" for reproduction, which only the paper's
            strategies have.
        value: value of a click in each; 1 by default.
        known: what is known about their click rates; None if nothing is.
        objective: "expected" for expected lost clicks, or "bound".

    >>> two = Portfolio.of([{"id": "A", "arms": 2, "visitors": 1000},
    ...                     {"id": "B", "arms": 2, "visitors": 10_000, "max_budget": 1.5}])
    >>> two.size, two.max_nano[1].item()
    (2, 1500000000)
    """

    ids: tuple[str, ...]
    arms: NanoArray
    visitors: NanoArray
    segments: NanoArray
    strategies: tuple[str | None, ...]
    min_nano: NanoArray
    max_nano: NanoArray
    committed: NDArray[np.bool_]
    groups: tuple[str | None, ...]
    form: Form = "summed"
    value: FloatArray | None = None
    known: Knowledge | None = None
    objective: str = "bound"

    @classmethod
    def of(
        cls,
        experiments: Iterable[Mapping[str, object]],
        *,
        form: Form = "summed",
        objective: str | None = None,
    ) -> Portfolio:
        """Create a portfolio from rows.

        Rows have id, arms and visitors; optionally segments, strategy, min_budget, max_budget,
        committed, layer, and what is known: base_rate, lift, heterogeneity, shares, value. Raises one
        InvalidTableError that lists every bad row.

        Args:
            experiments: one mapping per experiment.
            form: form of the bounds.
            objective: "expected" or "bound"; by default "expected" if base rates are given.

        >>> rows = [{"id": "A", "arms": 2, "visitors": 9000, "base_rate": 0.05, "value": 2}]
        >>> Portfolio.of(rows).objective
        'expected'
        """
        if not isinstance(experiments, Iterable):
            raise InvalidArgumentError("experiments", experiments, "rows: a list of mappings")
        rows = clean_rows(list(experiments), check_form(form))
        objective = _objective(rows, form, objective)
        least = [_first(row.committed, row.min_budget) or 0.0 for row in rows]
        most = [_first(row.committed, row.max_budget) for row in rows]
        min_nano = np.array([nano_up(value) for value in least], dtype=np.int64)
        held = np.array([row.committed is not None for row in rows], dtype=bool)
        max_nano = np.array(
            [UNLIMITED_NANO if value is None else nano_down(value) for value in most],
            dtype=np.int64,
        )
        return cls(
            ids=tuple(row.id for row in rows),
            arms=np.array([row.arms for row in rows], dtype=np.int64),
            visitors=np.array([row.visitors for row in rows], dtype=np.int64),
            segments=np.array([row.segments for row in rows], dtype=np.int64),
            strategies=tuple(row.strategy for row in rows),
            min_nano=min_nano,
            max_nano=np.where(held, min_nano, np.maximum(max_nano, min_nano)),
            committed=held,
            groups=tuple(row.layer for row in rows),
            form=form,
            value=None
            if all(row.value is None for row in rows)
            else np.array([1.0 if row.value is None else row.value for row in rows]),
            known=_knowledge(rows),
            objective=objective,
        )

    @classmethod
    def from_sizes(
        cls,
        arms: ArrayLike,
        visitors: ArrayLike,
        segments: ArrayLike | None = None,
        prefix: str = "e",
        *,
        form: Form = "summed",
    ) -> Portfolio:
        """Create experiments e1, e2, ... from arrays: fast, and without limits.

        >>> Portfolio.from_sizes([2, 5], [1000, 10_000]).ids
        ('e1', 'e2')
        """
        if segments is None:
            segments = default_segments(check_form(form))
        columns = np.broadcast_arrays(
            *(
                np.atleast_1d(check.count(name, value, least))
                for name, value, least in (
                    ("arms", arms, 2),
                    ("visitors", visitors, 1),
                    ("segments", segments, 1),
                )
            )
        )
        size = columns[0].size
        k, t, j = (column.astype(np.int64).ravel() for column in columns)
        return cls(
            tuple(f"{prefix}{row}" for row in range(1, size + 1)),
            *(k, t, j),
            (None,) * size,
            np.zeros(size, dtype=np.int64),
            np.full(size, UNLIMITED_NANO),
            np.zeros(size, dtype=bool),
            (None,) * size,
            check_form(form),
        )

    @property
    def size(self) -> int:
        """Number of experiments."""
        return len(self.ids)

    @cached_property
    def worth(self) -> FloatArray:
        """Value of a click in each experiment."""
        return np.ones(self.size) if self.value is None else self.value

    def judged_by(self, objective: str) -> Portfolio:
        """Return the same experiments with another objective.

        >>> row = {"id": "A", "arms": 2, "visitors": 9000, "base_rate": 0.05}
        >>> Portfolio.of([row]).judged_by("bound").objective
        'bound'
        """
        if objective not in OBJECTIVES:
            raise InvalidArgumentError("objective", objective, " or ".join(OBJECTIVES))
        if objective == "expected" and self.known is None:
            raise InvalidArgumentError("objective", objective, "bound, without base rates")
        return replace(self, objective=objective)

    @cached_property
    def low(self) -> FloatArray:
        """The minimum budgets in nats."""
        return self.min_nano / NANO

    @cached_property
    def high(self) -> FloatArray:
        """The maximum budgets in nats."""
        return self.max_nano / NANO

    @cached_property
    def members(self) -> tuple[NanoArray, ...]:
        """Rows of each group, in order of first appearance, without single experiments."""
        rows: dict[str, list[int]] = {}
        for row, group in enumerate(self.groups):
            if group is not None:
                rows.setdefault(group, []).append(row)
        return tuple(np.array(found, dtype=np.int64) for found in rows.values())

    @cached_property
    def loners(self) -> NanoArray:
        """Rows that belong to no group."""
        return np.array([r for r, group in enumerate(self.groups) if group is None], dtype=np.int64)

    def cost(self, budgets_nano: NanoArray) -> int:
        """Return the total cost in nano-nats: the sum of single budgets, and the largest of each group.

        >>> pair = [{"id": i, "arms": 2, "visitors": 99, "layer": "home"} for i in "ab"]
        >>> Portfolio.of(pair).cost(np.array([3, 5]))
        5
        """
        alone = sum(int(value) for value in budgets_nano[self.loners])
        return alone + sum(int(budgets_nano[rows].max()) for rows in self.members)


def firm_nano(name: str, nats: float) -> int:
    """Validate a firm's amount and convert it to nano-nats."""
    amount = check.single(name, check.nonnegative(name, nats))
    if amount > UNLIMITED_NANO / NANO:
        raise InvalidArgumentError(name, nats, f"at most {UNLIMITED_NANO / NANO:.0f} nats")
    return nano_down(amount)


def regimes() -> tuple[str, ...]:
    """Return "flexible" and the names of all strategies."""
    return (FLEXIBLE, *STRATEGIES)


def check_regime(regime: str) -> str:
    """Return the regime, or raise InvalidArgumentError."""
    if regime not in regimes():
        raise InvalidArgumentError("regime", regime, " or ".join(regimes()))
    return regime


def require_portfolio(given: object) -> None:
    """Raise InvalidArgumentError if the argument is not a Portfolio."""
    if not isinstance(given, Portfolio):
        allowed = "a Portfolio: Portfolio.of(rows)"
        raise InvalidArgumentError("portfolio", type(given).__name__, allowed)


def check_form(form: Form) -> Form:
    """Return the form of a bound, or raise InvalidArgumentError."""
    if form not in get_args(Form):
        raise InvalidArgumentError("form", form, " or ".join(get_args(Form)))
    return form


def _knowledge(rows: list[Row]) -> Knowledge | None:
    if any(row.base_rate is None for row in rows):
        return None

    def column(name: str, usual: float) -> FloatArray:
        told = (getattr(row, name) for row in rows)
        return np.array([usual if value is None else value for value in told], dtype=np.float64)

    return Knowledge(
        column("base_rate", np.nan),
        column("lift", LIFT),
        column("heterogeneity", HETEROGENEITY),
        tuple(row.shares for row in rows),
    )


def _objective(rows: list[Row], form: Form, objective: str | None) -> str:
    """Return the requested objective, or the one that the columns allow."""
    if objective is not None and objective not in OBJECTIVES:
        raise InvalidArgumentError("objective", objective, " or ".join(OBJECTIVES))
    given = [row.base_rate is not None for row in rows]
    if objective == "expected" and form == "paper":
        raise InvalidArgumentError("objective", objective, "bound, with the form paper")
    if objective == "bound" or form == "paper" or (objective is None and not any(given)):
        return "bound"
    if not all(given):
        head = (0, "base_rate for every experiment, or the objective bound")
        without = enumerate(zip(rows, given, strict=True), start=1)
        raise InvalidTableError(
            [head]
            + [
                (n, f"row {n} ({row.id}): base_rate is missing")
                for n, (row, told) in without
                if not told
            ]
        )
    return "expected"


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


TWO_EXPERIMENTS = Portfolio.of(
    [{"id": "A", "arms": 2, "visitors": 1000}, {"id": "B", "arms": 2, "visitors": 10_000}],
    form="paper",
)
"""Experiment A with 1,000 visitors and B with 10,000, two arms each."""

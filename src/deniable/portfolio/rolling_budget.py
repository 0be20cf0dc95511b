"""A portfolio over time: experiments start and end, commitments stay, the rest is reallocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deniable._types import Record
from deniable.errors import NANO, InvalidArgumentError
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.problem import Portfolio, check_regime, firm_nano
from deniable.portfolio.rows import KNOWN
from deniable.theory.regret import Form


@dataclass
class RollingBudget:
    """A firm budget that is committed step by step.

    Once given to a running experiment, a budget never changes, because it was promised to visitors.
    When an experiment ends, its budget stays spent, because a watcher remembers, unless
    `release_ended` is set. Use that only if visitors cannot be linked across the end, for example
    because identifiers rotate.

    Attributes:
        firm_budget: Gamma, in nats.
        regime: as in `allocate`.
        reserve: amount that each step keeps for future experiments, in nats.
        release_ended: whether an ended experiment's budget can be reused.
        form: form of the bounds.

    >>> rolling = RollingBudget(firm_budget=4, regime="dynamic", reserve=1, form="paper")
    >>> first = rolling.start([{"id": "A", "arms": 2, "visitors": 1000},
    ...                        {"id": "B", "arms": 2, "visitors": 10_000}])
    >>> first.budgets.round(4).tolist()
    [0.2711, 2.7289]
    >>> rolling.start([{"id": "C", "arms": 2, "visitors": 5000}], reserve=0).budgets.round(4).tolist()
    [0.2711, 2.7289, 1.0]
    """

    firm_budget: float
    regime: str = "flexible"
    reserve: float = 0.0
    release_ended: bool = False
    form: Form = "summed"
    _rows: dict[str, Record] = field(default_factory=dict)
    _ended: dict[str, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_regime(self.regime)
        firm_nano("firm_budget", self.firm_budget)
        firm_nano("reserve", self.reserve)

    @property
    def committed(self) -> dict[str, float]:
        """The budget of each running experiment, in nats."""
        return {name: row["committed"] for name, row in self._rows.items()}

    @property
    def spent(self) -> float:
        """Cost of running experiments, and of ended ones unless released, in nats."""
        rows = self._counted()
        if not rows:
            return 0.0
        portfolio = Portfolio.of(rows, form=self.form)
        return portfolio.cost(portfolio.min_nano) / NANO

    def start(
        self, experiments: Iterable[Mapping[str, object]], *, reserve: float | None = None
    ) -> Allocation:
        """Allocate the remaining budget to new experiments, and commit it.

        Args:
            experiments: rows as for `Portfolio.of`.
            reserve: amount to keep this time; by default the usual reserve. It is lowered to the
                remaining amount if commitments have reduced it.

        Returns:
            The allocation over all that count: first the earlier ones, unchanged, then the new.
        """
        new = [dict(row) for row in experiments]
        portfolio = Portfolio.of([*self._counted(), *new], form=self.form)
        wanted = self.reserve if reserve is None else reserve
        least = portfolio.cost(portfolio.min_nano)
        room = max(0, firm_nano("firm_budget", self.firm_budget) - least)
        held = min(firm_nano("reserve", wanted), room) / NANO
        allocation = allocate(portfolio, self.firm_budget, regime=self.regime, reserve=held)
        for row in range(portfolio.size - len(new), portfolio.size):
            given = new[row - (portfolio.size - len(new))]
            kept = {name: given[name] for name in KNOWN if name in given}
            self._rows[portfolio.ids[row]] = {
                **kept,
                "id": portfolio.ids[row],
                "arms": int(portfolio.arms[row]),
                "visitors": int(portfolio.visitors[row]),
                "segments": int(portfolio.segments[row]),
                "strategy": allocation.strategies[row],
                "committed": float(allocation.budgets_nano[row]) / NANO,
                "layer": portfolio.groups[row],
            }
        return allocation

    def end(self, ids: Iterable[str]) -> None:
        """Mark experiments as ended; their budgets stay spent unless `release_ended`."""
        for name in ids:
            if name not in self._rows:
                running = ", ".join(self._rows) or "none"
                raise InvalidArgumentError("ids", name, f"a running experiment: {running}")
            self._ended[name] = self._rows.pop(name)

    def _counted(self) -> list[Record]:
        ended = [] if self.release_ended else list(self._ended.values())
        return [*ended, *self._rows.values()]

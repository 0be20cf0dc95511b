"""Administration: the firm's budget, and an experiment's life from draft to stopped.

What carries the promise (arms, segments, strategy, budget) is fixed by `create_experiment`. Starting
commits the budget against the firm's in the same transaction; a group of experiments that never share
a visitor costs its largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deniable.storage.records import Cell, Experiment, Firm
from deniable.storage.store import Store


@dataclass(frozen=True)
class NewArm:
    """An arm to be created.

    Attributes:
        key: what `decide` answers.
        label: for people.
        budget: this arm's own budget in nats; given for all arms of an experiment or for none.
    """

    key: str
    label: str = ""
    budget: float | None = None


class Administration:
    """The part of `Deniable` that changes experiments and the firm."""

    _store: Store

    def set_firm(self, *, budget: float, days: float | None = None) -> Firm:
        """Open a new period with this budget in nats; running experiments are committed to it anew.

        Args:
            budget: Gamma, rounded down to whole nano-nats.
            days: how long the period lasts from now; None: until the next one is opened.

        Raises:
            InsufficientBudgetError: the running experiments need more; nothing changes.
        """
        raise NotImplementedError

    def firm(self) -> Firm:
        """The present period. UnknownNameError before the first `set_firm`."""
        raise NotImplementedError

    def create_experiment(
        self,
        key: str,
        *,
        arms: Sequence[str | NewArm],
        segments: Sequence[str],
        budget: float | None = None,
        strategy: Literal["constant", "dynamic"] = "dynamic",
        planned_visitors: int | None = None,
        group: str | None = None,
        default_arm: str | None = None,
        attribution_seconds: int | None = None,
    ) -> Experiment:
        """A new draft. Nothing is committed yet; `decide` answers the default arm.

        Args:
            key: its name: letters, digits, `.`, `_` and `-`.
            arms: 2 or more, by key or as `NewArm`.
            segments: the segments that are learned apart, 1 or more.
            budget: the cap on every visitor's risk in nats; left out where the arms have budgets.
            strategy: `dynamic` follows the clock up to the budget, `constant` starts with it.
            planned_visitors: for people.
            group: experiments of one group never share a visitor and cost their largest.
            default_arm: for everybody before the start and after a stop without a winner; the
                first arm if not given.
            attribution_seconds: rewards later than this do not count.

        Raises:
            WrongStateError: the key is in use.
        """
        raise NotImplementedError

    def start(self, key: str) -> Experiment:
        """draft -> running; commits the budget.

        Raises:
            InsufficientBudgetError: with what remains and what was requested.
            WrongStateError: not a draft.
        """
        raise NotImplementedError

    def pause(self, key: str) -> Experiment:
        """running -> paused: known visitors keep their arm, new ones get a uniform one."""
        raise NotImplementedError

    def resume(self, key: str) -> Experiment:
        """paused -> running."""
        raise NotImplementedError

    def stop(self, key: str, *, promote: str | None = None) -> Experiment:
        """running or paused -> stopped, for good: everybody gets the promoted (or default) arm."""
        raise NotImplementedError

    def switch_off(self, key: str, arm: str) -> Experiment:
        """A new version without this arm; visitors who hold it keep it."""
        raise NotImplementedError

    def experiment(self, key: str) -> Experiment:
        """One experiment, or UnknownNameError."""
        raise NotImplementedError

    def experiments(self) -> list[Experiment]:
        """All of them, oldest first."""
        raise NotImplementedError

    def counts(self, key: str) -> list[Cell]:
        """Shows and clicks of each arm in each segment, over all writers. Private."""
        raise NotImplementedError

"""What a person chose on the planner page: read from a query string, written as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from deniable.errors import InvalidArgumentError
from deniable.service.drafts import MAX_ARMS, MAX_BUDGET, MAX_SEGMENTS

SLIDER_TOP = 8.0
LARGEST_VISITORS = 10**12
LEAST_BELIEF, MOST_BELIEF = 0.1, 99.9
"""In percent."""


@dataclass(frozen=True)
class Setting:
    """What a person chose on the page; its query string reproduces the view.

    Attributes:
        arms: how many.
        visitors: how many are planned for.
        segments: how many.
        prior: the tracker's belief before, in percent.
        budget: in nats; None takes the recommended one.
        arm_budgets: one for each arm, or empty.
        max_belief: the most that a tracker may come to believe, in percent, or None.
    """

    arms: int = 2
    visitors: int = 100_000
    segments: int = 2
    prior: float = 20.0
    budget: float | None = None
    arm_budgets: tuple[float, ...] = ()
    max_belief: float | None = None

    def query(self) -> str:
        """The setting as a query string."""
        pairs: dict[str, Any] = {
            "arms": self.arms,
            "visitors": self.visitors,
            "segments": self.segments,
            "prior": f"{self.prior:g}",
        }
        if self.budget is not None:
            pairs["budget"] = f"{self.budget:.6g}"
        if self.arm_budgets:
            pairs["arm_budgets"] = ",".join(f"{budget:g}" for budget in self.arm_budgets)
        if self.max_belief is not None:
            pairs["max_belief"] = f"{self.max_belief:.6g}"
        return urlencode(pairs)


def read_setting(given: Mapping[str, str]) -> Setting:
    """The setting of a query string or form; InvalidArgumentError names the field that is wrong."""
    usual = Setting()
    by_arm = given.get("arm_budgets", "").strip()
    budgets = (
        tuple(_number("arm_budgets", part, 0.001, MAX_BUDGET) for part in by_arm.split(","))
        if by_arm
        else ()
    )
    arms = _count("arms", given.get("arms"), usual.arms, 2, MAX_ARMS)
    if budgets and len(budgets) != arms:
        raise InvalidArgumentError("arm_budgets", by_arm[:60], f"{arms} budgets, one for each arm")
    budget, belief = (given.get(name, "").strip() for name in ("budget", "max_belief"))
    prior = _number("prior", given.get("prior") or f"{usual.prior}", LEAST_BELIEF, MOST_BELIEF)
    return Setting(
        arms=arms,
        visitors=_count("visitors", given.get("visitors"), usual.visitors, 10, LARGEST_VISITORS),
        segments=_count("segments", given.get("segments"), usual.segments, 1, MAX_SEGMENTS),
        prior=prior,
        budget=_number("budget", budget, 0, MAX_BUDGET) if budget else None,
        arm_budgets=budgets,
        max_belief=_number("max_belief", belief, prior, MOST_BELIEF) if belief else None,
    )


def _count(name: str, text: str | None, usual: int, least: int, most: int) -> int:
    number = _number(name, text or f"{usual}", least, most)
    if number != int(number):
        raise InvalidArgumentError(name, (text or "")[:40], f"a whole number, {least} to {most:,}")
    return int(number)


def _number(name: str, text: str, least: float, most: float) -> float:
    allowed = f"a number, {least:g} to {most:,.15g}"
    try:
        number = float(text.replace(",", "") if name == "visitors" else text)
    except ValueError:
        raise InvalidArgumentError(name, text[:40], allowed) from None
    if not least <= number <= most:  # false for NaN as well
        raise InvalidArgumentError(name, text[:40], allowed)
    return number

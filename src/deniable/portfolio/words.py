"""An allocation in words, shared by the portfolio page, the command line and the charts."""

from __future__ import annotations

from collections.abc import Sequence

from deniable._formatting import short
from deniable.errors import NANO
from deniable.portfolio.allocation import Allocation
from deniable.portfolio.rules import RuleOutcome


def verdict(found: Allocation, outcomes: Sequence[RuleOutcome]) -> str:
    """The outcome in two sentences, beside an equal split and no budget at all.

    >>> from deniable.portfolio.allocation import allocate
    >>> from deniable.portfolio.problem import TWO_EXPERIMENTS
    >>> from deniable.portfolio.rules import compare_rules
    >>> found = allocate(TWO_EXPERIMENTS, 4, regime="dynamic")
    >>> verdict(found, compare_rules(found)).partition(": ")[0]
    '2 of 2 experiments get budget, 4 nats in all. At most 5,938 clicks are lost'
    """
    by_rule = {outcome.rule: outcome.total_regret for outcome in outcomes}
    funded = int((found.budgets_nano > 0).sum())
    return (
        f"{funded:,} of {found.portfolio.size:,} experiments get budget, "
        f"{found.spent_nano / NANO:.4g} nats in all. {lost(found)}: "
        f"{against(found.total_regret, by_rule['equal split'])} with an equal split, "
        f"{against(found.total_regret, by_rule['zero'])} with none."
    )


def lost(found: Allocation) -> str:
    """The total loss as a clause: what is expected, or the most."""
    unit = "clicks are" if found.portfolio.value is None else "clicks' worth is"
    if found.portfolio.objective == "expected":
        return f"About {found.total_regret:,.0f} {unit} expected to be lost"
    return f"At most {found.total_regret:,.0f} {unit} lost"


def lost_title(found: Allocation) -> str:
    """The total loss as a column's title."""
    return (
        "clicks lost, expected"
        if found.portfolio.objective == "expected"
        else "clicks lost, at most"
    )


def meaning(found: Allocation) -> str:
    """What the losses of the table are, as a sentence."""
    if found.portfolio.objective == "expected":
        return "Clicks lost and saved are what to expect, for rates like those given."
    return "Clicks lost and saved are bounds."


def next_nat(found: Allocation) -> str:
    """What one more nat of firm budget would save, as a sentence.

    >>> from deniable.portfolio.allocation import allocate
    >>> from deniable.portfolio.problem import TWO_EXPERIMENTS
    >>> next_nat(allocate(TWO_EXPERIMENTS, 5))
    'One more nat would save nothing: every experiment has all that helps it.'
    """
    if found.shadow_value > 0:
        return f"One more nat would save about {short(found.shadow_value)} (lambda)."
    limited = bool((found.at_limit & ~found.has_all).any())
    rest = " or may have" if limited else ""
    return f"One more nat would save nothing: every experiment has all that helps it{rest}."


def next_gain(found: Allocation) -> list[str]:
    """What the next nat of each experiment would save; "limit" if it may not have more."""
    return [
        "0" if full else "limit" if limited else short(float(gain))
        for full, limited, gain in zip(
            found.has_all, found.at_limit, found.marginal_gain, strict=True
        )
    ]


def against(value: float, other: float) -> str:
    """A loss beside another one; what rounds to no difference is told as none.

    >>> against(50, 100), against(99.99, 100), against(110, 100)
    ('50.0% less than', 'as', '10.0% more than')
    """
    share = (other - value) / other if other else 0.0
    if abs(share) < 0.0005:
        return "as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"

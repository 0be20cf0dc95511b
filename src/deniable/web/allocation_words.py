"""An allocation in words: what it comes to, how far it is from the best, what its charts say."""

from __future__ import annotations

from collections.abc import Mapping

from deniable.errors import NANO
from deniable.portfolio.allocation import Allocation
from deniable.web.wording import whole

MOST_BARS = 24


def verdict(found: Allocation, by_rule: Mapping[str, float], funded: int) -> str:
    """The outcome in two sentences, beside an equal split and no budget at all."""
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
        return f"About {whole(found.total_regret)} {unit} expected to be lost"
    return f"At most {whole(found.total_regret)} {unit} lost"


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


def against(value: float, other: float) -> str:
    """A loss beside another one; what rounds to no difference is told as none.

    >>> against(50, 100), against(99.99, 100), against(110, 100)
    ('50.0% less than', 'as', '10.0% more than')
    """
    share = (other - value) / other if other else 0.0
    if abs(share) < 0.0005:
        return "as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"


def short(value: float) -> str:
    """A number without digits that nobody reads."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def summaries(found: Allocation, by_rule: Mapping[str, float]) -> dict[str, str]:
    """A sentence for each chart."""
    rest = found.portfolio.size - min(MOST_BARS, int((found.budgets_nano > 0).sum()))
    verb = "has" if rest == 1 else "have"
    more = f" {rest:,} more {verb} less, or none." if rest else ""
    return {
        "bars": f"The largest budgets.{more}",
        "gains": "Each curve shows what one more nat would save an experiment. The next nat saves as "
        f"much wherever budget is given: {short(found.shadow_value)} clicks, lambda"
        + (" (a layer counts as one experiment)" if found.portfolio.members else "")
        + ". It would save less where none is."
        + (" Those that have all they can use are left out." if found.has_all.any() else ""),
        "what_if": f"{lost(found)} with {found.firm_budget:.3g} nats; the curve shows other budgets.",
        "rules": f"Equal split: {whole(by_rule['equal split'])}. No budget: {whole(by_rule['zero'])}, "
        f"with random arms for everybody {whole(by_rule['random arms'])}. "
        f"Each experiment's own best, whatever it costs: {whole(by_rule['best budgets'])}.",
    }

"""An allocation in words: what it comes to, how far it is from the best, what its charts say."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

import numpy as np

from deniable.errors import NANO
from deniable.portfolio.allocation import Allocation
from deniable.strategies import STRATEGIES
from deniable.web.wording import whole

MOST_BARS = 24


def verdict(found: Allocation, by_rule: Mapping[str, float], funded: int) -> str:
    """The outcome in two sentences, beside an equal split and no budget at all."""
    return (
        f"{funded:,} of {found.portfolio.size:,} experiments get budget, "
        f"{found.spent_nano / NANO:.4g} nats in all. At most {whole(found.total_regret)} clicks are "
        f"lost: {against(found.total_regret, by_rule['equal split'])} with an equal split, "
        f"{against(found.total_regret, by_rule['zero'])} with none."
    )


def against(value: float, other: float) -> str:
    """A loss beside another one; what rounds to no difference is told as none.

    >>> against(50, 100), against(99.99, 100), against(110, 100)
    ('50.0% less than', 'as', '10.0% more than')
    """
    share = (other - value) / other if other else 0.0
    if abs(share) < 0.0005:
        return "as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"


def gap_words(gap: float) -> str:
    """A proven relative gap in percent, rounded up to one digit and to 0.0001% at least.

    >>> gap_words(3e-9), gap_words(2.1e-6), gap_words(0.00095), gap_words(0.0301)
    ('0.0001%', '0.0003%', '0.1%', '4%')
    """
    finest = Decimal(max(gap, 1e-6)) * 100
    step = Decimal(1).scaleb(finest.adjusted())
    return f"{finest.quantize(step, rounding=ROUND_CEILING).normalize():f}%"


def at_best(found: Allocation) -> list[bool]:
    """Which experiments have all the budget they can use; beside that point a gain says nothing.

    With several segments the bound falls like a root just below its best budget, and a further nat
    would seem to save without limit.
    """
    portfolio, names = found.portfolio, np.array(found.strategies)
    best = np.zeros(portfolio.size)
    for name in set(found.strategies):
        rows = names == name
        sizes = (portfolio.arms[rows], portfolio.visitors[rows], portfolio.segments[rows])
        best[rows] = STRATEGIES[name].useful_budget(*sizes, form=portfolio.form)
    reached: list[bool] = (found.budgets > 0.999 * best).tolist()
    return reached


def short(value: float) -> str:
    """A number without digits that nobody reads."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def summaries(found: Allocation, by_rule: Mapping[str, float]) -> dict[str, str]:
    """A sentence for each chart."""
    rest = found.portfolio.size - min(MOST_BARS, int((found.budgets_nano > 0).sum()))
    more = f" {rest:,} more have less, or none." if rest else ""
    return {
        "bars": f"The largest budgets.{more}",
        "gains": "Each curve is one experiment: what one more nat would save it. Those that get budget "
        f"stand at one height, lambda: {short(found.shadow_value)} clicks per nat"
        + (", members of a group together" if found.portfolio.members else "")
        + "; those that get none stand below."
        + (" Those that have all they can use are left out." if any(at_best(found)) else ""),
        "what_if": f"With {found.firm_budget:.3g} nats at most {whole(found.total_regret)} clicks "
        "are lost; the curve shows other budgets.",
        "rules": f"Equal split: {whole(by_rule['equal split'])}. No budget: {whole(by_rule['zero'])}, "
        f"with random arms for everybody {whole(by_rule['random arms'])}. "
        f"Each experiment's own best, whatever it costs: {whole(by_rule['best budgets'])}.",
    }

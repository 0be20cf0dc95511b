"""What a budget means: the belief that a tracker can reach from one shown arm."""

from __future__ import annotations

import polars as pl

from deniable import highest_belief
from deniable.charts.strategies import belief_bounds
from deniable.charts.theme import themed
from deniable.privacy import exploration_from_risk, lowest_belief
from research.study import BUDGETS, Claim, Context, Figure, StudyResult, judged

PRIORS = tuple(step / 20 for step in range(21))
PUBLISHED = {0.05: 20.8, 0.5: 29.2, 1.0: 40.5, 3.0: 83.4, 5.0: 97.4}
"""The paper's largest posterior beliefs in percent, from a prior of 20%."""


def run(context: Context) -> StudyResult:
    """Compute the belief bounds exactly, without simulation."""
    table = pl.DataFrame(
        [
            {
                "prior": prior,
                "budget": budget,
                "lowest": float(lowest_belief(prior, budget)),
                "highest": float(highest_belief(prior, budget)),
            }
            for budget in BUDGETS
            for prior in PRIORS
        ]
    )
    caption = (
        "The belief that a tracker can reach from one shown arm, at least and at most, for five "
        "budgets. On the diagonal nothing is learnt."
    )
    return StudyResult(
        headline="A budget of 1 lets a tracker that thinks 20% come to think 40% at most; .05 keeps it "
        "at 21%.",
        paragraphs=(
            "A tracker that thinks a visitor belongs to a segment with some probability sees one "
            "shown arm. However it reasons, the odds of its belief change by at most the factor "
            "e^budget, up or down.",
        ),
        figures=(Figure("belief_bounds", caption, themed(belief_bounds(BUDGETS)), table),),
        claims=tuple(_claims()),
    )


def _claims() -> list[Claim]:
    reached = {budget: 100 * float(highest_belief(0.2, budget)) for budget in BUDGETS}
    same = all(round(reached[budget], 1) == PUBLISHED[budget] for budget in BUDGETS)
    random_share = float(exploration_from_risk(2, 0.05))
    exact = "The bound p e^x / (p e^x + 1 - p), computed."
    return [
        Claim(
            "From a prior of 20%, budgets .05, .5, 1, 3, 5 cap the belief",
            " ".join(f"{value}%" for value in PUBLISHED.values()),
            " ".join(f"{reached[budget]:.1f}%" for budget in BUDGETS),
            judged(same),
            exact,
        ),
        Claim(
            "A risk of .05 bounds a 20% prior at about 21%, a risk of 1 at about 40%",
            "21%, 40%",
            f"{reached[0.05]:.0f}%, {reached[1.0]:.0f}%",
            judged(round(reached[0.05]) == 21 and round(reached[1.0]) == 40),
            exact,
        ),
        Claim(
            "With two arms, a risk of .05 means exploring with probability .975",
            ".975",
            f"{random_share:.3f}",
            judged(round(random_share, 3) == 0.975),
            "K / (K - 1 + e^x).",
        ),
    ]

"""A plan's step with a label: one budget for life, or one divided over a visitor's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from sys import float_info

import numpy as np

from deniable.expectations.labels import expected_on_labels
from deniable.expectations.prior import Prior
from deniable.expectations.surface import POOLED, RANDOM
from deniable.planning.experiment import PlannedExperiment

MOST_EXPERIMENTS = 1000
"""Beyond it, a divided budget is as good as none."""

WORTH_A_LABEL = 1.5
"""Below this budget in nats, a label gains little over one bandit for everybody."""


@dataclass(frozen=True)
class LabelStep:
    """What one of a visitor's experiments gains on a label, and what it gains if they divide the budget.

    All experiments are taken to be like the planned one. Gains are shares of what perfect information
    gains over random arms. They are approximate.

    Attributes:
        budget: G, for all experiments of a visitor together.
        experiments: n, the experiments that a visitor meets.
        n_labels: the best number of labels.
        gain: on the label, whatever n is.
        limit: on the label, if click rates were known.
        divided_gain: mean of all n, if the joint strategy runs on the best division of the budget.
        pooled_gain: of one bandit for everybody, at budget 0.
        clicks: expected on the label.
        lost: expected clicks lost on the label, against perfect information.
        break_even: the smallest n from which a label gains more; None if that needs too many.
        on_surface: whether the figures are within what the surface of expected gains covers.
    """

    budget: float
    experiments: int
    n_labels: int
    gain: float
    limit: float
    divided_gain: float
    pooled_gain: float
    clicks: float
    lost: float
    break_even: int | None
    on_surface: bool


def label_step(
    planned: PlannedExperiment, rate_prior: Prior, budget: float, experiments: int = 1
) -> LabelStep:
    """Compare a label with a budget that is divided over the experiments that a visitor meets.

    Args:
        planned: the experiment.
        rate_prior: what is known about its click rates.
        budget: G, in nats, for all experiments of a visitor together.
        experiments: n, up to `MOST_EXPERIMENTS`.

    >>> planned = PlannedExperiment(n_arms=5, horizon=100_000, n_segments=4)
    >>> firm = Prior(base_rate=0.05, lift=0.05**0.5, heterogeneity=0.8)
    >>> step = label_step(planned, firm, budget=3, experiments=20)
    >>> round(step.gain, 2), round(step.divided_gain, 2), step.break_even
    (0.73, 0.56, 2)
    """
    on_labels = expected_on_labels(
        planned.n_arms,
        planned.horizon,
        planned.n_segments,
        base_rate=rate_prior.base_rate,
        lift=rate_prior.lift,
        heterogeneity=rate_prior.heterogeneity,
        budget=budget,
        shares=planned.shares,
    )
    all_lost = max(float(planned.expected(rate_prior, RANDOM).lost), float_info.min)
    pooled = 1 - float(planned.expected(rate_prior, POOLED).lost) / all_lost
    # The best division gives equal parts to some experiments and nothing to the others.
    numbers = np.arange(1, MOST_EXPERIMENTS + 1)
    joint = planned.expected(rate_prior, "joint", budget / numbers)
    gained = numbers * (1 - joint.lost / all_lost - pooled)
    divided = pooled + np.maximum(np.maximum.accumulate(gained), 0) / numbers
    better = np.flatnonzero(float(on_labels.share) >= divided)
    return LabelStep(
        budget=budget,
        experiments=experiments,
        n_labels=on_labels.n_labels,
        gain=float(on_labels.share),
        limit=on_labels.limit,
        divided_gain=float(divided[experiments - 1]),
        pooled_gain=pooled,
        clicks=float(on_labels.clicks),
        lost=float(on_labels.lost),
        break_even=int(numbers[better[0]]) if better.size else None,
        on_surface=bool(on_labels.on_surface) and bool(joint.on_surface.all()),
    )


def label_words(step: LabelStep) -> str:
    """Say in a few sentences whether a label is worth it.

    >>> label_words(LabelStep(3, 20, 4, 0.73, 0.9, 0.56, 0.55, 5800, 400, 2, True))
    'A label spends a budget of 3 once and gains about 73% of what perfect information gains over \
random arms, in each of 20 experiments. Dividing the budget between them as well as possible gains \
about 56% on average. A label gains more from 2 experiments on. These figures are approximate.'
    """
    told = [
        f"A label spends a budget of {step.budget:.4g} once and gains about {step.gain:.0%} of what "
        "perfect information gains over random arms"
        + (f", in each of {step.experiments:,} experiments." if step.experiments > 1 else "."),
        "The joint strategy with this budget gains about "
        f"{step.divided_gain:.0%}, in one experiment."
        if step.experiments == 1
        else "Dividing the budget between them as well as possible gains about "
        f"{step.divided_gain:.0%} on average.",
        f"A label gains no more than a divided budget, for up to {MOST_EXPERIMENTS:,} experiments."
        if step.break_even is None
        else "A label gains more even for one experiment."
        if step.break_even == 1
        else f"A label gains more from {step.break_even:,} experiments on.",
    ]
    if step.budget < WORTH_A_LABEL:
        told.append(
            f"One bandit for everybody gains about {step.pooled_gain:.0%} without any risk: below a "
            f"budget of {WORTH_A_LABEL:g}, a label gains little more."
        )
    return " ".join((*told, "These figures are approximate."))

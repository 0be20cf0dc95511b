"""A plan's first step: what trackers know anyway, such as the device, which needs no budget."""

from __future__ import annotations

from dataclasses import dataclass

from deniable.expectations.contexts import expected_on_contexts
from deniable.expectations.prior import Prior
from deniable.planning.experiment import PlannedExperiment

STEPS = tuple(step / 4 for step in range(25))
"""Budgets with which contexts are compared, in nats: as far as the surface of expected gains goes."""


@dataclass(frozen=True)
class ContextStep:
    """What an experiment gains on contexts, and the budget that would gain as much on segments.

    Gains are shares of what perfect information gains over random arms. They are approximate.

    Attributes:
        contexts: number of contexts.
        by_context: the part of the differences between arms, as variance, that differs by context.
        gain: of a bandit for each context, at risk 0.
        limit: the same if click rates were known.
        segment_gain: of the joint strategy on segments, at the plan's budget.
        same_budget: the smallest budget with which segments gain as much; None if none does.
        on_surface: whether the figures are within what the surface of expected gains covers.
    """

    contexts: int
    by_context: float
    gain: float
    limit: float
    segment_gain: float
    same_budget: float | None
    on_surface: bool


def context_step(
    planned: PlannedExperiment, rate_prior: Prior, budget: float, contexts: int, by_context: float
) -> ContextStep:
    """Compare contexts with segments at a budget; groups are taken to be of equal size.

    >>> planned = PlannedExperiment(n_arms=6, horizon=10**6, n_segments=3)
    >>> firm = Prior(base_rate=0.05, lift=0.2, heterogeneity=0.3)
    >>> step = context_step(planned, firm, budget=1, contexts=4, by_context=0.3)
    >>> round(step.gain, 2), round(step.segment_gain, 2), step.same_budget
    (0.84, 0.75, None)
    """
    found = expected_on_contexts(
        planned.n_arms,
        planned.horizon,
        planned.n_segments,
        contexts,
        base_rate=rate_prior.base_rate,
        lift=rate_prior.lift,
        heterogeneity=rate_prior.heterogeneity,
        by_context=by_context,
        budgets=(*STEPS, budget),
    )
    *steps, now = found.segments
    enough = (step for step, gain in zip(STEPS, steps, strict=True) if gain >= found.share)
    return ContextStep(
        contexts=contexts,
        by_context=by_context,
        gain=found.share,
        limit=found.limit,
        segment_gain=now,
        same_budget=next(enough, None),
        on_surface=found.on_surface,
    )


def context_words(step: ContextStep, budget: float) -> str:
    """Say in a few sentences what contexts bring.

    >>> context_words(ContextStep(4, 0.3, 0.82, 0.89, 0.58, 3.0, True), 1)
    'Using the contexts, which trackers know anyway, gains about 82% of what perfect information \
gains over random arms, as much as a budget of 3 on segments, at no risk. The joint strategy on \
segments with a budget of 1 gains about 58%. These figures are approximate.'
    """
    as_much = (
        "more than any budget on segments"
        if step.same_budget is None
        else "as much as one bandit for everybody"
        if step.same_budget == 0
        else f"as much as a budget of {step.same_budget:g} on segments"
    )
    return (
        f"Using the contexts, which trackers know anyway, gains about {step.gain:.0%} of what perfect "
        f"information gains over random arms, {as_much}, at no risk. The joint strategy on segments "
        f"with a budget of {budget:.4g} gains about {step.segment_gain:.0%}. "
        "These figures are approximate."
    )

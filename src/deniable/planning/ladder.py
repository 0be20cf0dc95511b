"""The ladder: what each step towards personalising brings and risks, the cheapest first.

1. One bandit for everybody. 2. A bandit for each context, which trackers know anyway. 3. Each segment
its best arm on visits that nobody observes. 4. One label for life. 5. The joint strategy on segments.
No privacy is the ceiling. Steps build on each other: contexts serve the label step too, and unobserved
visits every later step. The joint strategy reads segments, not contexts.

Arms differ by 1 - c - h for everybody, by c between contexts and by h between segments, as parts of one
variance. Rows (contexts, labels, both, or segments) show a part of it; a bandit on rows gains what the
surface of expected gains says of segments that differ as much and are as alike on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deniable import _validation as check
from deniable._formatting import short_percent
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import expected_loss
from deniable.expectations.labels import reached_by_rows
from deniable.expectations.prior import Prior
from deniable.expectations.surface import POOLED, RANDOM
from deniable.masks.limit import best_groups, group_channel, label_limit, labels_alike
from deniable.planning.experiment import PlannedExperiment
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

NEAR_BEST = 0.02
"""A step whose clicks are within this share of the best step's is as good."""

MOST_CONTEXTS, MOST_EXPERIMENTS = 50, 1000

TITLES = {
    "one bandit": "One bandit for everybody",
    "contexts": "What trackers know anyway",
    "unobserved": "Visits nobody observes",
    "label": "One label for life",
    "joint": "Joint, on segments",
    "no privacy": "No privacy",
}
"""Steps with their names for people, the cheapest first."""


@dataclass(frozen=True)
class LadderStep:
    """One step.

    Attributes:
        step: "one bandit", "contexts", "unobserved", "label", "joint" or "no privacy".
        title: its name for people.
        clicks: expected, of all visitors; None if the step does not apply.
        more: clicks beyond those of one bandit for everybody; None if it does not apply.
        budget: in nats; None for "no privacy".
        belief: the strongest belief that a tracker can reach; 1 for "no privacy".
        sentence: what it does and risks, or why it does not apply.
    """

    step: str
    title: str
    clicks: float | None
    more: float | None
    budget: float | None
    belief: float
    sentence: str


@dataclass(frozen=True)
class Ladder:
    """All steps of an experiment, at one limit.

    Attributes:
        steps: the five steps, then no privacy.
        recommended: the lowest step whose clicks are within `NEAR_BEST` of the best step's.
        limit: the budget of the private steps, in nats.
        sentence: what to do, compared with one bandit for everybody and with no privacy.
        on_surface: whether all figures are within what the surface of expected gains covers.
    """

    steps: tuple[LadderStep, ...]
    recommended: str
    limit: float
    sentence: str
    on_surface: bool

    def __getitem__(self, step: str) -> LadderStep:
        """Return a step by its name."""
        return next(one for one in self.steps if one.step == step)


def ladder(
    planned: PlannedExperiment,
    rate_prior: Prior,
    limit: float,
    *,
    belief_before: float = 0.2,
    experiments: int = 1,
    contexts: int = 1,
    by_context: float = 0.0,
    unobserved: float = 0.0,
) -> Ladder:
    """Return the ladder of an experiment; figures are approximate.

    Args:
        planned: the experiment.
        rate_prior: what is known about its click rates.
        limit: the budget of the private steps, in nats.
        belief_before: the tracker's prior belief.
        experiments: n, the number of experiments that a visitor meets, all like this one; a label
            serves all of them, or they divide the budget.
        contexts: C, the number of values of what trackers know anyway; 1 for none.
        by_context: c, the part of the variance of the arms that differs by context.
        unobserved: share of the visits that no third party observes.

    >>> planned = PlannedExperiment(n_arms=5, horizon=100_000, n_segments=4)
    >>> found = ladder(planned, Prior(0.05, 0.2, 0.8), 3, experiments=20)
    >>> found.recommended, round(found["label"].more), round(found["no privacy"].more)
    ('label', 203, 305)
    """
    met = check.whole("experiments", experiments, 1, MOST_EXPERIMENTS)
    own = rate_prior.heterogeneity
    if own + by_context > 1 + 1e-9:
        allowed = f"at most {1 - own:.4g}: what differs by segment differs by no context"
        raise InvalidArgumentError("by_context", by_context, allowed)
    share = check.single("unobserved", check.probability("unobserved", unobserved))
    world = _World(planned, rate_prior, contexts, by_context)
    visitors, several = planned.horizon, planned.n_segments > 1
    watched = max(1, round(visitors * (1 - share)))
    everybody, by_segment = np.ones((planned.n_segments, 1)), np.eye(planned.n_segments)
    by_label = group_channel(best_groups(world.sizes, limit, own), limit)
    hidden = world.clicks(visitors - watched, by_segment) if watched < visitors else 0.0

    def seen() -> float:
        return world.clicks(watched, everybody) if contexts > 1 else world.pooled(watched)

    makers = {
        "one bandit": lambda: world.pooled(visitors),
        "contexts": lambda: world.clicks(visitors, everybody),
        "unobserved": lambda: seen() + hidden,
        "label": lambda: world.clicks(watched, by_label) + hidden,
        "joint": lambda: world.joint(watched, limit, met) + hidden,
        "no privacy": lambda: world.clicks(visitors, by_segment),
    }
    one_segment = "" if several else "There is one segment: nothing to personalise by."
    no_budget = one_segment or ("" if limit > 0 else "The limit on beliefs leaves no budget.")
    servable = STRATEGIES["joint"].fits(planned.n_arms, planned.n_segments)
    reasons = {
        "contexts": "" if contexts > 1 else "No contexts are given, such as device or country.",
        "unobserved": one_segment or ("" if hidden else "No unobserved visits are given."),
        "label": no_budget,
        "joint": no_budget or ("" if servable else "Too many variants or segments for its tables."),
        "no privacy": one_segment,
    }
    before = short_percent(belief_before)
    belief = float(highest_belief(belief_before, limit))
    risk = (
        f"At budget {limit:.3g}, a tracker who is {before} sure becomes at most {belief:.1%} sure."
    )
    served = "all its experiments" if met == 1 else f"all {met:,} experiments"
    others = "a bandit for each context" if contexts > 1 else "one bandit"
    sentences = {
        "one bandit": "Learns which variant is best for all. No risk.",
        "contexts": f"A bandit for each of {contexts} contexts. No risk.",
        "unobserved": f"Each segment its best variant on {short_percent(share)} of the visits, {others} "
        "on the others. No risk.",
        "label": f"A visitor has one private label for {served}. {risk}",
        "joint": f"For this experiment alone. {risk}"
        if met == 1
        else f"{met:,} experiments divide the budget as well as possible: the mean of them. {risk}",
        "no privacy": "Each segment its best variant, which tells the segment. A ceiling, no offer.",
    }
    budgets = {"label": limit, "joint": limit, "no privacy": None}
    alone = makers["one bandit"]()
    steps = []
    for name, title in TITLES.items():
        reason, budget = reasons.get(name, ""), budgets.get(name, 0.0)
        clicks = None if reason else makers[name]()
        more = None if clicks is None else clicks - alone
        highest = 1.0 if budget is None else float(highest_belief(belief_before, budget))
        steps.append(
            LadderStep(name, title, clicks, more, budget, highest, reason or sentences[name])
        )
    offered = [step for step in steps[:-1] if step.clicks is not None]
    enough = (1 - NEAR_BEST) * max(step.clicks or 0.0 for step in offered)
    chosen = next(step for step in offered if (step.clicks or 0.0) >= enough)
    return Ladder(tuple(steps), chosen.step, limit, _headline(steps, chosen), world.on_surface)


def _headline(steps: Sequence[LadderStep], chosen: LadderStep) -> str:
    """Say what to do, compared with one bandit for everybody and with no privacy."""
    alone = steps[0].clicks or 1.0
    ceiling = max(steps[-1].more or 0.0, 0.0) / alone
    if chosen.step == "one bandit":
        private = max(max(step.more or 0.0 for step in steps[:-1]), 0.0) / alone
        return (
            f"No personalisation needed: one bandit for everybody brings {alone:,.0f} clicks at no "
            f"risk. Other steps within your limit bring at most {private:.1%} more, and {ceiling:.1%} "
            "more would be possible without any privacy."
        )
    more = chosen.more or 0.0
    return (
        f"{chosen.title} brings {chosen.clicks or 0:,.0f} clicks, {more:,.0f} more than one bandit for "
        f"everybody ({more / alone:+.1%}). Without any privacy it would be {ceiling:+.1%}."
    )


class _World:
    """An experiment whose arms differ by context and by segment, and what bandits on rows gain in it."""

    def __init__(
        self, planned: PlannedExperiment, rate_prior: Prior, contexts: int, by_context: float
    ) -> None:
        self._planned, self._prior = planned, rate_prior
        self._contexts = check.whole("contexts", contexts, 1, MOST_CONTEXTS)
        known = check.single("by_context", check.probability("by_context", by_context))
        self._known = known if contexts > 1 else 0.0
        n = planned.n_segments
        self.sizes: FloatArray = (
            np.full(n, 1 / n) if planned.shares is None else np.array(planned.shares)
        )
        self.on_surface = planned.equal_sizes
        # Who does not tell contexts apart sees their part averaged over them.
        seen = 1 - self._known + self._known / self._contexts
        self._blind = Prior(
            rate_prior.base_rate,
            rate_prior.lift * math.sqrt(seen),
            min(rate_prior.heterogeneity / seen, 1.0),
        )

    def _sized(self, visitors: int) -> PlannedExperiment:
        return replace(self._planned, horizon=visitors)

    def pooled(self, visitors: int) -> float:
        """Return the clicks of one bandit for everybody."""
        found = self._sized(visitors).expected(self._blind, POOLED)
        self.on_surface &= bool(found.on_surface)
        return float(found.clicks)

    def joint(self, visitors: int, budget: float, experiments: int) -> float:
        """Return the mean clicks of the joint strategy in experiments that divide a budget.

        The best division gives equal parts to some experiments and nothing to the others, which run one
        bandit for everybody.
        """
        served = np.arange(1, experiments + 1)
        found = self._sized(visitors).expected(self._blind, "joint", budget / served)
        self.on_surface &= bool(found.on_surface.all())
        pooled = self.pooled(visitors)
        more = served * (found.clicks - pooled) / experiments
        return pooled + max(float(more.max()), 0.0)

    def clicks(self, visitors: int, channel: FloatArray) -> float:
        """Return the clicks of a bandit on contexts and labels.

        Args:
            visitors: of all rows.
            channel: the probability of each label (column) for each segment (row): one column if
                segments are not read, a unit matrix if labels are the segments.
        """
        prior, own, known = self._prior, self._prior.heterogeneity, self._known
        n_labels, n_contexts = channel.shape[1], self._contexts
        limit = label_limit(channel, self.sizes, own)
        variance, alike = limit**2, labels_alike(channel, self.sizes, own)
        n_rows = n_labels * n_contexts
        # How alike two different rows are: of one context, of one label, or of neither.
        one_context = n_contexts * n_labels * (n_labels - 1)
        one_label = n_labels * n_contexts * (n_contexts - 1)
        pairs = n_rows * (n_rows - 1)
        correlations = (
            one_context * alike
            + one_label * (1 - known / variance)
            + (pairs - one_context - one_label) * (alike - known / variance)
        )
        weights = np.tile(self.sizes @ channel, n_contexts)
        size = {"n_arms": self._planned.n_arms, "horizon": visitors, "base_rate": prior.base_rate}
        share, covered = reached_by_rows(
            size,
            prior.lift,
            limit,
            n_rows=n_rows,
            heterogeneity=min(max(1 - correlations / pairs, 0.0), 1.0) if pairs else 0.0,
            shares=np.minimum(weights / weights.sum(), 1.0),
        )
        self.on_surface &= bool(covered)
        random = expected_loss(RANDOM, **size, lift=prior.lift)
        return float(random.clicks + share * random.lost)

"""What a person chose on the planner page: from a query string, back to one, and to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from deniable._numbers import number, numbers, whole
from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import HETEROGENEITY, LIFT
from deniable.planning.arm_plan import ArmPlan, plan_arms
from deniable.planning.ladder import MOST_CONTEXTS, MOST_EXPERIMENTS
from deniable.planning.plan import Plan, plan
from deniable.service.limits import MAX_ARMS, MAX_BUDGET, MAX_PLAN_HORIZON, MAX_SEGMENTS

LEAST_BELIEF, MOST_BELIEF = 0.1, 99.9
"""In percent."""

ROUNDED_TO = 0.5
"""How far the sizes of segments may be from 100% in all, because people round each of them."""

NONE = "none"
"""In a query string: nothing is known or limited, although the page would fill something in."""

PREFILLED = {"max_belief": "50", "base_rate": "5"}
"""What the page fills in where a query says nothing: a tracker never becomes more sure than not, and a
usual click rate. In percent."""

LABELS = {
    "arms": "Variants",
    "visitors": "Visitors",
    "segments": "Segments",
    "shares": "Sizes of the segments",
    "prior": "Belief before",
    "budget": "Privacy budget",
    "arm_budgets": "A budget for each variant",
    "max_belief": "A tracker may believe at most",
    "base_rate": "Usual click rate",
    "lift": "How much variants usually differ",
    "heterogeneity": "Differs by segment",
    "per_day": "Visitors a day",
    "experiments": "Experiments a visitor meets",
    "unobserved": "Visits nobody observes",
    "contexts": "Contexts",
    "by_context": "Differs by context",
}


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
        shares: sizes of the segments, in percent, or empty for equal ones.
        base_rate: the usual click rate, in percent; None where nothing is known.
        lift: how much arms usually differ, in percent of it.
        heterogeneity: how much of that differs by segment, in percent.
        per_day: visitors a day, or None.
        experiments: how many a visitor meets, this one included.
        unobserved: visits of which no third party learns, in percent.
        contexts: how many values has what trackers know anyway; 1 for none.
        by_context: how much of what arms differ is by context, in percent.
    """

    arms: int = 4
    visitors: int = 1_000_000
    segments: int = 3
    prior: float = 20.0
    budget: float | None = None
    arm_budgets: tuple[float, ...] = ()
    max_belief: float | None = None
    shares: tuple[float, ...] = ()
    base_rate: float | None = None
    lift: float = 100 * LIFT
    heterogeneity: float = 100 * HETEROGENEITY
    per_day: int | None = None
    experiments: int = 1
    unobserved: float = 0.0
    contexts: int = 1
    by_context: float = 0.0

    def query(self) -> str:
        """The setting as a query string."""
        pairs: JsonObject = {
            "arms": self.arms,
            "visitors": self.visitors,
            "segments": self.segments,
            "prior": f"{self.prior:g}",
            "experiments": self.experiments,
            "unobserved": f"{self.unobserved:.6g}",
            "contexts": self.contexts,
            "by_context": f"{self.by_context:.6g}",
            "max_belief": _said(self.max_belief),
            "base_rate": _said(self.base_rate),
        }
        if self.base_rate is not None:
            pairs |= {"lift": f"{self.lift:.6g}", "heterogeneity": f"{self.heterogeneity:.6g}"}
        for name in ("budget", "per_day"):
            if getattr(self, name) is not None:
                pairs[name] = f"{getattr(self, name):.12g}"
        for name in ("arm_budgets", "shares"):
            if getattr(self, name):
                pairs[name] = ",".join(f"{part:g}" for part in getattr(self, name))
        return urlencode(pairs)

    def plan(self) -> Plan:
        """The plan at this setting; with budgets by arm, at the largest of them."""
        return plan(
            n_arms=self.arms,
            horizon=self.visitors,
            n_segments=self.segments,
            shares=self.parts(),
            prior=self.prior / 100,
            budget=max(self.arm_budgets) if self.arm_budgets else self.budget,
            max_belief=None if self.max_belief is None else self.max_belief / 100,
            base_rate=None if self.base_rate is None else self.base_rate / 100,
            lift=self.lift / 100,
            heterogeneity=self.heterogeneity / 100,
            per_day=self.per_day,
            experiments=self.experiments,
            unobserved=self.unobserved / 100,
            contexts=self.contexts,
            by_context=self.by_context / 100,
        )

    def parts(self) -> list[float] | None:
        """The sizes of the segments as shares; None where they are of one size."""
        if len(set(self.shares)) < 2:
            return None
        return [size / math.fsum(self.shares) for size in self.shares]

    def arm_plan(self) -> ArmPlan | None:
        """The plan of budgets by arm, where there are any."""
        if not self.arm_budgets:
            return None
        return plan_arms(
            arm_budgets=self.arm_budgets,
            horizon=self.visitors,
            n_segments=self.segments,
            prior=self.prior / 100,
        )


def _said(value: float | None) -> str:
    return NONE if value is None else f"{value:.6g}"


def read_setting(given: Mapping[str, str]) -> Setting:
    """The setting of a query string or form; InvalidArgumentError names the field that is wrong.

    A limit on beliefs and a base rate are filled in where they are missing, and left out where they are
    empty or "none".
    """
    usual = Setting()
    texts = {name: given.get(name, "").strip() for name in LABELS}
    for name, value in PREFILLED.items():
        if name not in given:
            texts[name] = value
        elif texts[name] == NONE:
            texts[name] = ""
    arms = whole("arms", texts["arms"] or f"{usual.arms}", 2, MAX_ARMS)
    by_arm = texts["arm_budgets"]
    budgets = tuple(numbers("arm_budgets", by_arm, 0.001, MAX_BUDGET)) if by_arm else ()
    if budgets and len(budgets) != arms:
        raise InvalidArgumentError(
            "arm_budgets", by_arm[:40], f"{arms} budgets, one for each variant"
        )
    prior = number("prior", texts["prior"] or f"{usual.prior}", LEAST_BELIEF, MOST_BELIEF)
    if "max_belief" not in given and prior >= float(PREFILLED["max_belief"]):
        texts["max_belief"] = ""
    segments = whole("segments", texts["segments"] or f"{usual.segments}", 1, MAX_SEGMENTS)
    sizes = texts["shares"]
    shares = tuple(numbers("shares", sizes, 0.001, 100)) if sizes else ()
    if shares and len(shares) != segments:
        raise InvalidArgumentError("shares", sizes[:40], f"{segments} sizes, one for each segment")
    if shares and abs(math.fsum(shares) - 100) > ROUNDED_TO:
        allowed = f"percentages that sum to 100; these sum to {math.fsum(shares):.6g}"
        raise InvalidArgumentError("shares", sizes[:40], allowed)

    def optional(name: str, least: float, most: float) -> float | None:
        return number(name, texts[name], least, most) if texts[name] else None

    by_segment = number("heterogeneity", texts["heterogeneity"] or f"{usual.heterogeneity}", 0, 100)
    by_context = number("by_context", texts["by_context"] or f"{usual.by_context}", 0, 100)
    if by_segment + by_context > 100:
        allowed = f"at most {100 - by_segment:.6g}: the rest differs by segment"
        raise InvalidArgumentError("by_context", by_context, allowed)
    return Setting(
        arms=arms,
        visitors=whole("visitors", texts["visitors"] or f"{usual.visitors}", 10, MAX_PLAN_HORIZON),
        segments=segments,
        prior=prior,
        budget=optional("budget", 0, MAX_BUDGET),
        arm_budgets=budgets,
        max_belief=optional("max_belief", prior, MOST_BELIEF),
        shares=shares,
        base_rate=optional("base_rate", 0.0001, 99),
        lift=number("lift", texts["lift"] or f"{usual.lift}", 0.01, 100),
        heterogeneity=by_segment,
        per_day=whole("per_day", texts["per_day"], 1, MAX_PLAN_HORIZON)
        if texts["per_day"]
        else None,
        experiments=whole(
            "experiments", texts["experiments"] or f"{usual.experiments}", 1, MOST_EXPERIMENTS
        ),
        unobserved=number("unobserved", texts["unobserved"] or f"{usual.unobserved}", 0, 100),
        contexts=whole("contexts", texts["contexts"] or f"{usual.contexts}", 1, MOST_CONTEXTS),
        by_context=by_context,
    )


def toml(setting: Setting) -> str:
    """The setting for the command line.

    >>> print(toml(Setting(arms=2, visitors=100_000, segments=2, budget=1.5)))
    # deniable plan --from plan.toml
    arms = 2
    visitors = 100000
    segments = 2
    prior = 0.2
    budget = 1.5
    <BLANKLINE>
    """
    text = [
        "# deniable plan --from plan.toml",
        f"arms = {setting.arms}",
        f"visitors = {setting.visitors}",
        f"segments = {setting.segments}",
        f"prior = {setting.prior / 100:.10g}",
    ]
    if setting.arm_budgets:
        text.append(f"arm_budgets = [{', '.join(f'{b:g}' for b in setting.arm_budgets)}]")
        return "\n".join(text) + "\n"  # the command line takes no other limit beside them
    shares = setting.parts()
    if shares is not None:
        text.append(f"shares = {shares}")
    if setting.base_rate is not None:
        text += [
            f"base_rate = {setting.base_rate / 100:.10g}",
            f"lift = {setting.lift / 100:.10g}",
            f"heterogeneity = {setting.heterogeneity / 100:.10g}",
        ]
        if setting.per_day is not None:
            text.append(f"per_day = {setting.per_day}")
        text += [
            f"experiments = {setting.experiments}",
            f"unobserved = {setting.unobserved / 100:.10g}",
            f"contexts = {setting.contexts}",
            f"by_context = {setting.by_context / 100:.10g}",
        ]
    if setting.budget is not None:
        text.append(f"budget = {setting.budget:.10g}")
    if setting.max_belief is not None:
        text.append(f"max_belief = {setting.max_belief / 100:.10g}")
    return "\n".join(text) + "\n"


def told(error: InvalidArgumentError) -> str:
    """What is wrong with a setting, by the name of the field; it does not repeat what was typed."""
    return f"{LABELS.get(error.argument, error.argument)}: expected {error.allowed}."

"""`POST /v1/plan`: the privacy budget of an experiment, planned over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from deniable.expectations.prior import HETEROGENEITY, LIFT
from deniable.planning.ladder import MOST_CONTEXTS, MOST_EXPERIMENTS
from deniable.planning.plan import Plan, plan
from deniable.service.http.administration import scoped_router
from deniable.service.http.models import Budget
from deniable.service.limits import MAX_ARMS, MAX_PLAN_HORIZON, MAX_SEGMENTS

router = scoped_router("read")

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Inside = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]


class PlanRequest(BaseModel):
    """An experiment to plan. With a base rate, the plan has expected results in addition to bounds."""

    model_config = ConfigDict(extra="forbid")

    arms: Annotated[int, Field(ge=2, le=MAX_ARMS, strict=True)]
    visitors: Annotated[int, Field(ge=1, le=MAX_PLAN_HORIZON, strict=True)]
    segments: Annotated[int | None, Field(ge=1, le=MAX_SEGMENTS, strict=True)] = None
    shares: Annotated[list[Probability] | None, Field(min_length=1, max_length=MAX_SEGMENTS)] = None
    prior: Probability = 0.2
    budget: Budget | None = None
    max_belief: Probability | None = None
    base_rate: Inside | None = None
    lift: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)] = LIFT
    heterogeneity: Probability = HETEROGENEITY
    per_day: (
        Annotated[float, Field(ge=1, le=MAX_PLAN_HORIZON, allow_inf_nan=False, strict=True)] | None
    ) = None
    experiments: Annotated[int, Field(ge=1, le=MOST_EXPERIMENTS, strict=True)] = 1
    unobserved: Probability = 0.0
    contexts: Annotated[int, Field(ge=1, le=MOST_CONTEXTS, strict=True)] = 1
    by_context: Probability = 0.0


@router.post("/plan")
def make_plan(wanted: PlanRequest) -> Plan:
    """Plan the privacy budget of an experiment. Nothing is stored.

    For segments of different sizes, and values that the precomputed surface does not cover,
    `expected.note` says what the figures stand for.
    """
    return plan(
        n_arms=wanted.arms,
        horizon=wanted.visitors,
        n_segments=wanted.segments,
        shares=wanted.shares,
        prior=wanted.prior,
        budget=wanted.budget,
        max_belief=wanted.max_belief,
        base_rate=wanted.base_rate,
        lift=wanted.lift,
        heterogeneity=wanted.heterogeneity,
        per_day=wanted.per_day,
        experiments=wanted.experiments,
        unobserved=wanted.unobserved,
        contexts=wanted.contexts,
        by_context=wanted.by_context,
    )

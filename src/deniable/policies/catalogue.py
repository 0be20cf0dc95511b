"""All policies by the names used in scenario files and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deniable.errors import InvalidArgumentError
from deniable.policies.base import Policy
from deniable.policies.benchmarks import GittinsPolicy, PerfectPolicy, RandomPolicy
from deniable.policies.custom import CustomPolicy, ThompsonSampling, UpperConfidence
from deniable.policies.greedy import (
    ArmConstantPolicy,
    ArmDynamicPolicy,
    ConstantPolicy,
    DynamicPolicy,
    EpsilonGreedyPolicy,
)
from deniable.policies.tables import (
    AcrossTimePolicy,
    BestPrivatePolicy,
    JointPolicy,
    PooledPolicy,
)


@dataclass(frozen=True)
class Settings:
    """Parameters of policies created by name.

    Attributes:
        budget: for policies that keep one, such as constant, joint and best-private.
        budgets: budgets by arm, for arm-constant and arm-dynamic.
        discount: for gittins; None uses the horizon's.
    """

    budget: float | None = None
    budgets: Sequence[float] | None = None
    discount: float | None = None


def _budget(settings: Settings) -> float:
    if settings.budget is None:
        raise InvalidArgumentError(
            "budget", None, "a budget for the policies that keep one, such as constant or joint"
        )
    return settings.budget


def _budgets(settings: Settings) -> Sequence[float]:
    if settings.budgets is None:
        raise InvalidArgumentError(
            "budgets", None, "a budget by arm for the policies arm-constant and arm-dynamic"
        )
    return settings.budgets


POLICIES: dict[str, Callable[[Settings], Policy]] = {
    "constant": lambda given: ConstantPolicy(_budget(given)),
    "dynamic": lambda given: DynamicPolicy(_budget(given)),
    "arm-constant": lambda given: ArmConstantPolicy(_budgets(given)),
    "arm-dynamic": lambda given: ArmDynamicPolicy(_budgets(given)),
    "epsilon-greedy": lambda given: EpsilonGreedyPolicy(),
    "gittins": lambda given: GittinsPolicy(given.discount),
    "joint": lambda given: JointPolicy(_budget(given)),
    "joint-across-time": lambda given: AcrossTimePolicy(_budget(given)),
    "best-private": lambda given: BestPrivatePolicy(_budget(given)),
    "pooled": lambda given: PooledPolicy(),
    "thompson": lambda given: CustomPolicy(ThompsonSampling),
    "thompson-response": lambda given: CustomPolicy(ThompsonSampling, budget=_budget(given)),
    "thompson-gate": lambda given: CustomPolicy(
        ThompsonSampling, budget=_budget(given), through="gate"
    ),
    "ucb": lambda given: CustomPolicy(UpperConfidence),
    "ucb-response": lambda given: CustomPolicy(UpperConfidence, budget=_budget(given)),
    "ucb-gate": lambda given: CustomPolicy(UpperConfidence, budget=_budget(given), through="gate"),
    "random": lambda given: RandomPolicy(),
    "perfect": lambda given: PerfectPolicy(),
}


def policy_named(name: str, settings: Settings | None = None) -> Policy:
    """Return the policy with this name.

    >>> policy_named("dynamic", Settings(budget=3)).label
    'dynamic(3)'
    """
    if name not in list(POLICIES):
        raise InvalidArgumentError("policies", name, "names from " + ", ".join(POLICIES))
    return POLICIES[name](settings or Settings())

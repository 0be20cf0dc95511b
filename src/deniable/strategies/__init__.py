"""The strategies layer: how an experiment spends its budget, one file for each way.

`STRATEGIES` is the one table of them. Planner, charts, pages and command line go through it and name no
strategy, so that adding one is adding its file and its line here.
"""

from deniable.strategies.base import Strategy
from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy
from deniable.strategies.joint import JointStrategy

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (ConstantStrategy, DynamicStrategy, JointStrategy)
}
"""Every strategy by its name."""

DEFAULT_STRATEGY = DynamicStrategy.name
"""Of experiments that do not say which; a promise of the API's first version."""

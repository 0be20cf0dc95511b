"""The strategies layer: how an experiment spends its budget, one file for each way.

`STRATEGIES` is the one table of them. Planner, charts, pages and command line go through it and name no
strategy, so that adding one is adding its file and its line here. Serving and auditing ask
`table_rules`, which also has the gate: it makes tables of what a model outside says, and learns nothing
that could be planned with.
"""

from deniable.strategies.base import Strategy
from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy
from deniable.strategies.gate import GateRule
from deniable.strategies.joint import JointStrategy
from deniable.strategies.rules import TableRule

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (ConstantStrategy, DynamicStrategy, JointStrategy)
}
"""Every strategy by its name."""

DEFAULT_STRATEGY = DynamicStrategy.name
"""Of experiments that do not say which; a promise of the API's first version."""


def table_rules() -> dict[str, type[TableRule]]:
    """Everything that an experiment's tables can be made by, by its name."""
    return {**STRATEGIES, GateRule.name: GateRule}

"""The strategies layer: how an experiment spends its budget, with one file per strategy.

`STRATEGIES` is the single list of strategies. The planner, charts, pages and command line use it
and name no strategy, so adding one means adding its file and its line here. Serving and auditing
use `table_rules`, which also contains the gate: it makes tables from an external model's scores and
learns nothing that could be used for planning.
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
"""All strategies by name."""

DEFAULT_STRATEGY = DynamicStrategy.name
"""Strategy of experiments that do not specify one, guaranteed since the API's first version."""


def table_rules() -> dict[str, type[TableRule]]:
    """Return everything that can make an experiment's tables, by name."""
    return {**STRATEGIES, GateRule.name: GateRule}

"""The strategies layer: how an experiment spends its budget, with one file per strategy.

`STRATEGIES` is the single list of strategies with a budget. The planner, charts, pages and command line
use it and name no strategy, so adding one means adding its file and its line here. `TABLE_RULES` is what
an experiment can be served by: these, and the bandit without a bound between rows.
"""

from collections import ChainMap
from typing import cast

from deniable.strategies.base import Strategy
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.joint import Joint
from deniable.strategies.rules import TableRule
from deniable.strategies.unbounded import Unbounded

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (Constant, Dynamic, Joint)
}
"""All strategies with a budget, by name."""

TABLE_RULES: ChainMap[str, type[TableRule]] = ChainMap(
    {Unbounded.name: Unbounded}, cast(dict[str, type[TableRule]], STRATEGIES)
)
"""Everything that makes the tables of experiments, by name."""

DEFAULT_STRATEGY = Joint.name
"""Strategy of experiments with segments that do not specify one."""

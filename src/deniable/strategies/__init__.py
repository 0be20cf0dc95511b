"""The strategies layer: how an experiment spends its budget, with one file per strategy.

`STRATEGIES` is the single list of strategies. Serving, auditing, the planner, charts, pages and
command line use it and name no strategy, so adding one means adding its file and its line here.
"""

from deniable.strategies.base import Strategy
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.joint import Joint

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (Constant, Dynamic, Joint)
}
"""All strategies by name."""

DEFAULT_STRATEGY = Dynamic.name
"""Strategy of experiments that do not specify one, guaranteed since the API's first version."""

"""The lazy names of `deniable`, spelt out for type checkers; a test keeps this in step."""

from deniable import datasets as datasets
from deniable import errors as errors
from deniable import portfolio as portfolio
from deniable import privacy as privacy
from deniable import theory as theory
from deniable.client.clients import Client as Client
from deniable.errors import DeniableError as DeniableError
from deniable.expectations.fit import fit_prior as fit_prior
from deniable.leak.report import measure_leak as measure_leak
from deniable.leak.worth import worth as worth
from deniable.masks.limit import design_groups as design_groups
from deniable.masks.mask import Mask as Mask
from deniable.planning.arm_plan import plan_arms as plan_arms
from deniable.planning.plan import Plan as Plan
from deniable.planning.plan import plan as plan
from deniable.portfolio.allocation import Allocation as Allocation
from deniable.portfolio.allocation import allocate as allocate
from deniable.portfolio.problem import Portfolio as Portfolio
from deniable.privacy.belief import budget_for_belief as budget_for_belief
from deniable.privacy.belief import highest_belief as highest_belief
from deniable.service.service import open as open  # noqa: A004
from deniable.simulation.environment import Environment as Environment
from deniable.simulation.results import SimulationResult as SimulationResult
from deniable.simulation.run import Case as Case
from deniable.simulation.run import simulate as simulate
from deniable.simulation.run import simulate_many as simulate_many
from deniable.strategies.arm_budgets import ArmConstant as ArmConstant
from deniable.strategies.arm_budgets import ArmDynamic as ArmDynamic
from deniable.strategies.benchmarks import BestPrivate as BestPrivate
from deniable.strategies.benchmarks import EpsilonGreedy as EpsilonGreedy
from deniable.strategies.benchmarks import Gittins as Gittins
from deniable.strategies.benchmarks import Perfect as Perfect
from deniable.strategies.benchmarks import Random as Random
from deniable.strategies.constant import Constant as Constant
from deniable.strategies.custom import Custom as Custom
from deniable.strategies.custom import ThompsonSampling as ThompsonSampling
from deniable.strategies.dynamic import Dynamic as Dynamic
from deniable.strategies.joint import Joint as Joint
from deniable.strategies.joint_lp import best_table as best_table
from deniable.strategies.pooled import Pooled as Pooled
from deniable.strategies.unbounded import Unbounded as Unbounded

__version__: str
__all__: list[str]
_HOME: dict[str, tuple[str, ...]]
_PACKAGES: tuple[str, ...]

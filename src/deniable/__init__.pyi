"""The lazy names of `deniable`, spelt out for type checkers; a test keeps this in step."""

from deniable.datasets import ExperimentData as ExperimentData
from deniable.datasets import asos as asos
from deniable.datasets import open_bandit as open_bandit
from deniable.datasets import synthetic_portfolio as synthetic_portfolio
from deniable.expectations.fit import FittedPrior as FittedPrior
from deniable.expectations.fit import fit_prior as fit_prior
from deniable.leak.report import Leak as Leak
from deniable.leak.report import measure_leak as measure_leak
from deniable.planning.arm_plan import ArmPlan as ArmPlan
from deniable.planning.arm_plan import plan_arms as plan_arms
from deniable.planning.plan import Plan as Plan
from deniable.planning.plan import plan as plan
from deniable.policies.benchmarks import GittinsPolicy as GittinsPolicy
from deniable.policies.benchmarks import PerfectPolicy as PerfectPolicy
from deniable.policies.benchmarks import RandomPolicy as RandomPolicy
from deniable.policies.custom import CustomPolicy as CustomPolicy
from deniable.policies.custom import Learner as Learner
from deniable.policies.custom import ThompsonSampling as ThompsonSampling
from deniable.policies.custom import UpperConfidence as UpperConfidence
from deniable.policies.greedy import ArmConstantPolicy as ArmConstantPolicy
from deniable.policies.greedy import ArmDynamicPolicy as ArmDynamicPolicy
from deniable.policies.greedy import ConstantPolicy as ConstantPolicy
from deniable.policies.greedy import DynamicPolicy as DynamicPolicy
from deniable.policies.greedy import EpsilonGreedyPolicy as EpsilonGreedyPolicy
from deniable.policies.tables import AcrossTimePolicy as AcrossTimePolicy
from deniable.policies.tables import BestPrivatePolicy as BestPrivatePolicy
from deniable.policies.tables import JointPolicy as JointPolicy
from deniable.policies.tables import PooledPolicy as PooledPolicy
from deniable.portfolio.allocation import Allocation as Allocation
from deniable.portfolio.allocation import Allocator as Allocator
from deniable.portfolio.allocation import allocate as allocate
from deniable.portfolio.layers import Layer as Layer
from deniable.portfolio.layers import LayerDesign as LayerDesign
from deniable.portfolio.layers import design_layers as design_layers
from deniable.portfolio.participation import RealizedRisk as RealizedRisk
from deniable.portfolio.participation import realized_risk as realized_risk
from deniable.portfolio.participation import sampled_risk as sampled_risk
from deniable.portfolio.problem import Portfolio as Portfolio
from deniable.portfolio.rolling_budget import RollingBudget as RollingBudget
from deniable.portfolio.rules import RuleOutcome as RuleOutcome
from deniable.portfolio.rules import best_budgets as best_budgets
from deniable.portfolio.rules import compare_rules as compare_rules
from deniable.portfolio.rules import equal_split as equal_split
from deniable.portfolio.rules import zero_budgets as zero_budgets
from deniable.portfolio.table import read_portfolio as read_portfolio
from deniable.portfolio.table import write_allocation as write_allocation
from deniable.portfolio.whatif import WhatIf as WhatIf
from deniable.portfolio.whatif import budget_for_share as budget_for_share
from deniable.portfolio.whatif import what_if as what_if
from deniable.privacy.belief import Tracker as Tracker
from deniable.privacy.belief import belief_curve as belief_curve
from deniable.privacy.belief import budget_for_belief as budget_for_belief
from deniable.privacy.belief import highest_belief as highest_belief
from deniable.privacy.belief import lowest_belief as lowest_belief
from deniable.privacy.composition import BudgetAccount as BudgetAccount
from deniable.privacy.composition import nano_down as nano_down
from deniable.privacy.composition import nano_up as nano_up
from deniable.privacy.composition import parallel as parallel
from deniable.privacy.composition import sequential as sequential
from deniable.privacy.exploration import dynamic_exploration as dynamic_exploration
from deniable.privacy.exploration import dynamic_risk as dynamic_risk
from deniable.privacy.exploration import exhaustion_clock as exhaustion_clock
from deniable.privacy.exploration import exhaustion_times as exhaustion_times
from deniable.privacy.exploration import expected_exhaustion_time as expected_exhaustion_time
from deniable.privacy.exploration import exploration_from_risk as exploration_from_risk
from deniable.privacy.exploration import risk_from_exploration as risk_from_exploration
from deniable.privacy.mechanism import ArmSpecificResponse as ArmSpecificResponse
from deniable.privacy.mechanism import RandomizedResponse as RandomizedResponse
from deniable.privacy.serving import ServingSchedule as ServingSchedule
from deniable.privacy.serving import ServingTable as ServingTable
from deniable.privacy.serving import arm_specific_table as arm_specific_table
from deniable.privacy.serving import symmetric_table as symmetric_table
from deniable.service.drafts import NewArm as NewArm
from deniable.service.service import Deniable as Deniable
from deniable.service.service import open as open  # noqa: A004
from deniable.simulation.environment import Environment as Environment
from deniable.simulation.kernels.gittins_table import gittins_index as gittins_index
from deniable.simulation.results import SimulationResult as SimulationResult
from deniable.simulation.run import Case as Case
from deniable.simulation.run import simulate as simulate
from deniable.simulation.run import simulate_many as simulate_many
from deniable.simulation.scenario import read_scenario as read_scenario
from deniable.storage.records import Arm as Arm
from deniable.storage.records import Decision as Decision
from deniable.storage.records import Experiment as Experiment
from deniable.storage.records import Firm as Firm
from deniable.strategies.arm_budgets import ArmConstantStrategy as ArmConstantStrategy
from deniable.strategies.arm_budgets import ArmDynamicStrategy as ArmDynamicStrategy
from deniable.strategies.constant import ConstantStrategy as ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy as DynamicStrategy
from deniable.strategies.gate import Gated as Gated
from deniable.strategies.gate import gate as gate
from deniable.strategies.joint import JointStrategy as JointStrategy
from deniable.theory.arm_specific import (
    arm_specific_constant_regret as arm_specific_constant_regret,
)
from deniable.theory.arm_specific import arm_specific_excess as arm_specific_excess
from deniable.theory.arm_specific import arm_specific_excess_linear as arm_specific_excess_linear
from deniable.theory.arm_specific import (
    arm_specific_per_round_regret as arm_specific_per_round_regret,
)
from deniable.theory.arm_specific import heterogeneity_gap as heterogeneity_gap
from deniable.theory.best_budget import best_constant_budget as best_constant_budget
from deniable.theory.best_budget import best_dynamic_budget as best_dynamic_budget
from deniable.theory.best_budget import constant_budget_for_regret as constant_budget_for_regret
from deniable.theory.best_budget import dynamic_budget_for_regret as dynamic_budget_for_regret
from deniable.theory.elasticity import constant_elasticity as constant_elasticity
from deniable.theory.elasticity import constant_gain as constant_gain
from deniable.theory.elasticity import dynamic_elasticity as dynamic_elasticity
from deniable.theory.elasticity import dynamic_gain as dynamic_gain
from deniable.theory.regret import RegretTerms as RegretTerms
from deniable.theory.regret import constant_regret as constant_regret
from deniable.theory.regret import constant_regret_terms as constant_regret_terms
from deniable.theory.regret import dynamic_regret as dynamic_regret
from deniable.theory.regret import dynamic_regret_terms as dynamic_regret_terms
from deniable.theory.regret import (
    dynamic_regret_terms_any_segments as dynamic_regret_terms_any_segments,
)
from deniable.theory.regret import nonprivate_regret as nonprivate_regret
from deniable.theory.regret import per_round_regret as per_round_regret

__all__: list[str]

_HOME: dict[str, tuple[str, ...]]

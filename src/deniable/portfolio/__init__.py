"""The firm's problem: one budget over many experiments, its solution and benchmarks."""

from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.participation import RealizedRisk, realized_risk, sampled_risk
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import (
    RuleOutcome,
    best_budgets,
    compare_rules,
    equal_split,
    zero_budgets,
)
from deniable.portfolio.table import read_portfolio, write_allocation

__all__ = [
    "Allocation",
    "Portfolio",
    "RealizedRisk",
    "RuleOutcome",
    "allocate",
    "best_budgets",
    "compare_rules",
    "equal_split",
    "read_portfolio",
    "realized_risk",
    "sampled_risk",
    "write_allocation",
    "zero_budgets",
]

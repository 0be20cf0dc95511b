"""The firm of several studies: its experiments, and what each way to divide its budget earns.

Clicks are simulated at true visitor counts. The experiments are ASOS's if the file exists, else those
of a synthetic firm like it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deniable import Allocation, Case, Constant, Dynamic, Environment, Portfolio, Random, allocate
from deniable.datasets import ExperimentData, asos, synthetic_portfolio
from deniable.errors import InvalidArgumentError
from deniable.portfolio import RuleOutcome, best_budgets, equal_split
from research.study import Context

REGIMES = ("flexible", "constant", "dynamic")

Clicks = NDArray[np.int64]
Regret = NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64)
Simulated = Constant | Dynamic | Random


@dataclass(frozen=True)
class Division:
    """A way to divide a firm budget.

    Attributes:
        rule: "regret-based", "equal split" or "best budgets".
        regime: which strategies are allowed.
        firm_budget: Gamma; None for best budgets, which have no limit.
        policies: one per experiment.
        budgets: one per experiment.
        regret_bound: the sum of the bounds.
    """

    rule: str
    regime: str
    firm_budget: float | None
    policies: tuple[Simulated, ...]
    budgets: tuple[float, ...]
    regret_bound: float


def policy_of(strategy: str, budget: float) -> Simulated:
    """Return the policy of a strategy at a budget, rounded to six digits; random arms at 0.

    >>> policy_of("dynamic", 1.23456789).label, policy_of("constant", 0.0).label
    ('dynamic(1.23457)', 'random')
    """
    digits = float(f"{budget:.6g}")
    if digits == 0:
        return Random()
    if strategy not in ("constant", "dynamic"):
        raise InvalidArgumentError("strategy", strategy, "constant or dynamic, those of the paper")
    return Constant(digits) if strategy == "constant" else Dynamic(digits)


def divisions(portfolio: Portfolio, firm_budgets: Sequence[float]) -> list[Division]:
    """Return both rules in every regime for each firm budget, and each regime's best budgets."""
    found = []
    for regime in REGIMES:
        for firm in firm_budgets:
            best = allocate(portfolio, firm, regime=regime)
            found.append(_division("regret-based", regime, firm, best))
            found.append(
                _division("equal split", regime, firm, equal_split(portfolio, firm, regime))
            )
        free = best_budgets(portfolio, max(firm_budgets), regime)
        found.append(_division("best budgets", regime, None, free))
    return found


def _division(
    rule: str, regime: str, firm_budget: float | None, chosen: Allocation | RuleOutcome
) -> Division:
    budgets = tuple(chosen.budgets.tolist())
    policies = tuple(map(policy_of, chosen.strategies, budgets))
    return Division(rule, regime, firm_budget, policies, budgets, chosen.total_regret)


@dataclass(frozen=True, eq=False)
class FirmClicks:
    """Simulated clicks and pseudo-regret by experiment and policy.

    Attributes:
        clicks: (experiment, policy) -> clicks of each repetition.
        regret: the same for expected lost clicks, which exclude the randomness of clicks.
    """

    clicks: dict[tuple[str, str], Clicks]
    regret: dict[tuple[str, str], Regret] = field(default_factory=dict)

    def improvement(self, names: Sequence[str], policies: Sequence[Simulated]) -> Clicks:
        """Return clicks of the whole firm minus those of random arms, by repetition."""
        return _sum_of_gains(self.clicks, names, policies)

    def expected_improvement(self, names: Sequence[str], policies: Sequence[Simulated]) -> Regret:
        """Return the same in expected clicks: regret of random arms minus the policies'."""
        return -_sum_of_gains(self.regret, names, policies)


def _sum_of_gains(
    values: dict[tuple[str, str], NDArray[Number]],
    names: Sequence[str],
    policies: Sequence[Simulated],
) -> NDArray[Number]:
    random = Random().label
    gained = [
        values[name, policy.label] - values[name, random]
        for name, policy in zip(names, policies, strict=True)
    ]
    return np.asarray(np.sum(gained, axis=0))


def simulate_firm(
    context: Context,
    experiments: Sequence[ExperimentData],
    policies: Sequence[Sequence[Simulated]],
    repetitions: int,
) -> FirmClicks:
    """Simulate every policy that some division uses in an experiment once, and random arms.

    Args:
        context: the context.
        experiments: experiments with their true click rates and numbers of visitors.
        policies: policies of each division, one per experiment.
        repetitions: repetitions of each.
    """
    batches = []
    for index, experiment in enumerate(experiments):
        world = Environment(experiment.rates, experiment.visitors, name=experiment.name)
        used = {Random().label: Random()} | {
            chosen[index].label: chosen[index] for chosen in policies
        }
        batches.append([Case(world, used[label]) for label in sorted(used)])
    clicks, regret = {}, {}
    for experiment, result in zip(
        experiments, context.simulate_each(batches, repetitions), strict=True
    ):
        for (label,), rows in result.frame.group_by("policy"):
            ordered = rows.sort("repetition")
            clicks[experiment.name, str(label)] = ordered["clicks"].to_numpy()
            regret[experiment.name, str(label)] = ordered["regret"].to_numpy()
    return FirmClicks(clicks, regret)


def expected_gains(
    firm: FirmClicks, names: Sequence[str], found: Sequence[Division]
) -> dict[tuple[str, str, float | None], Regret]:
    """Return expected clicks beyond random arms by repetition, per rule, regime and firm budget."""
    return {
        (division.rule, division.regime, division.firm_budget): firm.expected_improvement(
            names, division.policies
        )
        for division in found
    }


def improvements(firm: FirmClicks, names: Sequence[str], found: Sequence[Division]) -> pl.DataFrame:
    """Return median and quartiles of the improvement over random arms, one row per division.

    `expected` is its mean in expected clicks, with the standard error `expected_error`.
    """
    rows = []
    for division in found:
        gained = firm.improvement(names, division.policies)
        expected = firm.expected_improvement(names, division.policies)
        low, middle, high = (float(value) for value in np.quantile(gained, (0.25, 0.5, 0.75)))
        rows.append(
            {
                "rule": division.rule,
                "regime": division.regime,
                "firm_budget": division.firm_budget,
                "median": middle,
                "q25": low,
                "q75": high,
                "expected": float(expected.mean()),
                "expected_error": float(expected.std(ddof=1) / expected.size**0.5),
                "spent": sum(division.budgets),
                "funded": sum(budget > 0 for budget in division.budgets),
                "dynamic": sum(isinstance(policy, Dynamic) for policy in division.policies),
                "regret_bound": division.regret_bound,
                "repetitions": gained.size,
            }
        )
    return pl.DataFrame(rows, schema_overrides={"firm_budget": pl.Float64})


# -- the firm's experiments ------------------------------------------------------------------------

SHA256 = "bdf88b27185d3f7e65912cbb421129a32ae347c2fb0d9442fe54d74266551524"
"""Checksum of the ASOS file with which the published numbers were checked."""


@dataclass(frozen=True)
class Firm:
    """Experiments and their source.

    Attributes:
        experiments: by name.
        synthetic: whether they are drawn, not observed.
        source: one sentence for the report.
    """

    experiments: tuple[ExperimentData, ...]
    synthetic: bool
    source: str

    @property
    def portfolio(self) -> Portfolio:
        """The experiments as a portfolio."""
        return Portfolio.of(
            (
                {"id": each.name, "arms": each.n_arms, "visitors": each.visitors}
                for each in self.experiments
            ),
            form="paper",
        )

    @property
    def mark(self) -> str:
        """The suffix of captions."""
        return " SYNTHETIC portfolio, not ASOS data." if self.synthetic else ""


def load_firm(context: Context) -> Firm:
    """Load ASOS's 78 experiments if the data folder has them, else 78 synthetic ones."""
    file = context.data_file("asos")
    if file is None:
        return Firm(
            tuple(synthetic_portfolio(seed=context.seed)),
            True,
            "SYNTHETIC DATA: the ASOS file was not given, so these 78 experiments are drawn to match "
            "its published summary statistics. Conclusions about ASOS need the file.",
        )
    known = sha256(file) == SHA256
    checked = "its checksum is verified" if known else "ITS CHECKSUM IS NOT THE ONE KNOWN"
    return Firm(
        tuple(asos(file)),
        False,
        f"The ASOS Digital Experiments Dataset (Liu et al. 2021, CC BY 4.0); {checked}.",
    )


def sha256(file: Path) -> str:
    """Return the file's checksum."""
    return hashlib.sha256(file.read_bytes()).hexdigest()

"""How a budget is spent: the constant and the dynamic strategy over the visitors."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from deniable import Constant, Dynamic
from deniable.charts.theme import themed
from deniable.privacy import dynamic_exploration, dynamic_risk, exhaustion_clock
from research.charts import strategy_panels
from research.study import BUDGETS, Claim, Context, Figure, StudyResult, judged

CLOCKS = np.unique(np.geomspace(1, 100_000, 101).round().astype(np.int64))


def run(context: Context) -> StudyResult:
    """Compute risk and exploration by visitor exactly, without simulation."""
    return StudyResult(
        headline="The dynamic strategy explores first and never exceeds the budget; its formula needs a "
        "start that the paper leaves open.",
        paragraphs=(
            "The constant strategy gives every visitor the whole budget as risk. The dynamic strategy "
            "follows the schedule that epsilon-greedy would follow without privacy, random first and "
            "greedy later, until the schedule reaches the budget; from there on it stays.",
        ),
        figures=(
            Figure(
                "constant_strategy",
                "The constant strategy, two arms: risk, random arms and greedy arms by visitor.",
                themed(strategy_panels("constant", budgets=BUDGETS)),
                _table(Constant),
            ),
            Figure(
                "dynamic_strategy",
                "The dynamic strategy, two arms: each line leaves the common schedule where its "
                "budget is reached.",
                themed(strategy_panels("dynamic", budgets=BUDGETS)),
                _table(Dynamic),
            ),
        ),
        claims=(_cap(), _first_visitor(), _start(), _closed_form(), _footnote()),
        tables={"exhaustion_clock": _exhaustion()},
    )


def _table(strategy: type[Constant] | type[Dynamic]) -> pl.DataFrame:
    frames = []
    for budget in BUDGETS:
        spent = strategy(budget)
        share = np.asarray(spent.exploration(CLOCKS, 2))
        frames.append(
            pl.DataFrame(
                {
                    "budget": np.full(CLOCKS.size, budget),
                    "visitor": CLOCKS,
                    "risk": np.asarray(spent.risk(CLOCKS, 2)) + np.zeros(CLOCKS.size),
                    "exploration": share + np.zeros(CLOCKS.size),
                    "exploitation": 1 - share + np.zeros(CLOCKS.size),
                }
            )
        )
    return pl.concat(frames)


def _exhaustion() -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"arms": arms, "budget": budget, "visitor": int(exhaustion_clock(arms, budget))}
            for arms in (2, 5, 20)
            for budget in BUDGETS
        ]
    )


def _cap() -> Claim:
    clock = np.arange(1, 200_001)
    largest = max(
        float(np.max(Dynamic(budget).risk(clock, arms))) - budget
        for arms in (2, 5, 20)
        for budget in BUDGETS
    )
    return Claim(
        "No visitor's risk exceeds the budget, under either strategy",
        "xi_t <= gamma",
        f"largest excess {max(largest, 0.0):g}",
        judged(largest <= 0),
        "Checked for 2, 5 and 20 arms, five budgets and 200,000 visitors.",
    )


def _first_visitor() -> Claim:
    return Claim(
        "The dynamic risk of visitor t is log(1 - K + K / (K log t / t)^(1/3))",
        "at t = 1: exploration 0, infinite risk",
        f"exploration {float(dynamic_exploration(2, 1)):g}, risk {float(dynamic_risk(2, 1)):g}",
        "does not hold",
        "log 1 = 0: the raw formula would show the first visitor the greedy arm for certain. The first "
        "two visitors are explored with probability 1.",
        settled=True,
    )


def _start() -> Claim:
    twenty = float(np.argmax(np.asarray(dynamic_exploration(20, np.arange(1, 1000))) < 1))
    raw = (20 * math.log(3) / 3) ** (1 / 3)
    return Claim(
        "The schedule applies after a finite initialization period, truncated at one",
        "period not given",
        f"K = 20: random for the first {twenty:.0f} visitors",
        "holds in part",
        f"With many arms the raw formula exceeds 1 (K = 20, t = 3: {raw:.2f}) and first rises. Here "
        "exploration is 1 until the last visitor at which it would be, so that it never rises again.",
        settled=True,
    )


def _closed_form() -> Claim:
    clock = int(exhaustion_clock(2, 3))
    return Claim(
        "The visitor t_gamma at which the budget binds has no closed form",
        "none",
        f"K = 2, budget 3: {clock:,}",
        "does not hold",
        "It is exp(-W(-e^3 / K)) with the lower branch of Lambert's W and e the exploration at the "
        "budget.",
    )


def _footnote() -> Claim:
    return Claim(
        "t_gamma is the first t with (K log t / t)^(1/3) at most the exploration of the budget",
        "min over t = 1, 2, …",
        "counted from t = 3 on",
        "does not hold",
        "Taken literally it is t = 1 for every budget, because log 1 = 0. Counted on the falling part "
        "of the schedule it is what the figures show.",
        settled=True,
    )

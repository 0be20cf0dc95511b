"""What the planner page shows at one setting: numbers, words, and the data of its charts.

Everything a moving slider changes is here, small enough to be computed and sent while it moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from functools import cache, lru_cache
from typing import Any

import numpy as np

from deniable.planning.arm_plan import ArmPlan, plan_arms
from deniable.planning.outlook import ELASTICITIES, STRATEGIES, TERMS, Outlook, outlook
from deniable.planning.plan import Plan
from deniable.planning.recommendation import Recommendation, recommend
from deniable.privacy.belief import belief_curve, highest_belief, lowest_belief
from deniable.web.plan_setting import Setting
from deniable.web.wording import whole

_POINTS = 80
_PARTS = (
    ("learning", "learning"),
    ("exploration", "random arms"),
    ("estimation", "wrong best arm"),
)


def view(setting: Setting) -> dict[str, Any]:
    """Everything the page shows, as plain data: numbers, sentences, chart data by dataset."""
    planned = _planned(setting)
    by_arm = _planned_by_arm(setting)
    datasets = _datasets(planned)
    return {
        "plan": planned,
        "by_arm": by_arm,
        "budget": by_arm.global_budget if by_arm else planned.budget,
        "recommended": rounded_down(planned.recommendation.budget),
        "over_limit": setting.max_belief is not None
        and 100 * planned.highest_belief > setting.max_belief + 1e-9,
        "icons": _icons(planned),
        "datasets": datasets,
        "summaries": _summaries(planned),
        "tables": _tables(planned, datasets),
    }


@cache
def specifications() -> dict[str, dict[str, Any]]:
    """The charts as Vega-Lite, without data."""
    from deniable.charts.planner import CHARTS

    return {name: make().to_dict(validate=False) for name, make in CHARTS.items()}


def filled(name: str, datasets: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """One chart with its data."""
    from deniable.charts.planner import DATASETS

    return {**specifications()[name], "datasets": {d: datasets[d] for d in DATASETS[name]}}


def _planned(setting: Setting) -> Plan:
    """The plan without its table of other budgets, which the page does not show."""
    prior = setting.prior / 100
    belief = None if setting.max_belief is None else setting.max_belief / 100
    advice = _advice(setting.arms, setting.visitors, setting.segments, prior, belief)
    given = max(setting.arm_budgets) if setting.arm_budgets else setting.budget
    budget = rounded_down(advice.budget) if given is None else given
    sizes = {"n_arms": setting.arms, "horizon": setting.visitors, "n_segments": setting.segments}
    return Plan(
        **sizes,
        prior=prior,
        budget=budget,
        chosen=given is not None,
        lowest_belief=float(lowest_belief(prior, budget)),
        highest_belief=float(highest_belief(prior, budget)),
        constant=outlook("constant", **sizes, budget=budget),
        dynamic=outlook("dynamic", **sizes, budget=budget),
        recommendation=advice,
        table=(),
    )


@lru_cache(maxsize=256)
def _advice(
    arms: int, visitors: int, segments: int, prior: float, max_belief: float | None
) -> Recommendation:
    return recommend(
        n_arms=arms, horizon=visitors, n_segments=segments, prior=prior, max_belief=max_belief
    )


def rounded_down(budget: float) -> float:
    """A budget to four digits that people can type, never above what was asked for.

    >>> rounded_down(1.0986122886681098), rounded_down(0.0), rounded_down(2.0)
    (1.098, 0.0, 2.0)
    """
    exact = Decimal(budget)
    digit = Decimal(1).scaleb(exact.adjusted() - 3)
    return float(exact.quantize(digit, rounding=ROUND_FLOOR)) if exact else 0.0


def _planned_by_arm(setting: Setting) -> ArmPlan | None:
    if not setting.arm_budgets:
        return None
    return plan_arms(
        arm_budgets=setting.arm_budgets,
        horizon=setting.visitors,
        n_segments=setting.segments,
        prior=setting.prior / 100,
    )


def _icons(planned: Plan) -> dict[str, int]:
    """Whole people out of 100; what a tracker might learn is rounded up, chance down."""
    before = round(100 * planned.prior)
    return {
        "before": before,
        "after": max(before, min(100, int(np.ceil(100 * planned.highest_belief - 1e-9)))),
        "random": int(np.floor(100 * planned.constant.exploration_last + 1e-9)),
    }


def _datasets(planned: Plan) -> dict[str, list[dict[str, Any]]]:
    best = max(planned.constant.best_budget, planned.dynamic.best_budget)
    top = max(1.4 * best, 1.25 * planned.budget, 1.0)
    curves = _curves(planned.n_arms, planned.horizon, planned.n_segments, float(f"{top:.2g}"))
    clock = np.unique(np.geomspace(1, max(planned.horizon, 2), _POINTS).round())
    prior, low, high = belief_curve(planned.budget, n_points=61)
    data: dict[str, list[dict[str, Any]]] = {
        "belief": _records(prior=prior, low=low, high=high),
        "belief_here": [_here(planned)],
        "schedule": [],
        **curves,
        "best": [],
        "parts": [],
        "chosen": [{"budget": planned.budget, "text": f"budget {planned.budget:.3g}"}],
        "zero": [{"y": 0, "above": "too greedy ↑", "below": "too random ↓"}],
    }
    for look in (planned.constant, planned.dynamic):
        name = look.strategy
        strategy = STRATEGIES[name](planned.n_arms, planned.budget)
        data["schedule"] += _records(clock=clock, share=strategy.exploration(clock), strategy=name)
        data["best"].append(
            {
                "budget": look.best_budget,
                "regret": look.best_regret,
                "strategy": name,
                "text": f"best {look.best_budget:.2f}",
            }
        )
        data["parts"] += [
            {"strategy": name, "part": word, "clicks": getattr(look, part), "order": place}
            for place, (part, word) in enumerate(_PARTS)
        ]
    return data


@lru_cache(maxsize=256)
def _curves(arms: int, visitors: int, segments: int, top: float) -> dict[str, list[dict[str, Any]]]:
    """Loss and elasticity over budgets up to `top`: the same wherever the slider is."""
    budgets = np.linspace(top / _POINTS, top, _POINTS)
    data: dict[str, list[dict[str, Any]]] = {"regret": [], "elasticity": []}
    for name in STRATEGIES:
        total = TERMS[name](arms, visitors, budgets, segments).total
        # Just below its best budget a bound for several segments falls like a root: cut, for the eye.
        slope = np.clip(ELASTICITIES[name](arms, visitors, budgets, segments), -5, 5)
        data["regret"] += _records(budget=budgets, regret=total, strategy=name)
        data["elasticity"] += _records(budget=budgets, elasticity=slope, strategy=name)
    return data


def _here(planned: Plan) -> dict[str, Any]:
    text = f"{planned.prior:.0%} → {planned.highest_belief:.0%}"
    return {"prior": planned.prior, "belief": planned.highest_belief, "text": text}


def _records(strategy: str | None = None, **columns: Any) -> list[dict[str, Any]]:
    """Records with numbers to five digits: nobody sees more, and less is sent."""
    short = {
        name: [float(f"{x:.5g}") for x in np.asarray(column)] for name, column in columns.items()
    }
    lines = [dict(zip(short, values, strict=True)) for values in zip(*short.values(), strict=True)]
    return lines if strategy is None else [{**line, "strategy": strategy} for line in lines]


def _summaries(planned: Plan) -> dict[str, str]:
    constant, dynamic = planned.constant, planned.dynamic
    return {
        "belief": f"From {planned.prior:.0%}, a tracker that sees the arm can come to believe at most "
        f"{planned.highest_belief:.1%} and at least {planned.lowest_belief:.1%}.",
        "schedule": f"Constant: {constant.exploration_last:.0%} of visitors see a random arm from the "
        f"first to the last. Dynamic: everybody at first, {dynamic.exploration_last:.0%} in the end; "
        + _binds(dynamic),
        "regret": f"At this budget at most {whole(constant.regret)} clicks are lost with the constant "
        f"strategy, {whole(dynamic.regret)} with the dynamic one. The least: "
        f"{whole(constant.best_regret)} at budget {constant.best_budget:.2f}, and "
        f"{whole(dynamic.best_regret)} at {dynamic.best_budget:.2f}.",
        "parts": "Learning: clicks lost while the best arm is found. Random arms: the price of "
        "deniability. Wrong best arm: what is lost while the favourite is mistaken.",
        "elasticity": f"Constant: {_reading(constant)} Dynamic: {_reading(dynamic)}",
    }


def _binds(look: Outlook) -> str:
    if look.binds_at is None:
        return "the budget is never used up."
    return f"from a segment's visitor {whole(look.binds_at)} on, the whole budget is used."


def _reading(look: Outlook) -> str:
    if look.reading == "too random" and look.elasticity > 0:
        return "below its best budget; a little more would not help, the best one would."
    much = "a lot" if look.elasticity < -5 else f"{-look.elasticity:.2f}%"
    words = {
        "too random": f"too random; 1% more budget would save {much} of the loss.",
        "too greedy": "too greedy; less budget would protect more and lose less.",
        "balanced": "balanced; neither more nor less budget would help.",
        "cap never binds": "the budget is more than it can use; less would protect as well.",
    }
    return words[look.reading]


def _tables(planned: Plan, data: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """A few rows of each chart: the numbers behind the picture."""
    priors = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    beliefs = [[f"{p:.0%}", f"{float(highest_belief(p, planned.budget)):.1%}"] for p in priors]
    return {
        "belief": {"columns": ["belief before", "at most after"], "rows": beliefs},
        "schedule": _wide("visitor", data["schedule"], "clock", "share", ".1%"),
        "regret": _wide("budget", data["regret"], "budget", "regret", ",.0f"),
        "parts": {
            "columns": ["strategy", "part", "clicks"],
            "rows": [[r["strategy"], r["part"], whole(r["clicks"])] for r in data["parts"]],
        },
        "elasticity": _wide("budget", data["elasticity"], "budget", "elasticity", ".3f"),
    }


def _wide(
    label: str, records: Sequence[Mapping[str, Any]], x: str, y: str, form: str
) -> dict[str, Any]:
    """One row an x, one column a strategy, about a dozen rows."""
    found = {name: [r for r in records if r["strategy"] == name] for name in STRATEGIES}
    count = len(found["constant"])
    places = sorted({round(i) for i in np.linspace(0, count - 1, min(12, count))})
    rows = [
        [f"{found['constant'][i][x]:,.4g}", *(f"{found[name][i][y]:{form}}" for name in STRATEGIES)]
        for i in places
    ]
    return {"columns": [label, *STRATEGIES], "rows": rows}

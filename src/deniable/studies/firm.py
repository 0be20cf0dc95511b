"""The firm's budget over 78 experiments: what dividing it well is worth in clicks."""

from __future__ import annotations

import numpy as np
import polars as pl

from deniable.charts.studies_firm import firm_clicks, short
from deniable.studies.context import Context
from deniable.studies.contract import Claim, Figure, StudyResult, judged
from deniable.studies.firm_clicks import divisions, improvements, simulate_firm
from deniable.studies.firm_summary import summary_claims, summary_figure
from deniable.studies.portfolio_data import Firm, load_firm

FIRM_BUDGETS = (0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0)
QUICK_BUDGETS = (0.1, 5.0, 20.0, 500.0)


def run(context: Context) -> StudyResult:
    """Ten firm budgets, three regimes, two rules, and each experiment's best budget."""
    firm = load_firm(context)
    found = divisions(firm.portfolio, QUICK_BUDGETS if context.quick else FIRM_BUDGETS)
    repetitions = context.scale(100, 3)
    clicks = simulate_firm(context, firm.experiments, [d.policies for d in found], repetitions)
    names = [each.name for each in firm.experiments]
    table = improvements(clicks, names, found)
    upper = float(_one(table, "best budgets", "flexible", None)["median"])
    perfect = sum(
        each.visitors * (max(each.rates) - float(np.mean(each.rates))) for each in firm.experiments
    )
    allocated = pl.DataFrame(
        [
            {
                "rule": division.rule,
                "regime": division.regime,
                "firm_budget": division.firm_budget,
                "experiment": name,
                "strategy": policy.name,
                "budget": budget,
            }
            for division in found
            for name, policy, budget in zip(names, division.policies, division.budgets, strict=True)
        ]
    )
    return StudyResult(
        headline=_headline(table),
        paragraphs=(
            firm.source,
            "One firm budget bounds the risk of a visitor who meets every experiment. Regret-based "
            "allocation gives it to the experiments where it saves most regret; an equal split gives "
            "every experiment the same. Both are simulated with the experiments' own click rates and "
            "numbers of visitors.",
        ),
        figures=(summary_figure(firm), _clicks(table, upper, perfect, firm)),
        claims=(
            *([] if firm.synthetic else summary_claims(firm)),
            _beats(table),
            _where_largest(table),
            _small(table, upper),
            _large(table, upper),
            _upper(table, upper, perfect),
            _regimes(table),
        ),
        tables={"allocations": allocated},
    )


def _headline(table: pl.DataFrame) -> str:
    best = _one(table, "regret-based", "flexible", 20.0)["median"]
    even = _one(table, "equal split", "flexible", 20.0)["median"]
    return (
        f"With a firm budget of 20, giving it where it saves most regret gains {best / 1e3:,.0f} "
        f"thousand clicks over random arms; an equal split gains {even / 1e3:,.0f} thousand."
    )


def _clicks(table: pl.DataFrame, upper: float, perfect: float, firm: Firm) -> Figure:
    caption = (
        f"Clicks of the firm beyond random arms: medians of {table['repetitions'][0]} repetitions, bars "
        "from the first to the third quartile. Red: what regret-based allocation gains over an equal "
        "split where both may choose strategies."
    )
    return Figure("firm_clicks", caption + firm.mark, firm_clicks(table, upper, perfect), table)


def _one(
    table: pl.DataFrame, rule: str, regime: str, firm_budget: float | None
) -> dict[str, float]:
    rows = table.filter((pl.col("rule") == rule) & (pl.col("regime") == regime))
    rows = rows.filter(pl.col("firm_budget").eq_missing(firm_budget))
    return dict(rows.row(0, named=True))


def _gaps(table: pl.DataFrame) -> dict[float, tuple[float, bool]]:
    """Firm budget -> regret-based minus equal split, flexible; and whether quartiles are apart."""
    gaps = {}
    for firm_budget in table["firm_budget"].drop_nulls().unique().sort().to_list():
        best = _one(table, "regret-based", "flexible", firm_budget)
        even = _one(table, "equal split", "flexible", firm_budget)
        gaps[firm_budget] = (best["median"] - even["median"], best["q25"] > even["q75"])
    return gaps


def _beats(table: pl.DataFrame) -> Claim:
    gaps = _gaps(table)
    apart = [budget for budget, (_, clear) in gaps.items() if clear]
    return Claim(
        "Under a fixed firm budget, regret-based allocation often gets substantially more clicks",
        "often",
        ", ".join(f"{budget:g}: {short(gap)}" for budget, (gap, _) in gaps.items()),
        judged(len(apart) >= len(gaps) / 2, partly=bool(apart)),
        f"Quartiles are apart in favour of it at {len(apart)} of {len(gaps)} firm budgets"
        + (f" ({', '.join(f'{budget:g}' for budget in apart)})." if apart else "."),
    )


def _where_largest(table: pl.DataFrame) -> Claim:
    gaps = {budget: gap for budget, (gap, _) in _gaps(table).items()}
    top = max(gaps, key=lambda budget: gaps[budget])
    inner = min(gaps) < top < max(gaps)
    return Claim(
        "The improvement is largest at intermediate firm budgets",
        "Gamma of 5 to 20",
        f"largest at {top:g}: {short(gaps[top])}",
        judged(5 <= top <= 20, partly=inner),
        "The solver here proves that at most one ten-thousandth of the possible saving is missed.",
    )


def _small(table: pl.DataFrame, upper: float) -> Claim:
    small = [budget for budget in _gaps(table) if budget <= 0.1]
    shares = [
        _one(table, rule, "flexible", budget)["median"] / upper
        for budget in small
        for rule in ("regret-based", "equal split")
    ]
    most = max(map(abs, shares))
    return Claim(
        "With a very small firm budget gains are small under both rules",
        "Gamma of .01 and .1",
        f"at most {most:.1%} of the gain at best budgets",
        judged(most < 0.1),
        "Medians may be below zero by chance: random arms have random clicks.",
    )


def _large(table: pl.DataFrame, upper: float) -> Claim:
    largest = max(_gaps(table))
    shares = [
        _one(table, rule, "flexible", largest)["median"] / upper
        for rule in ("regret-based", "equal split")
    ]
    return Claim(
        "With a very large firm budget both rules approach the upper bound",
        "at Gamma = 500",
        f"{shares[0]:.0%} and {shares[1]:.0%} of it",
        judged(min(shares) > 0.95),
        "At 500 nats the equal share of 6.4 is above most best budgets.",
    )


def _upper(table: pl.DataFrame, upper: float, perfect: float) -> Claim:
    free = _one(table, "best budgets", "flexible", None)
    above = table.filter(pl.col("rule") != "best budgets").filter(pl.col("q25") > free["q75"])
    most = table.sort("median", descending=True).row(0, named=True)
    where = "" if most["firm_budget"] is None else f" at {most['firm_budget']:g}"
    return Claim(
        "Each experiment at its best budget is the upper bound on performance",
        "upper bound",
        f"{short(upper)} clicks for {free['spent']:.0f} nats; most: {short(most['median'])} "
        f"({most['rule']}, {most['regime']}{where})",
        judged(above.height == 0, partly=True),
        f"{above.height} of the other medians are clearly above it. It minimizes a worst-case bound, "
        f"not regret: it reaches {upper / perfect:.0%} of what perfect information would gain.",
    )


def _regimes(table: pl.DataFrame) -> Claim:
    flexible = table.filter((pl.col("rule") == "regret-based") & (pl.col("regime") == "flexible"))
    funded = int(flexible["funded"].sum())
    dynamic = int(flexible["dynamic"].sum())
    firm_budgets = flexible["firm_budget"].to_list()
    ratios = {
        budget: _one(table, "regret-based", "dynamic", budget)["median"]
        - _one(table, "regret-based", "constant", budget)["median"]
        for budget in firm_budgets
    }
    largest = max(firm_budgets)
    return Claim(
        "The dynamic strategy is particularly valuable in longer and more complex experiments",
        "chosen there",
        f"chosen for {dynamic} of {funded} funded experiments; dynamic minus constant at "
        f"{largest:g}: {short(ratios[largest])} clicks",
        judged(dynamic > funded / 2 and ratios[largest] > 0, partly=dynamic > funded / 2),
        "Its bound is below the constant one at any budget that binds within the visitors. In clicks "
        "the regimes hardly differ at small firm budgets, where the cap binds early.",
    )

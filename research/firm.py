"""The firm's budget over 78 experiments: the value of a good division, in clicks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from research.charts import firm_clicks, short, summary_panels
from research.firm_clicks import (
    Firm,
    Regret,
    divisions,
    expected_gains,
    improvements,
    load_firm,
    simulate_firm,
)
from research.study import (
    Claim,
    Context,
    Difference,
    Figure,
    StudyResult,
    judged,
    paired,
)

FIRM_BUDGETS = (0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0)
QUICK_BUDGETS = (0.1, 5.0, 20.0, 500.0)

Gains = Mapping[tuple[str, str, float | None], Regret]
"""Expected clicks beyond random arms by repetition, for each rule, regime and firm budget."""


def run(context: Context) -> StudyResult:
    """Compare ten firm budgets, three regimes, two rules, and each experiment's best budget."""
    firm = load_firm(context)
    found = divisions(firm.portfolio, QUICK_BUDGETS if context.quick else FIRM_BUDGETS)
    repetitions = context.scale(100, 3)
    clicks = simulate_firm(context, firm.experiments, [d.policies for d in found], repetitions)
    names = [each.name for each in firm.experiments]
    table = improvements(clicks, names, found)
    gains = expected_gains(clicks, names, found)
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
            _beats(gains),
            _where_largest(gains),
            _small(table, upper),
            _large(table, upper),
            _upper(table, upper, perfect),
            _regimes(table, gains),
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


def _firm_budgets(gains: Gains) -> list[float]:
    return sorted({budget for _, _, budget in gains if budget is not None})


def _gaps(gains: Gains) -> dict[float, Difference]:
    """Return, by firm budget, expected clicks of regret-based minus equal split, both flexible."""
    return {
        budget: paired(
            gains["regret-based", "flexible", budget], gains["equal split", "flexible", budget]
        )
        for budget in _firm_budgets(gains)
    }


def _beats(gains: Gains) -> Claim:
    gaps = _gaps(gains)
    ahead = [budget for budget, gap in gaps.items() if gap.clear and gap.mean > 0]
    behind = [budget for budget, gap in gaps.items() if gap.clear and gap.mean < 0]
    return Claim(
        "Under a fixed firm budget, regret-based allocation often gets substantially more clicks",
        "often",
        ", ".join(f"{budget:g}: {short(gap.mean)}" for budget, gap in gaps.items()),
        judged(len(ahead) >= len(gaps) / 2, partly=bool(ahead)),
        f"Expected clicks, repetition by repetition. Beyond noise it is ahead at {len(ahead)} of "
        f"{len(gaps)} firm budgets ({_listed(ahead)}) and behind at {len(behind)} "
        f"({_listed(behind)}).",
    )


def _listed(budgets: list[float]) -> str:
    return ", ".join(f"{budget:g}" for budget in budgets) or "none"


def _where_largest(gains: Gains) -> Claim:
    gaps = _gaps(gains)
    top = max(gaps, key=lambda budget: gaps[budget].mean)
    inner = min(gaps) < top < max(gaps) and gaps[top].clear
    # Budgets whose improvement is not significantly below the largest.
    level = [budget for budget, gap in gaps.items() if gap.mean + gap.noise >= gaps[top].mean] or [
        top
    ]
    return Claim(
        "The improvement is largest at intermediate firm budgets",
        "Gamma of 5 to 20",
        f"largest at {top:g}: {short(gaps[top].mean)}, noise {short(gaps[top].noise)[1:]}",
        judged(inner and all(5 <= budget <= 20 for budget in level), partly=inner),
        f"Within noise of the largest: {_listed(level)}. The solver here proves that at most one "
        "ten-thousandth of the possible saving is missed.",
    )


def _told_budgets(table: pl.DataFrame) -> list[float]:
    return [float(budget) for budget in table["firm_budget"].drop_nulls().unique().sort()]


def _small(table: pl.DataFrame, upper: float) -> Claim:
    small = [budget for budget in _told_budgets(table) if budget <= 0.1]
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
    largest = max(_told_budgets(table))
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


def _regimes(table: pl.DataFrame, gains: Gains) -> Claim:
    flexible = table.filter((pl.col("rule") == "regret-based") & (pl.col("regime") == "flexible"))
    funded = int(flexible["funded"].sum())
    dynamic = int(flexible["dynamic"].sum())
    ahead: list[float] = []
    behind: list[float] = []
    for budget in _firm_budgets(gains):
        gap = paired(
            gains["regret-based", "dynamic", budget], gains["regret-based", "constant", budget]
        )
        if gap.clear:
            (ahead if gap.mean > 0 else behind).append(budget)
    largest = max(_firm_budgets(gains))
    last = paired(
        gains["regret-based", "dynamic", largest], gains["regret-based", "constant", largest]
    )
    chosen = dynamic > funded / 2
    return Claim(
        "The dynamic strategy is particularly valuable in longer and more complex experiments",
        "chosen there",
        f"chosen for {dynamic} of {funded} funded experiments; dynamic minus constant at "
        f"{largest:g}: {short(last.mean)} clicks, noise {short(last.noise)[1:]}",
        judged(chosen and len(ahead) > len(behind), partly=chosen or bool(ahead)),
        f"Beyond noise dynamic alone is ahead of constant alone at firm budgets {_listed(ahead)} and "
        f"behind at {_listed(behind)}. Its bound is below the constant one at any budget that binds "
        "within the visitors; in clicks the regimes hardly differ where the cap binds early.",
    )


def summary_figure(firm: Firm) -> Figure:
    """Chart arms, visitors, click rates and uplifts."""
    arms = [each.n_arms for each in firm.experiments]
    visitors = [each.visitors for each in firm.experiments]
    rates = [100 * rate for each in firm.experiments for rate in each.rates]
    uplifts = [100 * (rate - each.rates[0]) for each in firm.experiments for rate in each.rates[1:]]
    data = pl.DataFrame(
        [
            {
                "experiment": each.name,
                "visitors": each.visitors,
                "days": each.days,
                "arm": index,
                "rate": rate,
                "uplift_points": 100 * (rate - each.rates[0]),
            }
            for each in firm.experiments
            for index, rate in enumerate(each.rates)
        ]
    )
    caption = "The experiments: arms, visitors, click rates and uplifts over the control."
    chart = summary_panels(arms, visitors, rates, uplifts)
    return Figure("firm_summary", caption + firm.mark, chart, data)


def summary_claims(firm: Firm) -> list[Claim]:
    """Recompute what the paper says about the experiments."""
    visitors = np.array([each.visitors for each in firm.experiments])
    rates = np.array([100 * rate for each in firm.experiments for rate in each.rates])
    days = np.array([each.days for each in firm.experiments])
    arms = [each.n_arms for each in firm.experiments]
    low, high = np.quantile(rates, (0.25, 0.75))
    uplifts = np.array(
        [100 * (rate - each.rates[0]) for each in firm.experiments for rate in each.rates[1:]]
    )
    skew = float(((uplifts - uplifts.mean()) ** 3).mean() / uplifts.std() ** 3)
    counts = ", ".join(f"{arms.count(k)} with {k}" for k in sorted(set(arms)))
    return [
        Claim(
            "Most experiments have two arms, a few four or five",
            "78 experiments",
            f"{len(arms)}: {counts}",
            judged(len(arms) == 78 and arms.count(2) > 39),
            f"{sum(arms)} arms: one control and its variants each.",
        ),
        Claim(
            "Visitors: 21 million on average, from 69,000 to 149,197,471",
            "21 million",
            f"{visitors.mean():,.0f}, {visitors.min():,} to {visitors.max():,}",
            judged(round(visitors.mean() / 1e6) == 21 and visitors.max() == 149_197_471),
            "The control is counted once, every treatment once.",
        ),
        Claim(
            "Click rates: 19.55% on average, quartiles 5.69% and 24.83%, from 2.65% to 77.24%",
            "19.55%",
            f"{rates.mean():.2f}%, {low:.2f}% and {high:.2f}%, {rates.min():.2f}% to {rates.max():.2f}%",
            judged(round(rates.mean(), 2) == 19.55 and round(low, 2) == 5.69),
            "Over all arms of the binary metric, at the last snapshot.",
        ),
        Claim(
            "On average experiments ran for 43.5 days, 131 at most",
            "43.5 on average",
            f"mean {days.mean():.1f}, median {np.median(days):.1f}, most {days.max():g}",
            judged(False, partly=True),
            "43.5 is the median; the mean is larger.",
            settled=True,
        ),
        Claim(
            "Uplifts are centred near zero and skewed to the right",
            "right-skewed",
            f"median {np.median(uplifts):+.3f} points, skewness {skew:+.1f}",
            judged(abs(float(np.median(uplifts))) < 0.1 and skew > 0, partly=skew > 0),
            f"{uplifts.size} treatments, from {uplifts.min():+.2f} to {uplifts.max():+.2f} points.",
        ),
    ]

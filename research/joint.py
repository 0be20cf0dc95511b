"""The joint strategy: the same bound on the odds, for more clicks, and how much is due to pooling."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import Case, Constant, Dynamic, Environment
from deniable._validation import FloatArray
from deniable.charts.theme import themed, values
from deniable.datasets import RECOMMENDATION_RATES, asos, open_bandit
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import proved_table
from deniable.strategies.kernel_rules import Simulated
from deniable.strategies.pooled import Pooled
from deniable.theory.joint import joint_regret
from research.joint_checks import horizon_claim, horizon_table, optimistic_regret
from research.study import Claim, Context, Figure, StudyResult, judged

BUDGETS = (0.1, 0.5, 1.0, 2.0, 3.0)
SPREAD = 0.3
"""The prior of heterogeneity for real data: each segment's rate of an arm is the arm's rate times
1 + SPREAD x a standard normal number, at least a tenth of it; three segments of equal size."""

_WEBSITE = np.array([0.324, 0.295])


def worlds() -> dict[str, Environment]:
    """Return the worlds of the table, by title; permutations and random rates use seed 7.

    >>> [world.rates.shape for world in worlds().values()]
    [(2, 8), (5, 8), (3, 20), (2, 2), (2, 2)]
    """
    rng = np.random.default_rng(7)
    items = np.array(RECOMMENDATION_RATES[:8])

    def permuted(n_segments: int) -> FloatArray:
        others = [rng.permutation(items) for _ in range(n_segments - 1)]
        return np.stack([items, *others])

    made = {
        "8 items, 2 segments": (permuted(2), 10**6),
        "8 items, 5 segments": (permuted(5), 10**6),
        "20 random arms, 3 segments": (rng.uniform(0.02, 0.08, (20, 3)).T, 10**6),
        "website, segments agree": (np.stack([_WEBSITE, _WEBSITE]), 10**5),
        "website, segments opposite": (np.stack([_WEBSITE, _WEBSITE[::-1]]), 10**5),
    }
    return {
        title: Environment(rates, visitors, name=title) for title, (rates, visitors) in made.items()
    }


def run(context: Context) -> StudyResult:
    """Compare shares of perfect information by world, budget and strategy; real data; the bound."""
    table = shares_table(context, worlds(), context.scale(100, 10))
    matches = matching_budgets(table)
    horizons = horizon_table(context, worlds(), context.scale(100, 10))
    real = _real_data(context)
    bound = bounds_table(context.seed, context.scale(20, 3))
    drawn = table.filter(pl.col("world") != "8 items, 5 segments")
    repetitions = max(table["repetitions"].to_list())
    caption = (
        "Share of what perfect information gains over random arms, against the budget: means over "
        f"{repetitions} repetitions with 95% intervals. Limit: the best private table "
        "with known rates."
    )
    tables = {"shares": table, "matching_budgets": matches, "bound": bound, "horizons": horizons}
    skipped = (
        "SKIPPED: ASOS and Open Bandit. Their files were not given (DENIABLE_DATA, or --data)."
        if real is None
        else "Real data: click rates of ASOS's experiments with 10,000 visitors or more and of Open "
        "Bandit's items, in three segments of equal size. Neither data set has segments; they are drawn "
        f"from a prior: a segment's rate is the arm's rate times 1 + {SPREAD:g} x a normal number."
    )
    if real is not None:
        tables["real_data"] = real
    return StudyResult(
        headline=_headline(table),
        paragraphs=(
            "The promise is about segments: no arm is more than e^budget times as likely for one "
            "segment as for another. What all segments share is free. The paper's strategies do not use "
            "that: they show random arms even where segments agree and nothing could leak. The joint "
            "strategy serves the best table that keeps the promise, for click rates it learns. Its "
            "promise is given the time of the first visit.",
            _pooling_words(table),
            skipped,
        ),
        figures=(Figure("joint", caption, budget_shares(drawn), drawn),),
        claims=(
            _multiple(table, 0.5, 3.0),
            _multiple(table, 3.0, 1.25),
            _matching(matches),
            _losses(table),
            horizon_claim(horizons),
            *([] if real is None else [_on_real_data(real)]),
            _bound(bound),
        ),
        tables=tables,
    )


def shares_table(
    context: Context, places: dict[str, Environment], repetitions: int
) -> pl.DataFrame:
    """Return the share of perfect information with its 95% interval, by world, strategy and budget."""
    policies: list[Simulated] = [Pooled()]
    for budget in BUDGETS:
        policies += [
            Constant(budget),
            Dynamic(budget),
            Joint(budget),
        ]
    batches = [[Case(world, policy) for policy in policies] for world in places.values()]
    rows: list[dict[str, object]] = []
    for (title, world), result in zip(
        places.items(), context.simulate_each(batches, repetitions), strict=True
    ):
        gain = perfect_gain(world)
        found = {
            row["policy"]: [1 - row[key] / gain for key in ("mean", "high", "low")]
            for row in result.summary("regret").iter_rows(named=True)
        }
        for budget in BUDGETS:
            label = f"({budget:g})"
            known = proved_table(world.rates, world.shares, budget).value
            limit = 1 - (world.best_reward - known) * world.horizon / gain
            for strategy, share in {
                "random": [0.0] * 3,
                "pooled": found["pooled"],
                "constant": found["constant" + label],
                "dynamic": found["dynamic" + label],
                "joint": found["joint" + label],
                "limit": [limit] * 3,
            }.items():
                rows.append(
                    {
                        "world": title,
                        "arms": world.n_arms,
                        "visitors": world.horizon,
                        "strategy": strategy,
                        "budget": budget,
                        "share": share[0],
                        "low": share[1],
                        "high": share[2],
                        "repetitions": repetitions,
                    }
                )
    return pl.DataFrame(rows)


def perfect_gain(world: Environment) -> float:
    """Return the clicks that perfect information gains over random arms."""
    best = world.rates.max(axis=1) - world.rates.mean(axis=1)
    return float(world.horizon * (world.shares * best).sum())


def matching_budgets(table: pl.DataFrame) -> pl.DataFrame:
    """Return, by world, the (interpolated) budget at which joint reaches dynamic at 3."""
    rows = []
    for (world,), part in table.group_by("world", maintain_order=True):
        joint = part.filter(pl.col("strategy") == "joint").sort("budget")
        wanted = share_of(part, str(world), "dynamic", 3.0)
        got = np.maximum.accumulate(joint["share"].to_numpy())
        budgets = joint["budget"].to_numpy()
        first = int(np.searchsorted(got, wanted))  # the first budget that is enough
        enough = math.nan
        if first == 0:
            enough = float(budgets[0])
        elif first < got.size:
            span = slice(first - 1, first + 1)
            enough = float(np.interp(wanted, got[span], budgets[span]))
        rows.append(
            {
                "world": world,
                "dynamic_at_3": wanted,
                "joint_at_smallest": float(got[0]),
                "budget": enough,
            }
        )
    return pl.DataFrame(rows)


def share_of(table: pl.DataFrame, world: str, strategy: str, budget: float) -> float:
    """Return one number of the table of shares."""
    chosen = table.filter(
        (pl.col("world") == world) & (pl.col("strategy") == strategy) & (pl.col("budget") == budget)
    )
    return float(chosen["share"].item())


def segmented(rates: FloatArray, rng: np.random.Generator, n_segments: int = 3) -> FloatArray:
    """Draw rates by segment and arm from the stated prior of heterogeneity."""
    factor = 1 + SPREAD * rng.standard_normal((rates.size, n_segments))
    return np.clip(rates * np.maximum(factor, 0.1).T, 0, 1)


def _real_data(context: Context) -> pl.DataFrame | None:
    """Return clicks gained over random arms by all experiments of a data set, or None."""
    files = [context.data_file(name) for name in ("asos", "open_bandit")]
    if files[0] is None or files[1] is None:
        return None
    rng = np.random.default_rng([context.seed, 14])
    places: list[tuple[str, Environment]] = []
    for each in asos(files[0]):
        if each.visitors >= 10_000:
            rates = segmented(np.array(each.rates), rng)
            places.append(("ASOS", Environment(rates, each.visitors, name=f"asos {each.name}")))
    counts = open_bandit("all", files[1])
    rates = segmented(np.array([clicks / shown for clicks, shown in counts]), rng)
    places.append(("Open Bandit", Environment(rates, 10**6, name="open bandit items")))
    policies: list[Simulated] = [Pooled()]
    for budget in (0.5, 1.0, 3.0):
        policies += [Dynamic(budget), Joint(budget)]
    batches = [[Case(world, policy) for policy in policies] for _, world in places]
    found = context.simulate_each(batches, context.scale(10, 2))
    sums: dict[tuple[str, str], list[float]] = {}
    for (source, world), result in zip(places, found, strict=True):
        gain = perfect_gain(world)
        for row in result.summary("regret").iter_rows(named=True):
            variance = ((row["high"] - row["low"]) / 3.92) ** 2
            total = sums.setdefault((source, row["policy"]), [0.0, 0.0, 0.0])
            for i, term in enumerate((gain - row["mean"], gain, variance)):
                total[i] += term
    return pl.DataFrame(
        [
            {
                "data": source,
                "policy": policy,
                "gained": gained,
                "perfect_gain": gain,
                "share": gained / gain,
                "low": (gained - 1.96 * variance**0.5) / gain,
                "high": (gained + 1.96 * variance**0.5) / gain,
            }
            for (source, policy), (gained, gain, variance) in sums.items()
        ]
    )


def bounds_table(seed: int, repetitions: int) -> pl.DataFrame:
    """Return the optimistic variant's mean regret next to its bound."""
    rows = []
    for number, (n_arms, n_segments, visitors, budget) in enumerate(
        [(2, 2, 10_000, 1.0), (4, 3, 30_000, 0.5), (8, 2, 30_000, 2.0)]
    ):
        rng = np.random.default_rng([seed, number])
        rates = rng.uniform(0.05, 0.5, (n_arms, n_segments)).T
        shares = np.full(n_segments, 1 / n_segments)
        lost = [optimistic_regret(rates, shares, visitors, budget, rng) for _ in range(repetitions)]
        rows.append(
            {
                "arms": n_arms,
                "segments": n_segments,
                "visitors": visitors,
                "budget": budget,
                "regret": float(np.mean(lost)),
                "largest": max(lost),
                "bound": float(joint_regret(n_arms, visitors, budget, n_segments)),
            }
        )
    return pl.DataFrame(rows)


def _headline(table: pl.DataFrame) -> str:
    world = "8 items, 2 segments"
    ours, theirs = (share_of(table, world, name, 0.5) for name in ("joint", "dynamic"))
    return (
        f"With 8 items, 2 segments and budget .5 the joint strategy gains {ours:.0%} of what perfect "
        f"information would, the dynamic strategy {theirs:.0%}."
    )


def _pooling_words(table: pl.DataFrame) -> str:
    def share(world: str, strategy: str, budget: float) -> str:
        return f"{share_of(table, world, strategy, budget):.0%}"

    world, opposite = "8 items, 2 segments", "website, segments opposite"
    return (
        "What is pooling and what is the linear programme: one bandit for everybody shows all segments "
        f"the same row, has risk 0, and gains {share(world, 'pooled', 3.0)} with 8 items, 2 segments. "
        f"At budget .5 joint gains {share(world, 'joint', 0.5)} there, so most of its lead over dynamic "
        f"at small budgets is pooling. At 3 it gains {share(world, 'joint', 3.0)}; the rest is the "
        "programme. Where best arms are opposite pooling gains nothing: randomized response is the "
        "best table there, and joint, which must find that out first, gains "
        f"{share(opposite, 'joint', 1.0)} at 1 against dynamic's {share(opposite, 'dynamic', 1.0)}."
    )


def _multiple(table: pl.DataFrame, budget: float, asked: float) -> Claim:
    ratios = {}
    for (world,), part in table.filter(pl.col("arms") > 2).group_by("world", maintain_order=True):
        ours, theirs = (share_of(part, str(world), n, budget) for n in ("joint", "dynamic"))
        ratios[str(world)] = ours / theirs
    return Claim(
        f"At budget {budget:g} joint gains {asked:g} times what dynamic gains, where K > 2",
        "not studied",
        "; ".join(f"{world}: {ratio:.1f}" for world, ratio in ratios.items()),
        judged(min(ratios.values()) >= asked, partly=max(ratios.values()) >= asked),
        "Gains over random arms, each as a share of perfect information's.",
    )


def _matching(matches: pl.DataFrame) -> Claim:
    told = []
    for row in matches.iter_rows(named=True):
        below = row["joint_at_smallest"] >= row["dynamic_at_3"]
        never = math.isnan(row["budget"])
        at = "not up to 3" if never else f"{'below ' if below else ''}{row['budget']:.2f}"
        told.append(f"{row['world']}: {at}")
    budgets = matches["budget"].fill_nan(math.inf)
    return Claim(
        "Joint matches dynamic at 3 with a smaller budget",
        "not studied",
        "; ".join(told),
        judged(bool((budgets < 3).all()), partly=bool((budgets < 3).any())),
        "Interpolated between the budgets that were simulated.",
    )


def _losses(table: pl.DataFrame) -> Claim:
    """Report where joint is below the better of dynamic and pooled."""
    lost = {}
    for world in table["world"].unique(maintain_order=True):
        for budget in BUDGETS:
            better = max(share_of(table, world, name, budget) for name in ("dynamic", "pooled"))
            lost[world, budget] = better - share_of(table, world, "joint", budget)
    worst = sorted(lost, key=lost.__getitem__, reverse=True)[:4]
    told = [f"{world} at {budget:g}: {100 * lost[world, budget]:.1f}" for world, budget in worst]
    return Claim(
        "Joint is never behind the better of dynamic and pooled",
        "not studied",
        "points behind, largest first: " + "; ".join(told),
        judged(lost[worst[0]] <= 0, partly=lost[worst[0]] < 0.05),
        "Worlds that agree and worlds that are opposite cannot be told apart at once.",
    )


def _on_real_data(real: pl.DataFrame) -> Claim:
    def share(data: str, policy: str) -> float:
        chosen = real.filter((pl.col("data") == data) & (pl.col("policy") == policy))
        return float(chosen["share"].item())

    told, better = [], []
    for data in real["data"].unique(maintain_order=True):
        ours, theirs, pooled = (share(data, p) for p in ("joint(1)", "dynamic(1)", "pooled"))
        told.append(f"{data}: joint {ours:.0%}, dynamic {theirs:.0%}, pooled {pooled:.0%}")
        better.append(ours > max(theirs, pooled))
    return Claim(
        "On real click rates joint gains more than dynamic and pooled, at budget 1",
        "not studied",
        "; ".join(told),
        judged(all(better), partly=any(better)),
        f"Segments are not in the data: drawn with a spread of {SPREAD:g} around each arm's rate.",
    )


def _bound(table: pl.DataFrame) -> Claim:
    ratios = (table["bound"] / table["largest"]).to_list()
    return Claim(
        "The bound of the optimistic variant holds",
        "not studied",
        f"{min(ratios):.1f} to {max(ratios):.1f} times the largest simulated regret",
        judged(min(ratios) >= 1),
        "Loose: it ranks plans and predicts nothing. The served strategy learns faster, unproved.",
    )


SERIES: dict[str, tuple[str, list[int]]] = {
    "limit": ("#555555", [2, 2]),
    "joint": ("#882255", [1, 0]),
    "dynamic": ("#0072B2", [1, 0]),
    "constant": ("#D55E00", [6, 3]),
    "pooled": ("#E69F00", [4, 2]),
    "random": ("#999999", [1, 3]),
}
"""Colour and dash of each series, best first."""


def budget_shares(table: pl.DataFrame) -> ChartType:
    """Chart one panel per world, two in a row.

    Args:
        table: columns world, strategy, budget, share, low, high.
    """
    worlds = table["world"].unique(maintain_order=True).to_list()
    panels = [_panel(table, world) for world in worlds]
    return themed(alt.vconcat(*(alt.hconcat(*panels[i : i + 2]) for i in range(0, len(panels), 2))))


def _panel(table: pl.DataFrame, world: str) -> ChartType:
    import polars as pl

    rows = table.filter((pl.col("world") == world) & pl.col("strategy").is_in(list(SERIES)))
    x = alt.X("budget:Q", title="privacy budget", scale=alt.Scale(domain=[0, 3], nice=False))
    y = alt.Y(
        "share:Q",
        title="share of perfect information",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, 1]),
    )
    colour = alt.Color(
        "strategy:N",
        title="strategy",
        sort=list(SERIES),
        scale=alt.Scale(domain=list(SERIES), range=[colour for colour, _ in SERIES.values()]),
    )
    dash = alt.StrokeDash(
        "strategy:N",
        title="strategy",
        sort=list(SERIES),
        scale=alt.Scale(domain=list(SERIES), range=[dash for _, dash in SERIES.values()]),
        legend=alt.Legend(symbolType="stroke"),
    )
    base = alt.Chart(values(rows.to_dicts()), title=world, width=300, height=190)
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(
            x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
        ),
    )

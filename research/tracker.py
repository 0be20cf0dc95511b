"""What a tracker comes to believe: simulated visitors against the bound, for each channel."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType
from numpy.typing import NDArray

from deniable import Constant, Dynamic, highest_belief
from deniable.charts.theme import ACCENT, STRATEGY_COLOURS, Records, themed, values
from deniable.privacy import lowest_belief
from research.study import BUDGETS, Claim, Context, Figure, StudyResult, judged

FloatArray = NDArray[np.float64]

PRIOR = 0.2
RATES = np.array([[0.12, 0.03], [0.03, 0.08], [0.05, 0.05]])
"""Click rates of three arms in the segment of interest, and in the rest."""

STRATEGIES = {"constant": Constant, "dynamic": Dynamic}
CHANNELS = ("shown arm", "shown arm and response")


def run(context: Context) -> StudyResult:
    """Simulate visitors one by one; the tracker knows everything except the visitor's segment."""
    visitors, repetitions = context.scale(3000, 400), context.scale(400, 60)
    frames = []
    for name in STRATEGIES:
        for budget in BUDGETS:
            rng = np.random.default_rng([context.seed, int(1000 * budget), len(name)])
            frames.append(_summary(name, budget, beliefs(name, budget, visitors, repetitions, rng)))
    table = pl.concat(frames)
    caption = (
        f"Belief that a visitor is of a segment with prior {PRIOR:.0%}, over all visitors: mean for "
        "members and for others, range of 98% of visitors. Red: what one shown arm can do at most and "
        "at least."
    )
    return StudyResult(
        headline="From what is shown, no tracker passes the bound; from clicks, which nothing bounds, "
        "it may.",
        paragraphs=(
            "The strongest tracker: it knows the click rates, the strategy, the clocks and the greedy "
            "arm of each segment at every moment, and updates its belief by Bayes' rule. From the shown "
            "arm it never passes the bound, and often touches it, so the bound is tight. On average it "
            "learns much less, because random arms and segments with the same greedy arm say nothing.",
            "The response is another channel. A click on an arm that only one segment likes tells more, "
            "and no budget bounds it: the promise is about what is shown, not about what visitors do.",
        ),
        figures=(Figure("beliefs_realized", caption, belief_ranges(table), table),),
        claims=(_within(table), _tight(table), _response(table), _later(table)),
    )


def beliefs(
    strategy: str,
    budget: float,
    visitors: int,
    repetitions: int,
    rng: np.random.Generator,
) -> dict[str, FloatArray]:
    """Return beliefs after the shown arm, and after the response: arrays (visitors, repetitions).

    Repetitions advance together, visitor by visitor. "member" marks who was in the segment.
    """
    n_arms = RATES.shape[0]
    spent = STRATEGIES[strategy](budget)
    clocks = np.arange(1, visitors + 2)
    exploration = np.asarray(spent.exploration(clocks, n_arms)) + np.zeros(clocks.size)
    runs = np.arange(repetitions)
    shows = np.zeros((2, n_arms, repetitions))
    clicks = np.zeros((2, n_arms, repetitions))
    seen = np.zeros((2, repetitions), dtype=np.int64)
    shape = (visitors, repetitions)
    member = np.empty(shape)
    after = {channel: np.empty(shape) for channel in CHANNELS}
    for visitor in range(visitors):
        rates = clicks / np.maximum(shows, 1)
        greedy = (rates + 1e-12 * rng.random(rates.shape)).argmax(axis=1)  # break ties at random
        # 0 is the segment of interest.
        segment = (rng.random(repetitions) >= PRIOR).astype(np.int64)
        chance = exploration[seen]  # what either segment would use for its next visitor
        explored = rng.random(repetitions) < chance[segment, runs]
        arm = np.where(explored, rng.integers(0, n_arms, repetitions), greedy[segment, runs])
        clicked = rng.random(repetitions) < RATES[arm, segment]
        shown_if = chance / n_arms + (1 - chance) * (arm == greedy)
        answered_if = np.where(clicked, RATES[arm].T, 1 - RATES[arm].T)
        member[visitor] = segment == 0
        after[CHANNELS[0]][visitor] = _posterior(shown_if)
        after[CHANNELS[1]][visitor] = _posterior(shown_if * answered_if)
        shows[segment, arm, runs] += 1
        clicks[segment, arm, runs] += clicked
        seen[segment, runs] += 1
    return {"member": member, **after}


def _posterior(likelihood: FloatArray) -> FloatArray:
    mine, other = PRIOR * likelihood[0], (1 - PRIOR) * likelihood[1]
    return np.asarray(mine / (mine + other))


def _summary(strategy: str, budget: float, found: dict[str, FloatArray]) -> pl.DataFrame:
    member = found["member"].astype(bool)
    late = slice(found["member"].shape[0] // 2, None)
    rows = []
    for channel in CHANNELS:
        belief = found[channel]
        low, high = np.quantile(belief, (0.01, 0.99))
        rows.append(
            {
                "strategy": strategy,
                "budget": budget,
                "channel": channel,
                "members_mean": float(belief[member].mean()),
                "others_mean": float(belief[~member].mean()),
                "late_members_mean": float(belief[late][member[late]].mean()),
                "q01": float(low),
                "q99": float(high),
                "largest": float(belief.max()),
                "smallest": float(belief.min()),
                "bound_high": float(highest_belief(PRIOR, budget)),
                "bound_low": float(lowest_belief(PRIOR, budget)),
            }
        )
    return pl.DataFrame(rows)


def _within(table: pl.DataFrame) -> Claim:
    shown = table.filter(pl.col("channel") == CHANNELS[0])
    over = float((shown["largest"] - shown["bound_high"]).max())  # type: ignore[arg-type]
    under = float((shown["bound_low"] - shown["smallest"]).max())  # type: ignore[arg-type]
    return Claim(
        "From the shown arm no belief passes the bound of the budget",
        "R_A at most e^gamma",
        f"largest excess {max(over, under, 0.0):.0e}",
        judged(max(over, under) < 1e-12),
        "Every visitor of every repetition, both strategies, five budgets.",
    )


def _tight(table: pl.DataFrame) -> Claim:
    shown = table.filter((pl.col("channel") == CHANNELS[0]) & (pl.col("strategy") == "constant"))
    ratio = min((shown["largest"] / shown["bound_high"]).to_list())
    mean = float(shown.filter(pl.col("budget") == 1.0)["members_mean"].item())
    return Claim(
        "The bound of the budget is reached, not only approached",
        "not studied",
        f"largest belief {ratio:.1%} of the bound; mean for members at budget 1: {mean:.1%}",
        judged(ratio > 0.999),
        "Constant strategy: reached when the segments' greedy arms differ and one of them is shown. "
        "The dynamic strategy reaches it once its cap binds.",
    )


def _response(table: pl.DataFrame) -> Claim:
    both = table.filter((pl.col("channel") == CHANNELS[1]) & (pl.col("budget") == 0.05))
    most, bound = float(both["largest"].max()), float(both["bound_high"].max())  # type: ignore[arg-type]
    return Claim(
        "The guarantee covers the shown arm, not the interaction with it",
        "channel 2 unprotected",
        f"budget .05: a click takes the belief to {most:.0%}, above {bound:.1%}",
        judged(most > bound),
        "A click is likelier in one segment by the factor of the click rates, here up to four.",
    )


def _later(table: pl.DataFrame) -> Claim:
    shown = table.filter((pl.col("channel") == CHANNELS[0]) & (pl.col("budget") == 3.0))
    mean = {row["strategy"]: row for row in shown.iter_rows(named=True)}
    early = mean["dynamic"]["members_mean"], mean["constant"]["members_mean"]
    return Claim(
        "Under the dynamic strategy early visitors face less risk than late ones",
        "lower early",
        f"budget 3, mean belief for members: dynamic {early[0]:.1%}, its second half "
        f"{mean['dynamic']['late_members_mean']:.1%}; constant {early[1]:.1%}",
        judged(mean["dynamic"]["late_members_mean"] > early[0]),
        "The dynamic strategy spends the whole budget only on visitors after the cap binds.",
    )


_APART = {"constant": -0.16, "dynamic": 0.16}
_WHO = {"members_mean": "members", "others_mean": "others"}


def belief_ranges(table: pl.DataFrame) -> ChartType:
    """Chart one panel per channel: ranges and means by budget and strategy, bounds as red ticks.

    Args:
        table: columns strategy, budget, channel, members_mean, others_mean, q01, q99, bound_low,
            bound_high.
    """
    budgets = table["budget"].unique().sort().to_list()
    place = {budget: index for index, budget in enumerate(budgets)}
    labels = "[" + ",".join(f"'{budget:g}'" for budget in budgets) + "][datum.value]"
    x = alt.X(
        "x:Q",
        title="privacy budget",
        scale=alt.Scale(domain=[-0.5, len(budgets) - 0.5], nice=False),
        axis=alt.Axis(values=list(place.values()), labelExpr=labels, grid=False),
    )
    panels = []
    for (channel,), rows in table.group_by("channel", maintain_order=True):
        records = [
            {**row, "x": place[row["budget"]] + _APART[row["strategy"]]}
            for row in rows.iter_rows(named=True)
        ]
        title = f"After the {channel}"
        panels.append(_panel(records, x, title).properties(width=320, height=240))
    return themed(alt.hconcat(*panels))


def _panel(records: Records, x: alt.X, title: str) -> ChartType:
    y = alt.Y(
        "q01:Q",
        title="belief of the tracker",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format=".0%"),
    )
    colour = alt.Color(
        "strategy:N",
        title="strategy",
        scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
    )
    shape = alt.Shape(
        "who:N",
        title="mean for",
        scale=alt.Scale(domain=list(_WHO.values()), range=["circle", "diamond"]),
        legend=alt.Legend(symbolFillColor="#2B2B2B", symbolStrokeWidth=0),
    )
    base = alt.Chart(values(records), title=title).encode(x=x)
    means = [
        {"x": row["x"], "strategy": row["strategy"], "who": who, "mean": row[column]}
        for row in records
        for column, who in _WHO.items()
    ]
    ticks = [
        {"left": row["x"] - 0.13, "right": row["x"] + 0.13, "y": row[bound]}
        for row in records
        for bound in ("bound_low", "bound_high")
    ]
    return alt.layer(
        base.mark_rule(strokeWidth=7, opacity=0.35).encode(y=y, y2=alt.Y2("q99:Q"), color=colour),
        alt.Chart(values(ticks))
        .mark_rule(color=ACCENT, strokeWidth=2)
        .encode(x=alt.X("left:Q"), x2=alt.X2("right:Q"), y=alt.Y("y:Q")),
        alt.Chart(values(means))
        .mark_point(filled=True, size=50, opacity=1)
        .encode(x=x, y=alt.Y("mean:Q"), color=colour, shape=shape),
    )

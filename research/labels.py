"""One label for life against a divided budget: a firm with 1 to 78 experiments.

Strategies that read the segment divide the firm's budget over its experiments. A label is paid once, so
every experiment learns on it without a bound. Both must beat one bandit for everybody, at risk 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import Case, Dynamic, Environment, Joint, Pooled, Unbounded
from deniable._validation import FloatArray
from deniable.charts.theme import themed, values
from deniable.expectations.labels import expected_on_labels
from deniable.strategies.kernel_rules import Simulated, as_served
from research.joint import SPREAD
from research.label_worlds import EXPERIMENTS, World, asos_worlds, firm, settings
from research.study import Claim, Context, Figure, StudyResult, judged

BUDGETS = (1.0, 2.0, 3.0)
NUMBERS = (1, 2, 5, 20, 78)
PARTS = (1, 2, 3, 4, 5, 10, 20, 39, 78)
"""A budget is divided equally over so many experiments; the others are one bandit for everybody."""

FIRMS = {"segments differ": 8, "segments alike": 4, "held out": 4}
NEAR = 0.05
"""How far a plan's figure may be off, as a share of what perfect information gains."""

DIVIDED: dict[str, type[Dynamic] | type[Joint]] = {"dynamic": Dynamic, "joint": Joint}
SPECIFIED = {"segments differ": {1.0: 0.561, 3.0: 0.725}}
"""What the specification measured with Thompson sampling on labels."""


def run(context: Context) -> StudyResult:
    """Compare a label with divided budgets and other rivals, by the number of experiments."""
    tables = {
        kind: _shares(context, kind, context.scale(firms, 1)) for kind, firms in FIRMS.items()
    }
    table = pl.concat(tables.values())
    checks = _checks(context)
    file = context.data_file("asos")
    real = None if file is None else _real(context, asos_worlds(file, context.seed))
    drawn = table.filter(pl.col("kind") == "segments differ")
    caption = (
        "Share of what perfect information gains over random arms, by number of experiments that a "
        "visitor meets and by the firm's budget; mean of all experiments, with 95% intervals. Dynamic "
        "and joint divide the budget as well as possible."
    )
    found = {"shares": table, "checks": checks}
    if real is not None:
        found["asos"] = real
    return StudyResult(
        headline=_headline(drawn),
        paragraphs=(
            "A firm has 78 experiments with 2 to 8 arms, 4 segments, 100,000 visitors each and a base "
            "rate of 5%. Arms differ by 10% of it for everybody and by 20% by segment (segments "
            "differ), or the other way round (segments alike). In the third kind of firm, everything "
            "is drawn: rates, lifts, sizes of segments, arms and visitors (held out).",
            "The rivals are one bandit for everybody and joint with a divided budget. A label keeps its "
            "gain for any number of experiments. It spends the promise at the first page, though: a "
            "divided budget reveals little in one experiment and the same in total, in the worst case.",
            "ASOS: not run, its file was not given (DENIABLE_DATA, or --data)."
            if real is None
            else "ASOS's experiments with 10,000 visitors or more, in three segments of equal size. The "
            "data has no segments: they are drawn from a prior, a segment's rate being the arm's rate "
            f"times 1 + {SPREAD:g} x a normal number. Nearly all differences are then by segment, which "
            "is as good as it gets for tailoring.",
        ),
        figures=(Figure("labels", caption, label_chart(drawn), drawn),),
        claims=(
            _never_behind(table),
            _as_specified(table),
            _most_of_the_gain(drawn),
            _ahead_of_division(table),
            _plans(checks),
        ),
        tables=found,
    )


# -- simulated gains -------------------------------------------------------------------------------


class Gains(NamedTuple):
    """Clicks gained over random arms, by experiment, and what perfect information gains."""

    by_name: dict[str, FloatArray]
    possible: FloatArray

    def share(self, gained: FloatArray) -> tuple[float, float]:
        """Return a gain as a share of the possible one, and its standard error."""
        share = float(gained.sum() / self.possible.sum())
        spread = np.std(gained - share * self.possible, ddof=1) / self.possible.mean()
        return share, float(spread / np.sqrt(self.possible.size))


def _policies(world: World, divided: bool, budgets: Sequence[float]) -> dict[str, Case]:
    page = world.environment
    cases: dict[str, tuple[Environment, Simulated]] = {
        "pooled": (page, Pooled()),
        "no privacy": (page, Unbounded()),
        **{f"label {g:g}": (world.on_labels(g), Unbounded()) for g in budgets},
    }
    if divided:
        parts = sorted({g / count for g in budgets for count in PARTS})
        cases |= {
            f"{name} {part:.9g}": (page, as_served(strategy(part)))
            for name, strategy in DIVIDED.items()
            for part in parts
        }
    return {name: Case(*case) for name, case in cases.items()}


def _gains(
    context: Context, firms: Sequence[Sequence[World]], divided: bool, budgets: Sequence[float]
) -> Gains:
    """Simulate every experiment once with every policy; finished firms are kept."""
    cases = [[_policies(world, divided, budgets) for world in worlds] for worlds in firms]
    batches = [[case for named in one for case in named.values()] for one in cases]
    lost = np.concatenate(
        [result.frame["regret"].to_numpy() for result in context.simulate_each(batches, 1)]
    )
    worlds = [world for one in firms for world in one]
    names = list(cases[0][0])
    possible = np.array([world.gain for world in worlds])
    gained = possible[:, None] - lost.reshape(len(worlds), len(names))
    return Gains(dict(zip(names, gained.T, strict=True)), possible)


def _shares(context: Context, kind: str, firms: int) -> pl.DataFrame:
    """Return the share of perfect information by strategy, budget and number of experiments."""
    divided = kind != "held out"
    size = context.scale(EXPERIMENTS, 12)
    worlds = [list(firm(kind, number))[:size] for number in range(firms)]
    gains = _gains(context, worlds, divided, BUDGETS)
    pooled = gains.by_name["pooled"]
    rows = []
    for budget in BUDGETS:
        same = {
            "pooled": pooled,
            "label": gains.by_name[f"label {budget:g}"],
            "no privacy": gains.by_name["no privacy"],
        }
        for number in NUMBERS:
            best = {name: _divided(gains, name, budget, number) for name in DIVIDED if divided}
            for strategy, gained in (same | best).items():
                share, error = gains.share(gained)
                ahead, ahead_error = gains.share(gained - pooled)
                rows.append(
                    {
                        "kind": kind,
                        "budget": budget,
                        "experiments": number,
                        "strategy": strategy,
                        "share": share,
                        "low": share - 1.96 * error,
                        "high": share + 1.96 * error,
                        "over_pooled": ahead,
                        "over_pooled_low": ahead - 1.96 * ahead_error,
                        "over_pooled_high": ahead + 1.96 * ahead_error,
                        "simulated": gained.size,
                    }
                )
    return pl.DataFrame(rows)


def _divided(gains: Gains, strategy: str, budget: float, number: int) -> FloatArray:
    """Return the gains under the best division over `number` experiments like these.

    How many experiments share the budget is chosen by the other half of the experiments.
    """
    pooled = gains.by_name["pooled"]
    # The paper's strategies show random arms where they have no budget.
    without = pooled if strategy == "joint" else np.zeros(pooled.size)
    ways = np.array(
        [
            (count * gains.by_name[f"{strategy} {budget / count:.9g}"] + (number - count) * without)
            / number
            for count in PARTS
            if count <= number
        ]
    )
    first = np.arange(pooled.size) % 2 == 0
    best = [ways[:, half].sum(axis=1).argmax() for half in (~first, first)]
    return np.asarray(np.where(first, ways[best[0]], ways[best[1]]))


def _checks(context: Context) -> pl.DataFrame:
    """Compare what a plan expects of labels with bandits on labels, at random settings."""
    size = context.scale(40, 4)
    rows = []
    rng = np.random.default_rng([context.seed, 39])
    chosen = settings(context.scale(20, 3))
    worlds = [
        [
            World(
                Environment(rates, visitors, name=f"check {number}.{place}"),
                prior.heterogeneity,
                prior,
            )
            for place, rates in enumerate(prior.draw(arms, segments, size, rng))
        ]
        for number, (prior, arms, segments, visitors, _) in enumerate(chosen)
    ]
    for (prior, arms, segments, visitors, budget), drawn in zip(chosen, worlds, strict=True):
        told = expected_on_labels(
            arms,
            visitors,
            segments,
            base_rate=prior.base_rate,
            lift=prior.lift,
            heterogeneity=prior.heterogeneity,
            budget=budget,
        )
        cases = [Case(world.on_labels(budget), Unbounded()) for world in drawn]
        possible = np.array([world.gain for world in drawn])
        lost = context.simulate(cases, 1).frame["regret"].to_numpy()
        share, error = Gains({}, possible).share(possible - lost)
        rows.append(
            {
                "arms": arms,
                "segments": segments,
                "visitors": visitors,
                "base_rate": prior.base_rate,
                "lift": prior.lift,
                "heterogeneity": prior.heterogeneity,
                "budget": budget,
                "labels": told.n_labels,
                "expected": float(told.share),
                "simulated": share,
                "error": error,
                "covered": bool(told.on_surface),
            }
        )
    return pl.DataFrame(rows)


def _real(context: Context, worlds: Sequence[World]) -> pl.DataFrame:
    """Return the shares of ASOS's experiments, all of which a visitor meets."""
    chosen = list(worlds)[: context.scale(len(worlds), 6)]
    gains = _gains(context, [[world] for world in chosen], True, BUDGETS)
    rows = []
    for budget in BUDGETS:
        for strategy, gained in {
            "pooled": gains.by_name["pooled"],
            "joint": _divided(gains, "joint", budget, EXPERIMENTS),
            "dynamic": _divided(gains, "dynamic", budget, EXPERIMENTS),
            "label": gains.by_name[f"label {budget:g}"],
            "no privacy": gains.by_name["no privacy"],
        }.items():
            share, error = gains.share(gained)
            rows.append(
                {
                    "budget": budget,
                    "strategy": strategy,
                    "share": share,
                    "low": share - 1.96 * error,
                    "high": share + 1.96 * error,
                    "clicks": float(gained.sum()),
                }
            )
    return pl.DataFrame(rows)


# -- what is claimed -------------------------------------------------------------------------------


def share_of(
    table: pl.DataFrame, strategy: str, budget: float, number: int, column: str = "share"
) -> float:
    """Return one number of a table of shares of one kind of firm."""
    chosen = table.filter(
        (pl.col("strategy") == strategy)
        & (pl.col("budget") == budget)
        & (pl.col("experiments") == number)
    )
    return float(chosen[column].item())


def _headline(table: pl.DataFrame) -> str:
    told = {
        name: share_of(table, name, 3.0, 78) for name in ("label", "joint", "dynamic", "pooled")
    }
    return (
        f"At a firm budget of 3 and 78 experiments, a label gains {told['label']:.0%} of what perfect "
        f"information gains over random arms, joint {told['joint']:.0%} with the budget divided as well "
        f"as possible, dynamic {told['dynamic']:.0%}, and one bandit for everybody {told['pooled']:.0%}."
    )


def _never_behind(table: pl.DataFrame) -> Claim:
    rows = table.filter((pl.col("strategy") == "label") & (pl.col("experiments") == 1))
    told = [
        f"{row['kind']}, {row['budget']:g}: {100 * row['over_pooled']:+.1f} "
        f"({100 * row['over_pooled_low']:+.1f} to {100 * row['over_pooled_high']:+.1f})"
        for row in rows.iter_rows(named=True)
    ]
    least = float(rows["over_pooled_low"].to_numpy().min())
    return Claim(
        "A label is never more than a point behind one bandit for everybody",
        "not studied",
        "points ahead: " + "; ".join(told),
        judged(least >= -0.01, partly=float(rows["over_pooled"].to_numpy().min()) >= -0.01),
        "Paired by experiment, 95% intervals.",
    )


def _as_specified(table: pl.DataFrame) -> Claim:
    told, reached = [], []
    for kind, goals in SPECIFIED.items():
        rows = table.filter(pl.col("kind") == kind)
        for budget, goal in goals.items():
            share = share_of(rows, "label", budget, 1)
            high = share_of(rows, "label", budget, 1, "high")
            told.append(f"{budget:g}: {share:.3f} (specified {goal:g})")
            reached.append((share >= goal, high >= goal))
    return Claim(
        "The learner gains on labels what Thompson sampling gained",
        "not studied",
        "; ".join(told),
        judged(all(sure for sure, _ in reached), partly=all(near for _, near in reached)),
        "Other random experiments of the same kind; in part: within the interval.",
    )


def _most_of_the_gain(table: pl.DataFrame) -> Claim:
    label, free = (share_of(table, name, 3.0, 1) for name in ("label", "no privacy"))
    return Claim(
        "At budget 3 a label gains 90% of what is gained without privacy",
        "not studied",
        f"{label:.3f} of {free:.3f}: {label / free:.0%}",
        judged(label >= 0.9 * free, partly=label >= 0.85 * free),
        "Both with the same learner, on labels and on segments.",
    )


def _ahead_of_division(table: pl.DataFrame) -> Claim:
    told, ahead = [], []
    for kind in ("segments differ", "segments alike"):
        rows = table.filter(pl.col("kind") == kind)
        for budget in BUDGETS:
            lead = {
                n: share_of(rows, "label", budget, n) - share_of(rows, "joint", budget, n)
                for n in NUMBERS
            }
            told.append(
                f"{kind}, {budget:g}: "
                + ", ".join(f"{100 * v:+.1f} at {n}" for n, v in lead.items())
            )
            ahead.append(lead[78] > 0)
    return Claim(
        "With 78 experiments a label gains more than joint with a divided budget",
        "not studied",
        "points ahead: " + "; ".join(told),
        judged(all(ahead), partly=any(ahead)),
        "The division is the best for experiments like these, chosen by the other half of them.",
    )


def _plans(checks: pl.DataFrame) -> Claim:
    off = (checks["expected"] - checks["simulated"]).abs().to_numpy()
    noise = checks["error"].to_numpy()
    covered = checks["covered"].to_numpy()
    worst = int(off.argmax())
    return Claim(
        f"What a plan expects of a label is right within {NEAR:.0%} of the possible gain",
        "not studied",
        f"mean {100 * off.mean():.1f} points off, at most {100 * off[worst]:.1f} (noise there "
        f"{100 * noise[worst]:.1f}) at {off.size} random settings; the surface covers "
        f"{int(covered.sum())}",
        judged(bool((off <= NEAR + 2 * noise).all()), partly=float(np.median(off)) <= NEAR),
        "Against bandits on labels, simulated at random experiments of the setting's prior.",
    )


SERIES: dict[str, tuple[str, list[int]]] = {
    "no privacy": ("#555555", [2, 2]),
    "label": ("#009E73", [1, 0]),
    "joint": ("#882255", [1, 0]),
    "pooled": ("#E69F00", [4, 2]),
    "dynamic": ("#0072B2", [1, 0]),
}
"""Colour and dash of each series, best first."""

_NAMES = {
    "no privacy": "no privacy",
    "label": "one label",
    "joint": "joint, budget divided",
    "pooled": "one bandit for everybody",
    "dynamic": "dynamic, budget divided",
}


def label_chart(table: pl.DataFrame) -> ChartType:
    """Chart one panel per budget: share of perfect information by number of experiments.

    Args:
        table: columns strategy, budget, experiments, share, low, high.
    """
    budgets = [budget for budget in BUDGETS if budget != 2.0]
    return themed(alt.hconcat(*(_panel(table, budget) for budget in budgets)))


def _panel(table: pl.DataFrame, budget: float) -> ChartType:
    rows = table.filter(pl.col("budget") == budget).with_columns(
        pl.col("strategy").replace_strict(_NAMES)
    )
    names = [_NAMES[name] for name in SERIES]
    x = alt.X(
        "experiments:Q",
        title="experiments that a visitor meets",
        scale=alt.Scale(type="log", domain=[1, EXPERIMENTS], nice=False),
        axis=alt.Axis(values=list(NUMBERS), grid=False),
    )
    y = alt.Y(
        "share:Q",
        title="share of perfect information",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, 1]),
    )
    colour = alt.Color(
        "strategy:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=[colour for colour, _ in SERIES.values()]),
    )
    dash = alt.StrokeDash(
        "strategy:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=[dash for _, dash in SERIES.values()]),
        legend=alt.Legend(symbolType="stroke"),
    )
    base = alt.Chart(
        values(rows.to_dicts()), title=f"Firm budget {budget:g}", width=290, height=230
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(
            x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
        ),
    )

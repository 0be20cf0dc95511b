"""Segments that really differ: the cost and gain of learning for each segment."""

from __future__ import annotations

from functools import partial

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import Case, Constant, Dynamic, Environment
from deniable.charts.theme import Records, themed, values
from research.study import Claim, Context, Figure, StudyResult, judged

SEGMENTS = (1, 2, 5, 20)
VISITORS = (100_000, 1_000_000)
N_ARMS, USUAL, LIKED = 4, 0.05, 0.065
BUDGET = 3.0
POLICIES = (Constant(BUDGET), Dynamic(BUDGET))


def run(context: Context) -> StudyResult:
    """Compare learning by segment with pooling, where segments differ and where they do not."""
    table = _losses(context, context.scale(300, 20))
    caption = (
        "Clicks lost against perfect information, for each 1,000 visitors, by number of segments. "
        f"Four arms, budget {BUDGET:g}, means with 95% intervals."
    )
    return StudyResult(
        headline=_headline(table),
        paragraphs=(
            "Every segment likes one of four arms better: 6.5% instead of 5% of its visitors click. On "
            "the left each segment likes the next arm; on the right all like the same. Learning by "
            "segment divides the visitors, so each segment learns more slowly; pooled learning is as "
            "fast as ever but shows everyone the same arm.",
            "Where segments differ, pooling loses most of what can be gained and more visitors do not "
            "help. Where they do not, learning by segment costs visitors for nothing; the cost grows "
            "with the number of segments and fades with the number of visitors.",
        ),
        figures=(Figure("segments", caption, segment_losses(table), table),),
        claims=(_gain(table), _cost(table), _order(table)),
    )


def liked_arm_rates(
    n_segments: int, *, differ: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return click rates of shape (segments, arms), with one liked arm per segment.

    >>> liked_arm_rates(2, differ=True)[:, :2].tolist()
    [[0.065, 0.05], [0.05, 0.065]]
    """
    rates = np.full((n_segments, N_ARMS), USUAL)
    liked = np.arange(n_segments) % N_ARMS if differ else np.zeros(n_segments, dtype=int)
    rates[np.arange(n_segments), liked] = LIKED
    return rates


def _losses(context: Context, repetitions: int) -> pl.DataFrame:
    """Return one row per world, number of segments, way of learning, size and policy."""
    keys, batches = [], []
    for visitors in VISITORS:
        for differ in (True, False):
            for count in SEGMENTS:
                rates = liked_arm_rates(count, differ=differ)
                for learning in ("by segment", "pooled"):
                    # Ignoring segments means seeing their mean: the same experiment with one
                    # segment.
                    seen = rates if learning == "by segment" else rates.mean(axis=0)
                    kind = "segments differ" if differ else "segments are alike"
                    name = f"{kind} {count} {learning} {visitors}"
                    world = Environment(seen, visitors, name=name)
                    # What is left to gain after showing everyone the best arm on average.
                    missed = (LIKED - world.best_reward) * 1000
                    keys.append((kind, count, learning, visitors, missed))
                    batches.append([Case(world, policy) for policy in POLICIES])
    rows = []
    for (kind, count, learning, visitors, missed), result in zip(
        keys, context.simulate_each(batches, repetitions), strict=True
    ):
        for row in result.summary("regret").iter_rows(named=True):
            scaled = {key: 1000 * row[key] / visitors + missed for key in ("mean", "low", "high")}
            rows.append(
                {
                    "world": kind,
                    "segments": count,
                    "learning": learning,
                    "visitors": visitors,
                    "policy": row["policy"].split("(")[0],
                    "budget": BUDGET,
                    "repetitions": row["repetitions"],
                    **{f"lost_{key}": value for key, value in scaled.items()},
                }
            )
    return pl.DataFrame(rows)


def _lost(
    table: pl.DataFrame, kind: str, learning: str, segments: int, visitors: int = VISITORS[1]
) -> float:
    chosen = table.filter(
        (pl.col("world") == kind)
        & (pl.col("learning") == learning)
        & (pl.col("segments") == segments)
        & (pl.col("visitors") == visitors)
        & (pl.col("policy") == "dynamic")
    )
    return float(chosen["lost_mean"].item())


def _headline(table: pl.DataFrame) -> str:
    own, pooled = (_lost(table, "segments differ", way, 5) for way in ("by segment", "pooled"))
    return (
        f"Where five segments differ, learning for each loses {own:.1f} clicks of 1,000 visitors, "
        f"pooled learning {pooled:.1f}."
    )


def _gain(table: pl.DataFrame) -> Claim:
    lost = partial(_lost, table, "segments differ")
    apart = {count: (lost("by segment", count), lost("pooled", count)) for count in SEGMENTS[1:]}
    return Claim(
        "Learning by segment is worth its cost where segments differ",
        "assumed",
        "; ".join(f"J={count}: {a:.1f} against {b:.1f} lost" for count, (a, b) in apart.items()),
        judged(all(a < b for a, b in apart.values()), partly=any(a < b for a, b in apart.values())),
        "For each 1,000 of a million visitors, dynamic strategy, by segment against pooled.",
    )


def _cost(table: pl.DataFrame) -> Claim:
    lost = partial(_lost, table, "segments are alike")
    small, large = (
        lost("by segment", 20, visitors) - lost("pooled", 20, visitors) for visitors in VISITORS
    )
    return Claim(
        "Learning by segment costs something where segments are alike",
        "not studied",
        f"J=20: {small:.2f} of 1,000 at 1e5 visitors, {large:.2f} at 1e6",
        judged(small > large > 0, partly=small > 0),
        "What 20 segments that learn apart lose more than one that learns from all.",
    )


def _order(table: pl.DataFrame) -> Claim:
    lost = partial(_lost, table, "segments are alike", "by segment")
    ratios = [lost(20, visitors) / lost(1, visitors) for visitors in VISITORS]
    bound = 20 ** (1 / 3)
    return Claim(
        "Regret grows with the number of segments at most like J^(1/3)",
        f"factor {bound:.2f} from J = 1 to 20",
        f"factors {ratios[0]:.2f} (1e5 visitors) and {ratios[1]:.2f} (1e6)",
        judged(all(ratio <= bound for ratio in ratios), partly=any(r <= bound for r in ratios)),
        "The order of a worst-case bound, met by one experiment where learning is not the whole loss.",
    )


COLOURS = {"by segment": "#0072B2", "pooled": "#E69F00"}


def segment_losses(table: pl.DataFrame) -> ChartType:
    """Chart one column per world and one row per number of visitors.

    Args:
        table: columns world, segments, learning, visitors, policy, lost_mean, lost_low, lost_high.
    """
    return themed(
        alt.vconcat(
            *(
                alt.hconcat(
                    *(
                        _panel(
                            rows.to_dicts(), f"{world[0].upper()}{world[1:]}, {visitors:,} visitors"
                        )
                        for (world,), rows in part.group_by("world", maintain_order=True)
                    )
                )
                for (visitors,), part in table.group_by("visitors", maintain_order=True)
            )
        ).resolve_scale(y="shared")
    )


def _panel(records: Records, title: str) -> ChartType:
    x = alt.X("segments:O", title="segments", axis=alt.Axis(labelAngle=0))
    y = alt.Y("lost_mean:Q", title="clicks lost per 1,000", scale=alt.Scale(domain=[0, 12]))
    colour = alt.Color(
        "learning:N",
        title="learning",
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
    )
    dash = alt.StrokeDash(
        "policy:N",
        title="strategy",
        scale=alt.Scale(domain=["constant", "dynamic"], range=[[4, 3], [1, 0]]),
    )
    shape = alt.Shape(
        "policy:N",
        title="strategy",
        scale=alt.Scale(domain=["constant", "dynamic"], range=["circle", "square"]),
    )
    base = alt.Chart(values(records), title=title, width=290, height=190)
    return alt.layer(
        base.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(
            x=x, y=alt.Y("lost_low:Q"), y2=alt.Y2("lost_high:Q"), color=colour
        ),
        base.mark_point(filled=True, size=48, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape
        ),
    )

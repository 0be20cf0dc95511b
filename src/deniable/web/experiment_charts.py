"""The charts of an experiment's page, what it does and what it has learned: each with words and data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deniable._formatting import duration, in_nats, nats, percent, short, whole
from deniable._types import Record
from deniable.analysis.history import HistoryPoint, regret_curves
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import ResultHealth
from deniable.analysis.result_history import ResultHistory
from deniable.analysis.result_records import Difference, Results
from deniable.analysis.segment_risk import SegmentRisk
from deniable.analysis.summary import ExperimentSummary
from deniable.charts.experiments import (
    MOST_ARMS,
    REGRET_SERIES,
    regret_against_bound,
    segment_risks,
    totals_over_time,
)
from deniable.charts.results import (
    delay_curve,
    lift_ends,
    lift_sequence,
    rates_with_bands,
    traffic_by_arm,
)
from deniable.charts.theme import specification

_UNITS = {"shows": "visitors", "clicks": "clicks"}


@dataclass(frozen=True)
class PageChart:
    """A chart with everything that the macro `chart` takes."""

    name: str
    title: str
    summary: str
    template: Record
    datasets: dict[str, list[Record]]
    table: Record

    @property
    def spec(self) -> Record:
        """The specification with its data."""
        return {**self.template, "datasets": self.datasets}


def live_charts(board: Leaderboard, summary: ExperimentSummary) -> list[PageChart]:
    """All charts that there is something to draw for."""
    if not summary.visitors:
        return []
    found = [
        _over_time(summary.history, "shows"),
        _over_time(summary.history, "clicks"),
        _regret(board, summary),
    ]
    if summary.segment_risks:
        found.append(_risks(summary.segment_risks))
    return found


def _over_time(history: Sequence[HistoryPoint], what: Literal["shows", "clicks"]) -> PageChart:
    samples = [(one.time, one.shows if what == "shows" else one.clicks) for one in history]
    last = samples[-1][1]
    # Totals are released with each table: samples in between, which repeat them, would draw stairs.
    moments = [
        sample
        for number, sample in enumerate(samples)
        if number in (0, len(samples) - 1) or sample[1] != samples[number - 1][1]
    ]
    drawn = [*last][:MOST_ARMS]
    most = max(last, key=lambda arm: last[arm])
    noun = "visitors were shown" if what == "shows" else "clicks came from"
    return PageChart(
        f"{what}-chart",
        "Shows over time" if what == "shows" else "Clicks over time",
        f"{whole(last[most])} of {whole(sum(last.values()))} {noun} “{most}”, "
        "more than any other variant.",
        specification(totals_over_time, tuple(drawn), _UNITS[what]),
        {
            "totals": [
                {"time": moment.isoformat(), "arm": arm, "total": totals[arm]}
                for moment, totals in moments
                for arm in drawn
            ]
        },
        {
            "columns": ["Time (UTC)", *last],
            "rows": [
                [f"{moment:%-d %b %H:%M:%S}", *(whole(n) for n in totals.values())]
                for moment, totals in moments[::-1]
            ],
        },
    )


def _regret(board: Leaderboard, summary: ExperimentSummary) -> PageChart:
    curves = regret_curves(board, summary.history)
    return PageChart(
        "regret-chart",
        "Clicks lost, against the bound",
        f"About {whole(summary.clicks_lost)} clicks lost so far to learning and to privacy; random "
        f"variants would have lost about {whole(summary.clicks_lost_at_random)}."
        f"{_bound_words(summary.regret_bound, summary.visitors)}",
        specification(regret_against_bound),
        {
            "regret": [
                {"visitors": n, "clicks": clicks, "series": series}
                for series, points in zip(REGRET_SERIES, curves, strict=True)
                for n, clicks in points
            ]
        },
        {
            "columns": ["Visitors", "Lost, estimated", "Bound"],
            "rows": [
                [whole(one.visitors), whole(one.clicks_lost), whole(one.regret_bound)]
                for one in summary.history[::-1]
                if one.visitors
            ],
        },
    )


def _bound_words(bound: float, visitors: int) -> str:
    return (
        "" if bound >= visitors else f" The theory’s bound on the average loss is {whole(bound)}."
    )


def _risks(risks: Sequence[SegmentRisk]) -> PageChart:
    cap = risks[0].cap
    at_cap = sum(risk.reached for risk in risks)
    return PageChart(
        "risks-chart",
        "Risk of the next visitor, against the cap",
        f"The dashed line is the cap of {in_nats(cap)}. "
        f"{at_cap} of {len(risks)} shown here have reached it; no visitor can be above it.",
        specification(segment_risks, len(risks), cap),
        {"risks": [{"segment": risk.segment, "risk": risk.risk} for risk in risks]},
        {
            "columns": ["Segment", "Risk (nats)", "Cap (nats)"],
            "rows": [[risk.segment, nats(risk.risk), nats(risk.cap)] for risk in risks],
        },
    )


# -- what it has learned ---------------------------------------------------------------------------


def result_charts(figures: ResultHistory, health: ResultHealth | None = None) -> list[PageChart]:
    """All charts that there is something reliable to draw for."""
    found = [_lift(figures, place) for place in figures.places]
    if any(one.estimate is not None for one in figures.results.rates):
        found.append(_rates(figures))
    if figures.traffic:
        found.append(_traffic(figures))
    if health is not None and health.delays:
        found.append(_delays(health))
    return found


def _lift(figures: ResultHistory, place: str | None) -> PageChart:
    results = figures.results
    records = [one for one in figures.lifts if one["segment"] == place]
    now = [one for one in _present(results, place) if one.low is not None]
    ahead = [f"“{one.arm}” {results.change(one)}" for one in now]
    said = "; ".join(ahead) or "too early for any variant"
    unit = "points" if results.cap == 1 else results.metric
    names = [one.segment for one in results.segments]
    return PageChart(
        "lift-all" if place is None else f"lift-{names.index(place)}",
        place or "All segments",
        f"Against “{results.default_arm}”, at every look: {said}.",
        specification(lift_sequence, figures.arms, results.default_arm, results.cap == 1),
        {
            "lifts": records,
            "ends": lift_ends([one for one in figures.lifts if one["segment"] in figures.places]),
        },
        {
            "columns": ["Visitors", "Variant", f"Lift ({unit})", "From", "To"],
            "rows": [
                [
                    whole(one["visitors"]),
                    one["arm"],
                    *(short(one[end], sign="+") for end in ("estimate", "low", "high")),
                ]
                for one in records[::-1]
            ],
        },
    )


def _present(results: Results, place: str | None) -> tuple[Difference, ...]:
    if place is None:
        return results.whole
    return next(one.differences for one in results.segments if one.segment == place)


def _rates(figures: ResultHistory) -> PageChart:
    results = figures.results
    known = [one for one in results.rates if one.estimate is not None]
    segments = list(dict.fromkeys(one.segment for one in known))
    records = [
        {
            "segment": one.segment,
            "arm": one.arm,
            "estimate": one.estimate,
            "low": one.low,
            "high": one.high,
        }
        for one in known
    ]
    best = max(known, key=lambda one: one.estimate or 0.0)
    return PageChart(
        "rates-chart",
        "Means by segment",
        f"The highest mean is that of “{best.arm}” for {best.segment}: {results.level(best)}, "
        f"at every look between {results.span(best).replace(' to ', ' and ')}.",
        specification(rates_with_bands, figures.arms, len(segments), results.cap == 1),
        {"rates": records},
        {
            "columns": ["Segment", "Variant", "Shown", "Mean", "Interval"],
            "rows": [
                [one.segment, one.arm, whole(one.shows), results.level(one), results.span(one)]
                for one in known
            ],
        },
    )


def _traffic(figures: ResultHistory) -> PageChart:
    place = {arm: number for number, arm in enumerate(figures.arms)}
    records: list[Record] = [{**one, "position": place[one["arm"]]} for one in figures.traffic]
    if len({one["visitors"] for one in records}) == 1:  # an area needs two ends
        records = [{**one, "visitors": 0} for one in records] + records
    last = records[-len(figures.arms) :]
    most = max(last, key=lambda one: one["share"])
    by_moment: dict[int, list[float]] = {}
    for one in records:
        by_moment.setdefault(one["visitors"], []).append(one["share"])
    return PageChart(
        "traffic-chart",
        "Traffic by variant",
        f"Of the latest visitors {percent(most['share'], 0)} were shown “{most['arm']}”.",
        specification(traffic_by_arm, figures.arms),
        {"traffic": records},
        {
            "columns": ["Visitors", *figures.arms],
            "rows": [
                [whole(moment), *(percent(share) for share in shares)]
                for moment, shares in [*by_moment.items()][::-1]
            ],
        },
    )


def _delays(health: ResultHealth) -> PageChart:
    half, most = health.delays[5][1], health.delays[9][1]
    long = max(seconds for _, seconds in health.delays) >= 2 * 3600
    return PageChart(
        "delay-chart",
        "Rewards by delay",
        f"Half of the rewards came within {duration(half)}, nine in ten within {duration(most)}.",
        specification(delay_curve, "hours" if long else "minutes"),
        {
            "delays": [
                {"minutes": seconds / 60, "hours": seconds / 3600, "share": share}
                for share, seconds in health.delays
            ]
        },
        {
            "columns": ["Share of rewards", "Within"],
            "rows": [[percent(share, 0), duration(seconds)] for share, seconds in health.delays],
        },
    )

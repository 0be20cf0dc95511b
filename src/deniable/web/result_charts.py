"""The charts of what an experiment has learned, each with its sentence and its data."""

from __future__ import annotations

from deniable._types import Record
from deniable.charts import results as drawings
from deniable.charts.kept import specification
from deniable.service.result_figures import ResultFigures
from deniable.service.result_health import ResultHealth
from deniable.service.result_records import Difference, Results
from deniable.web.live_charts import PageChart
from deniable.web.wording import duration, percent, whole


def charts(figures: ResultFigures, health: ResultHealth | None = None) -> list[PageChart]:
    """All charts that there is something reliable to draw for."""
    found = [_lift(figures, place) for place in figures.places]
    if any(one.estimate is not None for one in figures.results.rates):
        found.append(_rates(figures))
    if figures.traffic:
        found.append(_traffic(figures))
    if health is not None and health.delays:
        found.append(_delays(health))
    return found


def _lift(figures: ResultFigures, place: str | None) -> PageChart:
    results = figures.results
    records = [one for one in figures.lifts if one["segment"] == place]
    now = [one for one in _present(results, place) if one.low is not None]
    ahead = [f"“{one.arm}” {results.change(one)}" for one in now]
    said = "; ".join(ahead) or "too early for any arm"
    unit = "points" if results.cap == 1 else results.metric
    names = [one.segment for one in results.segments]
    return PageChart(
        "lift-all" if place is None else f"lift-{names.index(place)}",
        place or "All segments",
        f"Against “{results.default_arm}”, at every look: {said}.",
        specification(drawings.lift_sequence, figures.arms, results.default_arm, results.cap == 1),
        {"lifts": records},
        {
            "columns": ["Visitors", "Arm", f"Lift ({unit})", "From", "To"],
            "rows": [
                [
                    whole(one["visitors"]),
                    one["arm"],
                    *(f"{one[end]:+.3g}" for end in ("estimate", "low", "high")),
                ]
                for one in records[::-1]
            ],
        },
    )


def _present(results: Results, place: str | None) -> tuple[Difference, ...]:
    if place is None:
        return results.whole
    return next(one.differences for one in results.segments if one.segment == place)


def _rates(figures: ResultFigures) -> PageChart:
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
        specification(drawings.rates_with_bands, figures.arms, len(segments), results.cap == 1),
        {"rates": records},
        {
            "columns": ["Segment", "Arm", "Shown", "Mean", "Interval"],
            "rows": [
                [one.segment, one.arm, whole(one.shows), results.level(one), results.span(one)]
                for one in known
            ],
        },
    )


def _traffic(figures: ResultFigures) -> PageChart:
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
        "Traffic by arm",
        f"Of the latest visitors {percent(most['share'], 0)} were shown “{most['arm']}”.",
        specification(drawings.traffic_by_arm, figures.arms),
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
        specification(drawings.delay_curve, "hours" if long else "minutes"),
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


def prepare() -> None:
    """Make one chart of each kind, so that the first page finds most of the work done."""
    specification(drawings.lift_sequence, ("old", "new"), "old", True)
    specification(drawings.rates_with_bands, ("old", "new"), 2, True)
    specification(drawings.traffic_by_arm, ("old", "new"))

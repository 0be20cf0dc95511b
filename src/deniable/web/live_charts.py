"""The charts of an experiment's page, each with its sentence and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deniable._types import Record
from deniable.charts import experiments as figures
from deniable.charts.kept import specification
from deniable.storage.counts import Sample
from deniable.storage.records import Experiment
from deniable.web.risks import SegmentRisk, regret_bound
from deniable.web.standing import Standing
from deniable.web.wording import in_nats, nats, whole

CURVE_POINTS = 40
_UNITS = {"shows": "visitors", "clicks": "successes"}


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


def charts(
    *,
    experiment: Experiment,
    standing: Standing,
    samples: Sequence[Sample],
    risks: Sequence[tuple[SegmentRisk, str]],
    bound: float,
) -> list[PageChart]:
    """All charts that there is something to draw for."""
    if not standing.visitors:
        return []
    found = [
        _over_time(experiment, samples, "shows"),
        _over_time(experiment, samples, "clicks"),
        _regret(experiment, standing, samples, bound),
    ]
    if risks:
        found.append(_risks(experiment, [risk for risk, _ in risks]))
    return found


def _over_time(experiment: Experiment, samples: Sequence[Sample], what: str) -> PageChart:
    arms = [arm.key for arm in experiment.arms]
    moments = [(sample.taken_at, getattr(sample, what)) for sample in samples]
    if experiment.started_at:
        moments.insert(0, (experiment.started_at, (0,) * len(arms)))
    if experiment.stopped_at:
        moments = [(min(moment, experiment.stopped_at), totals) for moment, totals in moments]
    drawn = arms[: figures.MOST_ARMS]
    records = [
        {"time": moment.isoformat(), "arm": arm, "total": totals[i]}
        for moment, totals in moments
        for i, arm in enumerate(drawn)
    ]
    last = moments[-1][1]
    most = max(range(len(arms)), key=lambda i: last[i])
    noun = "visitors were shown" if what == "shows" else "successes came from"
    return PageChart(
        f"{what}-chart",
        "Shows over time" if what == "shows" else "Successes over time",
        f"{whole(last[most])} of {whole(sum(last))} {noun} “{arms[most]}”, more than any other arm.",
        specification(figures.totals_over_time, tuple(drawn), _UNITS[what]),
        {"totals": records},
        {
            "columns": ["Time (UTC)", *arms],
            "rows": [
                [f"{moment:%-d %b %H:%M:%S}", *(whole(n) for n in totals)]
                for moment, totals in moments[::-1]
            ],
        },
    )


def _regret(
    experiment: Experiment, standing: Standing, samples: Sequence[Sample], bound: float
) -> PageChart:
    visitors = standing.visitors
    seen = [(sum(sample.shows), sample.lost) for sample in samples]
    # Round numbers, so that most of the curve stays the same as visitors come.
    rounded = {int(float(f"{visitors * i / CURVE_POINTS:.2g}")) for i in range(CURVE_POINTS)}
    steps = sorted({n for n in rounded if 0 < n < visitors} | {1, visitors})
    bounds = [(n, regret_bound(experiment, n)) for n in steps]
    at_random = [(n, standing.lost_at_random * n / visitors) for n in (0, *steps)]
    records = [
        {"visitors": n, "clicks": clicks, "series": series}
        for series, points in zip(
            figures.REGRET_SERIES, ([(0, 0.0), *seen], at_random, bounds), strict=True
        )
        for n, clicks in points
    ]
    return PageChart(
        "regret-chart",
        "Clicks lost, against the bound",
        f"About {whole(standing.lost)} clicks lost so far to learning and to privacy; random arms "
        f"would have lost about {whole(standing.lost_at_random)}. {_bound_words(bound, visitors)}",
        specification(figures.regret_against_bound),
        {"regret": records},
        {
            "columns": ["Visitors", "Lost, estimated", "Bound"],
            "rows": [
                [whole(n), whole(lost), whole(regret_bound(experiment, n))]
                for n, lost in seen[::-1]
            ],
        },
    )


def _bound_words(bound: float, visitors: int) -> str:
    if bound >= visitors:
        return "The bound says nothing yet: it is still above one click for each visitor."
    return f"The theory’s bound on the average loss is {whole(bound)}."


def _risks(experiment: Experiment, risks: Sequence[SegmentRisk]) -> PageChart:
    names = [risk.segment for risk in risks]
    at_cap = sum(risk.bound for risk in risks)
    return PageChart(
        "risks-chart",
        "Risk of the next visitor, against the cap",
        f"The dashed line is the cap of {in_nats(experiment.budget)}. "
        f"{at_cap} of {len(risks)} shown here have reached it; no visitor can be above it.",
        specification(figures.segment_risks, len(risks), experiment.budget),
        {
            "risks": [
                {"segment": name, "risk": risk.risk}
                for name, risk in zip(names, risks, strict=True)
            ]
        },
        {
            "columns": ["Segment", "Risk (nats)", "Cap (nats)"],
            "rows": [
                [name, nats(risk.risk), nats(risk.cap)]
                for name, risk in zip(names, risks, strict=True)
            ],
        },
    )


def prepare() -> None:
    """Make one chart of each kind, so that the first page finds most of the work done."""
    specification(figures.totals_over_time, ("old", "new"), _UNITS["shows"])
    specification(figures.regret_against_bound)
    specification(figures.segment_risks, 2, 1.0)

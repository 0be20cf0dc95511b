"""The planner page: a plan, its charts and words, while its setting changes.

The page shows what `plan` says and computes nothing of its own. What a moving slider changes is sent as
data and words; the charts stay, and are filled again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO, StringIO
from typing import Any, Literal
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable._numbers import number, numbers, whole
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.planning import report
from deniable.planning.arm_plan import ArmPlan, plan_arms
from deniable.planning.plan import Plan, plan
from deniable.privacy.belief import highest_belief
from deniable.service.drafts import MAX_ARMS, MAX_BUDGET, MAX_SEGMENTS, NewArm
from deniable.service.http.guard import service_of
from deniable.service.http.problems import Problem
from deniable.web import answers
from deniable.web.access import DraftSubmission, Form, Reader
from deniable.web.fields import lines

router = APIRouter(prefix="/planner")

SLIDER_TOP = 8.0
LARGEST_VISITORS = 10**12
LEAST_BELIEF, MOST_BELIEF = 0.1, 99.9
"""In percent."""

_LABELS = {
    "arms": "Arms",
    "visitors": "Visitors",
    "segments": "Segments",
    "prior": "Belief before",
    "budget": "Privacy budget",
    "arm_budgets": "A budget for each arm",
    "max_belief": "A tracker may believe at most",
    "trace_budget": "Trace budget",
}


@dataclass(frozen=True)
class Setting:
    """What a person chose on the page; its query string reproduces the view.

    Attributes:
        arms: how many.
        visitors: how many are planned for.
        segments: how many.
        prior: the tracker's belief before, in percent.
        budget: in nats; None takes the recommended one.
        arm_budgets: one for each arm, or empty.
        max_belief: the most that a tracker may come to believe, in percent, or None.
        trace_budget: in nats, or None.
    """

    arms: int = 2
    visitors: int = 100_000
    segments: int = 2
    prior: float = 20.0
    budget: float | None = None
    arm_budgets: tuple[float, ...] = ()
    max_belief: float | None = None
    trace_budget: float | None = None

    def query(self) -> str:
        """The setting as a query string."""
        pairs: dict[str, Any] = {
            "arms": self.arms,
            "visitors": self.visitors,
            "segments": self.segments,
            "prior": f"{self.prior:g}",
        }
        if self.budget is not None:
            pairs["budget"] = f"{self.budget:.6g}"
        if self.arm_budgets:
            pairs["arm_budgets"] = ",".join(f"{budget:g}" for budget in self.arm_budgets)
        if self.max_belief is not None:
            pairs["max_belief"] = f"{self.max_belief:.6g}"
        if self.trace_budget is not None:
            pairs["trace_budget"] = f"{self.trace_budget:.6g}"
        return urlencode(pairs)

    def plan(self) -> Plan:
        """The plan at this setting; with budgets by arm, at the largest of them."""
        return plan(
            n_arms=self.arms,
            horizon=self.visitors,
            n_segments=self.segments,
            prior=self.prior / 100,
            budget=max(self.arm_budgets) if self.arm_budgets else self.budget,
            max_belief=None if self.max_belief is None else self.max_belief / 100,
            trace_budget=self.trace_budget,
        )

    def arm_plan(self) -> ArmPlan | None:
        """The plan of budgets by arm, where there are any."""
        if not self.arm_budgets:
            return None
        return plan_arms(
            arm_budgets=self.arm_budgets,
            horizon=self.visitors,
            n_segments=self.segments,
            prior=self.prior / 100,
        )


def read_setting(given: Mapping[str, str]) -> Setting:
    """The setting of a query string or form; InvalidArgumentError names the field that is wrong."""
    usual = Setting()
    texts = {name: given.get(name, "").strip() for name in _LABELS}
    arms = whole("arms", texts["arms"] or f"{usual.arms}", 2, MAX_ARMS)
    by_arm = texts["arm_budgets"]
    budgets = tuple(numbers("arm_budgets", by_arm, 0.001, MAX_BUDGET)) if by_arm else ()
    if budgets and len(budgets) != arms:
        raise InvalidArgumentError("arm_budgets", by_arm[:40], f"{arms} budgets, one for each arm")
    prior = number("prior", texts["prior"] or f"{usual.prior}", LEAST_BELIEF, MOST_BELIEF)
    budget, belief, trace = texts["budget"], texts["max_belief"], texts["trace_budget"]
    visitors = texts["visitors"] or f"{usual.visitors}"
    segments = texts["segments"] or f"{usual.segments}"
    return Setting(
        arms=arms,
        visitors=whole("visitors", visitors, 10, LARGEST_VISITORS),
        segments=whole("segments", segments, 1, MAX_SEGMENTS),
        prior=prior,
        budget=number("budget", budget, 0, MAX_BUDGET) if budget else None,
        arm_budgets=budgets,
        max_belief=number("max_belief", belief, prior, MOST_BELIEF) if belief else None,
        trace_budget=number("trace_budget", trace, 0.001, MAX_BUDGET) if trace else None,
    )


def view(setting: Setting) -> dict[str, Any]:
    """Everything the page shows: the plan, its words, and the data of its charts."""
    from deniable.charts.planning import plan_data

    planned, by_arm = setting.plan(), setting.arm_plan()
    datasets = plan_data(planned)
    allowed = setting.max_belief
    reached = planned.trace.highest_belief if planned.trace else planned.highest_belief
    return {
        "plan": planned,
        "by_arm": by_arm,
        "budget": planned.budget,
        "recommended": planned.recommendation.budget,
        "reason": report.recommendation_words(planned),
        "segments": report.segments_words(planned),
        "by_arm_cost": report.arm_cost_words(by_arm) if by_arm else "",
        "trace_words": report.trace_words(planned),
        "reached": reached,
        "over_limit": allowed is not None and 100 * reached > allowed + 1e-9,
        "icons": _icons(planned),
        "datasets": datasets,
        "summaries": report.chart_summaries(planned),
        "tables": _tables(planned, datasets),
    }


@lru_cache(maxsize=4)
def specifications(strategies: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The charts as Vega-Lite, without data, for these strategies."""
    from deniable.charts.planning import PANELS

    return {name: panel.make().to_dict(validate=False) for name, panel in PANELS.items()}


@router.get("")
def planner(request: Request, viewer: Reader) -> Response:
    """The page; its query string is its state."""
    from deniable.charts.planning import PANELS

    wrong = ""
    try:
        setting = read_setting(request.query_params)
    except InvalidArgumentError as error:
        setting, wrong = Setting(), _told(error)
    shown = view(setting)
    drawn = specifications(tuple(shown["plan"].strategies))
    charts = {
        name: {
            "title": panel.title,
            "spec": {
                **drawn[name],
                "datasets": {part: shown["datasets"][part] for part in panel.datasets},
            },
        }
        for name, panel in PANELS.items()
    }
    return answers.show(
        request,
        "planner.html",
        viewer,
        status=422 if wrong else 200,
        setting=setting,
        wrong=wrong,
        charts=charts,
        top=SLIDER_TOP,
        **shown,
    )


@router.get("/data")
def data(request: Request, viewer: Reader) -> Response:
    """What changes while the slider moves."""
    from deniable.charts.planning import PANELS

    try:
        setting = read_setting(request.query_params)
    except InvalidArgumentError as error:
        return JSONResponse({"wrong": _told(error)}, 422, answers.HEADERS)
    shown = view(setting)
    parts = ("budget", "recommended", "icons", "datasets", "summaries", "tables")
    return JSONResponse(
        {
            "words": answers.rendered(
                "planner_words.html", setting=setting, viewer=viewer, **shown
            ),
            "query": setting.query(),
            "charts": {name: panel.datasets for name, panel in PANELS.items()},
            **{name: shown[name] for name in parts},
        },
        headers=answers.HEADERS,
    )


@router.get("/plan.{ending}")
def download(request: Request, viewer: Reader, ending: Literal["svg", "pdf", "toml"]) -> Response:
    """The plan as a file: a picture, or TOML for `deniable plan --from`."""
    setting = read_setting(request.query_params)
    if ending == "toml":
        body, kind = toml(setting).encode(), "application/toml"
    else:
        body = _picture(setting, ending)
        kind = "image/svg+xml" if ending == "svg" else "application/pdf"
    headers = {**answers.HEADERS, "Content-Disposition": f'attachment; filename="plan.{ending}"'}
    return Response(body, headers=headers, media_type=kind)


@router.post("/experiments")
def create(request: Request, form: DraftSubmission) -> Response:
    """A draft from the plan."""
    setting = read_setting({name: form.text(name) for name in _LABELS})
    planned = setting.plan()
    chosen = form.text("strategy")
    strategy: Any = chosen if chosen in planned.strategies else planned.recommendation.strategy
    try:
        created = service_of(request).experiments.create(
            form.text("key"),
            arms=_arms(form, setting),
            segments=_names("segment_names", form, setting.segments),
            budget=None if setting.arm_budgets else planned.budget,
            trace_budget=setting.trace_budget,
            strategy=strategy,
            across_time=bool(form.text("across_time")),
            planned_visitors=setting.visitors,
            layer=form.text("group") or None,
        )
    except DeniableError as error:
        told = f"No experiment was created: {error}."
        return answers.redirect(request, f"/planner?{setting.query()}#create", told, "bad")
    message = f"{created.key} is a draft: nothing is committed until you start it."
    return answers.redirect(request, f"/experiments/{created.key}", message)


def toml(setting: Setting) -> str:
    """The setting for the command line.

    >>> print(toml(Setting(budget=1.5)))
    # deniable plan --from plan.toml
    arms = 2
    visitors = 100000
    segments = 2
    prior = 0.2
    budget = 1.5
    <BLANKLINE>
    """
    text = [
        "# deniable plan --from plan.toml",
        f"arms = {setting.arms}",
        f"visitors = {setting.visitors}",
        f"segments = {setting.segments}",
        f"prior = {setting.prior / 100:.10g}",
    ]
    if setting.arm_budgets:
        text.append(f"arm_budgets = [{', '.join(f'{b:g}' for b in setting.arm_budgets)}]")
        return "\n".join(text) + "\n"  # the command line takes no other limit beside them
    if setting.budget is not None:
        text.append(f"budget = {setting.budget:.10g}")
    if setting.max_belief is not None:
        text.append(f"max_belief = {setting.max_belief / 100:.10g}")
    if setting.trace_budget is not None:
        text.append(f"trace_budget = {setting.trace_budget:.10g}")
    return "\n".join(text) + "\n"


def _picture(setting: Setting, ending: str) -> bytes:
    chart: Any = (setting.arm_plan() or setting.plan()).chart()
    file: StringIO | BytesIO = StringIO() if ending == "svg" else BytesIO()
    chart.save(file, format=ending)
    found = file.getvalue()
    return found.encode() if isinstance(found, str) else found


def _arms(form: Form, setting: Setting) -> list[NewArm]:
    names = _names("arm_names", form, setting.arms)
    budgets = setting.arm_budgets or (None,) * setting.arms
    return [NewArm(name, budget=budget) for name, budget in zip(names, budgets, strict=True)]


def _names(field: str, form: Form, expected: int) -> list[str]:
    """Names, one on each line; as many as were planned for."""
    names = lines(form.text(field))
    if len(names) != expected:
        what = field.replace("_names", "s")
        raise Problem(
            422, "invalid-argument", f"{what}: the plan has {expected}, {len(names)} are named"
        )
    return names


def _told(error: InvalidArgumentError) -> str:
    return f"{_LABELS.get(error.argument, error.argument)}: expected {error.allowed}."


def _icons(planned: Plan) -> dict[str, int]:
    """Whole people out of 100; what a tracker might learn is rounded up, chance down."""
    before = round(100 * planned.prior)
    random = planned.strategies[planned.recommendation.strategy].drawn_by_lot
    return {
        "before": before,
        "after": max(before, min(100, int(np.ceil(100 * planned.highest_belief - 1e-9)))),
        "random": int(np.floor(100 * random + 1e-9)),
    }


def _tables(planned: Plan, data: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """A few rows of each chart: the numbers behind the picture."""
    priors = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    beliefs = [[f"{p:.0%}", f"{float(highest_belief(p, planned.budget)):.1%}"] for p in priors]
    names = list(planned.strategies)
    return {
        "belief": {"columns": ["belief before", "at most after"], "rows": beliefs},
        "schedule": _wide("visitor", data["schedule"], "clock", "share", ".1%", names),
        "regret": _wide(
            "budget", data["regret"], "budget", "regret", ",.0f", names, planned.horizon
        ),
        "parts": {
            "columns": ["strategy", "part", "clicks"],
            "rows": [
                [
                    row["strategy"],
                    row["part"],
                    f"{row['clicks']:,.0f}"
                    if planned.strategies[row["strategy"]].informative
                    else "says nothing",
                ]
                for row in data["parts"]
            ],
        },
        "elasticity": _wide("budget", data["elasticity"], "budget", "elasticity", ".3f", names),
    }


def _wide(
    label: str,
    records: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    form: str,
    names: Sequence[str],
    says_nothing_from: float = np.inf,
) -> dict[str, Any]:
    """A row for each x, a column for each strategy, about a dozen rows."""

    def told(value: float | None) -> str:
        silent = value is None or value >= says_nothing_from
        return "says nothing" if silent else f"{value:{form}}"

    by_name = {name: [one for one in records if one["strategy"] == name] for name in names}
    names = [name for name in names if by_name[name]]
    found = [by_name[name] for name in names]
    count = len(found[0])
    places = sorted({round(i) for i in np.linspace(0, count - 1, min(12, count))})
    rows = [[f"{found[0][i][x]:,.4g}", *(told(one[i][y]) for one in found)] for i in places]
    return {"columns": [label, *names], "rows": rows}

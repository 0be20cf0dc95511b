"""The planner page: a plan, its charts and words, while its setting changes.

The page shows what `plan` says and computes nothing of its own. What a moving slider changes is sent as
data and words; the charts stay, and are filled again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO, StringIO
from typing import Literal
from urllib.parse import parse_qsl

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable._formatting import percent, short, whole
from deniable._types import JsonObject, Record
from deniable.charts.planning import PANELS, plan_data
from deniable.charts.theme import specification
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.inference.words import forecast_words
from deniable.planning import report
from deniable.planning.arm_plan import arm_cost_words
from deniable.planning.plan import Plan
from deniable.privacy.belief import highest_belief
from deniable.service.drafts import NewArm
from deniable.service.http.auth import service_of
from deniable.web import responses
from deniable.web.access import DraftSubmission, Form, Reader, Viewer, lines
from deniable.web.planner_setting import LABELS, Setting, read_setting, told, toml

router = APIRouter(prefix="/planner", include_in_schema=False)

SLIDER_TOP = 8.0

_TYPED = ("key", "arm_names", "segment_names", "layer", "strategy")
"""What a draft needs beside the plan; kept where it is refused."""

_FIELD_OF = {
    **{name: name for name in _TYPED},
    "arms": "arm_names",
    "segments": "segment_names",
}
"""The field of an argument that was refused."""


def view(setting: Setting) -> JsonObject:
    """Everything the page shows: the plan, its words, and the data of its charts."""
    planned, by_arm = setting.plan(), setting.arm_plan()
    datasets = plan_data(planned)
    allowed = setting.max_belief
    reached = planned.highest_belief
    return {
        "plan": planned,
        "by_arm": by_arm,
        "budget": planned.budget,
        "recommended": planned.recommendation.budget,
        "reasons": report.recommendation_reasons(planned),
        "headline": report.headline(planned),
        "answer": "" if planned.ladder is None else planned.ladder.sentence,
        "ladder_note": report.ladder_note(planned),
        "expected": report.expected_words(planned),
        "known": report.known_words(planned),
        "power": report.power_words(planned),
        "decisions": decisions(planned),
        "segments": report.segments_words(planned),
        "bounds": report.bounds_words(planned),
        "example": report.lift_words(planned),
        "copies": _copies(setting, planned),
        "by_arm_cost": arm_cost_words(by_arm) if by_arm else "",
        "reached": reached,
        "at_one": float(highest_belief(planned.prior, 1)),
        "over_limit": allowed is not None and 100 * reached > allowed + 1e-9,
        "icons": _icons(planned),
        "datasets": datasets,
        "summaries": report.chart_summaries(planned),
        "tables": _tables(planned, datasets),
    }


def _copies(setting: Setting, planned: Plan) -> dict[str, str]:
    """The setting as hidden fields of the form that creates a draft: what is looked at, no more."""
    given = dict(parse_qsl(setting.query()))
    return {name: given.get(name, "") for name in LABELS} | {"budget": f"{planned.budget:.12g}"}


def decisions(planned: Plan) -> list[dict[str, str]]:
    """When the experiment can be decided and what it can show, as the page's figures."""
    if planned.expected is None:
        return []
    power = planned.expected.power
    gap = f"if two variants differ by {report.points_words(power.difference)}"
    places = {"everybody": power.everybody, "each segment": power.segment}
    known = {where: one for where, one in places.items() if one is not None}
    waits = [
        {"title": f"Decided for {where}", "value": forecast_words(one.forecast), "note": gap}
        for where, one in known.items()
    ]
    return waits + [
        {
            "title": f"Smallest lift seen for {where}",
            "value": "none" if one.detectable is None else report.points_words(one.detectable),
            "note": f"after {planned.horizon:,} visitors",
        }
        for where, one in known.items()
    ]


@router.get("")
def planner(request: Request, viewer: Reader) -> Response:
    """The page; its query string is its state."""
    try:
        return _page(request, viewer, read_setting(request.query_params))
    except InvalidArgumentError as error:
        return _page(request, viewer, read_setting({}), wrong=told(error))


def _page(
    request: Request,
    viewer: Viewer,
    setting: Setting,
    *,
    wrong: str = "",
    refused: Mapping[str, str] | None = None,
    typed: Mapping[str, str] | None = None,
) -> Response:
    """The page at a setting.

    Args:
        request: what is answered.
        viewer: who is signed in.
        setting: of the plan.
        wrong: what is wrong with the setting that was asked for.
        refused: why no draft was created, by field.
        typed: the fields of that draft.
    """
    shown = view(setting)
    charts = {
        name: {
            "title": panel.title,
            "spec": {
                **specification(panel.make),
                "datasets": {part: shown["datasets"][part] for part in panel.datasets},
            },
        }
        for name, panel in PANELS.items()
    }
    return responses.show(
        request,
        "planner.html",
        viewer,
        status=422 if wrong or refused else 200,
        setting=setting,
        wrong=wrong,
        refused=refused or {},
        typed=dict.fromkeys(_TYPED, "") if typed is None else typed,
        charts=charts,
        top=SLIDER_TOP,
        **shown,
    )


@router.get("/data")
def data(request: Request, viewer: Reader) -> Response:
    """What changes while the slider moves."""
    try:
        setting = read_setting(request.query_params)
    except InvalidArgumentError as error:
        return JSONResponse({"wrong": told(error)}, 422, responses.HEADERS)
    shown = view(setting)
    parts = (
        "answer",
        "bounds",
        "budget",
        "copies",
        "datasets",
        "example",
        "icons",
        "recommended",
        "summaries",
        "tables",
    )
    return JSONResponse(
        {
            "words": responses.rendered(
                "planner_words.html", setting=setting, viewer=viewer, **shown
            ),
            "query": setting.query(),
            "charts": {name: panel.datasets for name, panel in PANELS.items()},
            **{name: shown[name] for name in parts},
        },
        headers=responses.HEADERS,
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
    headers = {**responses.HEADERS, "Content-Disposition": f'attachment; filename="plan.{ending}"'}
    return Response(body, headers=headers, media_type=kind)


@router.post("/experiments")
def create(request: Request, form: DraftSubmission) -> Response:
    """A draft from the plan; where it is refused, the page with everything that was typed."""
    given = {name: form.text(name) for name in LABELS if name in form.data}
    typed = {name: form.text(name) for name in _TYPED}
    try:
        setting = read_setting(given)
    except InvalidArgumentError as error:
        wrong = {"form": told(error)}
        return _page(request, form.viewer, read_setting({}), refused=wrong, typed=typed)
    planned = setting.plan()
    chosen = typed["strategy"]
    strategy = chosen if chosen in planned.strategies else planned.recommendation.strategy
    try:
        created = service_of(request).experiments.create(
            typed["key"],
            arms=_arms(form, setting),
            segments=_names("segment_names", form, setting.segments),
            budget=None if setting.arm_budgets else planned.budget,
            strategy=strategy,
            planned_visitors=setting.visitors,
            layer=typed["layer"] or None,
        )
    except DeniableError as error:
        wrong = _beside(error)
        return _page(request, form.viewer, setting, refused=wrong, typed=typed)
    message = f"{created.key} is a draft: nothing is committed until you start it."
    return responses.redirect(request, f"/experiments/{created.key}", message)


def _picture(setting: Setting, ending: str) -> bytes:
    chart = (setting.arm_plan() or setting.plan()).chart()
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
        allowed = f"{expected} names, as in the plan: {len(names)} are given"
        raise InvalidArgumentError(field, len(names), allowed)
    return names


def _beside(error: DeniableError) -> dict[str, str]:
    """A refused draft, by field: a name in use, or an argument; those of the plan have no field here."""
    otherwise = "form" if isinstance(error, InvalidArgumentError) else "key"
    return responses.field_errors(error, _FIELD_OF, otherwise)


def _icons(planned: Plan) -> dict[str, int]:
    """Whole people out of 100; what a tracker might learn is rounded up, chance down."""
    before = round(100 * planned.prior)
    random = planned.strategies[planned.recommendation.strategy].drawn_by_lot
    return {
        "before": before,
        "after": max(before, min(100, int(np.ceil(100 * planned.highest_belief - 1e-9)))),
        "random": int(np.floor(100 * random + 1e-9)),
    }


def _tables(planned: Plan, data: Mapping[str, Sequence[Record]]) -> JsonObject:
    """A few rows of each chart: the numbers behind the picture."""
    priors = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    beliefs = [[f"{p:.0%}", f"{float(highest_belief(p, planned.budget)):.1%}"] for p in priors]
    names = list(planned.strategies)
    return {
        "ladder": {"columns": list(report.LADDER_HEADER), "rows": report.ladder_rows(planned)},
        "expected": _wide(
            "budget", data["expected"], "budget", "lost", short, _known(data["expected"], names)
        ),
        "belief": {"columns": ["belief before", "at most after"], "rows": beliefs},
        "schedule": _wide("visitor", data["schedule"], "clock", "share", percent, names),
        "regret": _wide(
            "budget", data["regret"], "budget", "regret", whole, names, planned.horizon
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
        "elasticity": _wide(
            "budget", data["elasticity"], "budget", "elasticity", "{:.3f}".format, names
        ),
    }


def _known(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """The strategies that are in the data."""
    there = {record["strategy"] for record in records}
    return [name for name in names if name in there]


def _wide(
    label: str,
    records: Sequence[Record],
    x: str,
    y: str,
    form: Callable[[float], str],
    names: Sequence[str],
    says_nothing_from: float = np.inf,
) -> JsonObject:
    """A row for each x, a column for each strategy, about a dozen rows."""

    def written(value: float | None) -> str:
        return "says nothing" if value is None or value >= says_nothing_from else form(value)

    by_name = {name: [one for one in records if one["strategy"] == name] for name in names}
    names = [name for name in names if by_name[name]]
    found = [by_name[name] for name in names]
    count = len(found[0])
    places = sorted({round(i) for i in np.linspace(0, count - 1, min(12, count))})
    rows = [[short(found[0][i][x], 4), *(written(one[i][y]) for one in found)] for i in places]
    return {"columns": [label, *names], "rows": rows}

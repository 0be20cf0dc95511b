"""The planner: what a budget buys and costs, before anything is started."""

from __future__ import annotations

from io import BytesIO, StringIO
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.service.drafts import NewArm
from deniable.service.http.guard import service_of
from deniable.service.http.problems import Problem
from deniable.web import answers, plan_view
from deniable.web.access import Form, Reader, Submission
from deniable.web.plan_setting import SLIDER_TOP, Setting, read_setting
from deniable.web.plan_view import view

router = APIRouter(prefix="/planner")

_LABELS = {
    "arms": "Arms",
    "visitors": "Visitors",
    "segments": "Segments",
    "prior": "Belief before",
    "budget": "Privacy budget",
    "arm_budgets": "A budget for each arm",
    "max_belief": "A tracker may believe at most",
}


@router.get("")
def planner(request: Request, viewer: Reader) -> Response:
    """The page; its query string is its state."""
    wrong = ""
    try:
        setting = read_setting(request.query_params)
    except InvalidArgumentError as error:
        setting, wrong = Setting(), _told(error)
    shown = view(setting)
    charts = {
        name: plan_view.filled(name, shown["datasets"]) for name in plan_view.specifications()
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
    try:
        setting = read_setting(request.query_params)
    except InvalidArgumentError as error:
        return JSONResponse({"wrong": _told(error)}, 422, answers.HEADERS)
    shown = view(setting)
    words = answers.rendered("planner_words.html", setting=setting, viewer=viewer, **shown)
    return JSONResponse(
        {
            "words": words,
            "query": setting.query(),
            **{
                name: shown[name] for name in ("budget", "icons", "datasets", "summaries", "tables")
            },
            "recommended": shown["recommended"],
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
def create(request: Request, form: Submission) -> Response:
    """A draft from the plan."""
    setting = read_setting({name: form.text(name) for name in _LABELS})
    try:
        created = service_of(request).experiments.create(
            form.text("key"),
            arms=_arms(form, setting),
            segments=_names("segment_names", form, setting.segments),
            budget=None if setting.arm_budgets else view(setting)["budget"],
            strategy="constant" if form.text("strategy") == "constant" else "dynamic",
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
    lines = [
        "# deniable plan --from plan.toml",
        f"arms = {setting.arms}",
        f"visitors = {setting.visitors}",
        f"segments = {setting.segments}",
        f"prior = {setting.prior / 100:.10g}",
    ]
    if setting.arm_budgets:
        lines.append(f"arm_budgets = [{', '.join(f'{b:g}' for b in setting.arm_budgets)}]")
        return "\n".join(lines) + "\n"  # the command line takes no other limit beside them
    if setting.budget is not None:
        lines.append(f"budget = {setting.budget:.10g}")
    if setting.max_belief is not None:
        lines.append(f"max_belief = {setting.max_belief / 100:.10g}")
    return "\n".join(lines) + "\n"


def _picture(setting: Setting, ending: str) -> bytes:
    shown = view(setting)
    chart: Any = (shown["by_arm"] or shown["plan"]).chart()
    file: StringIO | BytesIO = StringIO() if ending == "svg" else BytesIO()
    chart.save(file, format=ending)
    found = file.getvalue()
    return found.encode() if isinstance(found, str) else found


def _arms(form: Form, setting: Setting) -> list[NewArm]:
    names = _names("arm_names", form, setting.arms)
    budgets = setting.arm_budgets or (None,) * setting.arms
    return [NewArm(name, budget=budget) for name, budget in zip(names, budgets, strict=True)]


def _names(field: str, form: Form, expected: int) -> list[str]:
    """Names one a line; as many as were planned for."""
    names = [line.strip() for line in form.text(field).splitlines() if line.strip()]
    if len(names) != expected:
        what = field.replace("_names", "s")
        raise Problem(
            422, "invalid-argument", f"{what}: the plan has {expected}, {len(names)} are named"
        )
    return names


def _told(error: InvalidArgumentError) -> str:
    return f"{_LABELS.get(error.argument, error.argument)}: expected {error.allowed}."

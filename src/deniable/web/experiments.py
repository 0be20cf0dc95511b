"""All experiments, and the form for a new one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.service.drafts import NewArm
from deniable.service.http.guard import Service
from deniable.service.service import Deniable
from deniable.storage.records import Experiment
from deniable.strategies import DEFAULT_STRATEGY, STRATEGIES
from deniable.web import answers, fields
from deniable.web.access import Drafter, DraftSubmission, Form, Reader

router = APIRouter()

STATUSES = ("running", "paused", "draft", "stopped")
FIELDS = (
    "key",
    "arms",
    "arm_budgets",
    "segments",
    "budget",
    "strategy",
    "across_time",
    "planned_visitors",
    "layer",
    "default_arm",
    "attribution_days",
)
_SECONDS_A_DAY = 86_400


@router.get("/experiments")
def experiments(
    request: Request, viewer: Reader, service: Service, status: str = "", q: str = ""
) -> Response:
    """All experiments, newest first, or those of one status or name."""
    everything = service.experiments.all()[::-1]
    found = [e for e in everything if status in ("", e.status) and q.lower() in e.key.lower()]
    counts = service.experiments.all_counts(found)
    visitors = {key: sum(cell.shows for cell in cells) for key, cells in counts.items()}
    return answers.show(
        request,
        "experiments.html",
        viewer,
        experiments=found,
        visitors=visitors,
        total=len(everything),
        statuses=STATUSES,
        wanted=status if status in STATUSES else "",
        q=q[:128],
    )


@router.get("/experiments/new")
def new(request: Request, viewer: Drafter) -> Response:
    """The form; every field can be filled in by the address, as the planner does."""
    given = {name: request.query_params.get(name, "")[:5_000] for name in FIELDS}
    given["layer"] = given["layer"] or request.query_params.get("group", "")[:5_000]
    return answers.show(
        request,
        "experiment_new.html",
        viewer,
        given=given,
        wrong=dict.fromkeys(FIELDS, ""),
        strategies=list(STRATEGIES.values()),
        usual=DEFAULT_STRATEGY,
    )


@router.post("/experiments/new")
def create(request: Request, form: DraftSubmission, service: Service) -> Response:
    """Make a draft, or show the form again with what is wrong beside its field."""
    try:
        created = _created(service, form)
    except DeniableError as error:
        field = error.argument if isinstance(error, InvalidArgumentError) else "key"
        field = {"attribution_seconds": "attribution_days"}.get(field, field)
        return answers.show(
            request,
            "experiment_new.html",
            form.viewer,
            status=422,
            strategies=list(STRATEGIES.values()),
            usual=DEFAULT_STRATEGY,
            given={name: form.text(name) for name in FIELDS},
            wrong={
                **dict.fromkeys(FIELDS, ""),
                (field if field in FIELDS else "key"): _without_name(error),
            },
        )
    message = "The draft is saved. It serves everybody its default arm until you start it."
    return answers.redirect(request, f"/experiments/{created.key}", message)


def _created(service: Deniable, form: Form) -> Experiment:
    budgets = [fields.number("arm_budgets", part) for part in form.text("arm_budgets").split()]
    optional: dict[str, Any] = {}
    if form.text("planned_visitors"):
        planned = fields.whole("planned_visitors", form.text("planned_visitors"))
        optional["planned_visitors"] = planned
    if form.text("attribution_days"):
        days = fields.number("attribution_days", form.text("attribution_days"))
        optional["attribution_seconds"] = round(days * _SECONDS_A_DAY)
    for name in ("layer", "default_arm"):
        if form.text(name):
            optional[name] = form.text(name)
    if not budgets:
        optional["budget"] = fields.number("budget", form.text("budget"))
    strategy = form.text("strategy") or DEFAULT_STRATEGY
    return service.experiments.create(
        form.text("key"),
        arms=_arms(form.text("arms"), budgets),
        segments=fields.lines(form.text("segments")),
        strategy=strategy,
        across_time=bool(form.text("across_time")),
        **optional,
    )


def _arms(text: str, budgets: list[float]) -> list[NewArm]:
    """One arm a line: its key and, behind a colon, a label for people."""
    pairs = [line.partition(":") for line in fields.lines(text)]
    if budgets and len(budgets) != len(pairs):
        raise InvalidArgumentError(
            "arm_budgets", len(budgets), f"one number for each of the {len(pairs)} arms, or none"
        )
    given: list[float | None] = [*budgets] if budgets else [None] * len(pairs)
    return [
        NewArm(key.strip(), label.strip(), budget)
        for (key, _, label), budget in zip(pairs, given, strict=True)
    ]


def _without_name(error: DeniableError) -> str:
    """The refusal without the argument's name: it stands beside the field."""
    words = fields.in_words(error)
    if isinstance(error, InvalidArgumentError):
        return "Expected " + error.allowed + "."
    return words

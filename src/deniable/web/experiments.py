"""All experiments, and the form for a new one."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable import _numbers
from deniable._types import JsonObject
from deniable.errors import NANO, DeniableError, InvalidArgumentError
from deniable.service.drafts import NewArm
from deniable.service.http.auth import Service
from deniable.service.service import Deniable
from deniable.storage.listing import Found
from deniable.storage.records import Experiment
from deniable.strategies import DEFAULT_STRATEGY, STRATEGIES
from deniable.web import responses
from deniable.web.access import Drafter, DraftSubmission, Form, Reader, Viewer, lines
from deniable.web.listing import Listing, csv_answer, pages

router = APIRouter(include_in_schema=False)

FIELDS = (
    "key",
    "arms",
    "arm_budgets",
    "segments",
    "budget",
    "strategy",
    "planned_visitors",
    "layer",
    "default_arm",
    "attribution_days",
)
_SECONDS_A_DAY = 86_400


@router.get("/experiments")
def experiments(request: Request, viewer: Reader, service: Service) -> Response:
    """All experiments, newest first, or those that the address asks for."""
    listing = Listing.of(request, "/experiments")
    found = service.experiments.find(listing.search())
    owners, tags = service.experiments.used_labels()
    totals = service.experiments.totals()
    return responses.show(
        request,
        "experiments.html",
        viewer,
        listing=listing,
        found=found,
        pages=pages(found.total),
        visitors=_visitors(service, found),
        total=sum(totals.values()),
        totals=totals,
        owners=owners,
        tags=tags,
    )


@router.get("/experiments.csv")
def export(request: Request, _viewer: Reader, service: Service) -> Response:
    """The listed experiments as a file, all pages of it."""
    listing = Listing.of(request, "/experiments")
    found = service.experiments.find(listing.search(everything=True))
    visitors = _visitors(service, found)
    columns = (
        *("experiment", "status", "owner", "tags", "arms", "segments", "budget_nats", "strategy"),
        *("visitors", "planned_visitors", "layer", "winner", "created", "started", "stopped"),
    )
    return csv_answer(
        "experiments",
        columns,
        (
            (
                *(one.key, one.status, found.labels[one.key].owner),
                " ".join(found.labels[one.key].tags),
                *(len(one.arms), len(one.segments), one.budget, one.strategy, visitors[one.key]),
                *(one.planned_visitors, one.layer, one.winner),
                *(
                    None if moment is None else moment.isoformat()
                    for moment in (one.created_at, one.started_at, one.stopped_at)
                ),
            )
            for one in found.experiments
        ),
    )


def _visitors(service: Deniable, found: Found) -> dict[str, int]:
    counts = service.experiments.all_released_counts(found.experiments)
    return {key: sum(cell.shows for cell in cells) for key, cells in counts.items()}


@router.get("/experiments/new")
def new(request: Request, viewer: Drafter, service: Service) -> Response:
    """The form; every field can be filled in by the address, as the planner does, or like another."""
    given = {name: request.query_params.get(name, "")[:5_000] for name in FIELDS}
    given["layer"] = given["layer"] or request.query_params.get("group", "")[:5_000]
    like = request.query_params.get("like", "")[:128]
    if like:
        source = service.experiments.get(like)
        given = {**_written(source), "key": f"{source.key[:120]}-copy"}
    return _form(request, viewer, responses.Typed(given))


@router.get("/experiments/{key}/edit")
def edit(request: Request, viewer: Drafter, service: Service, key: str) -> Response:
    """The same form for a draft that exists."""
    found = service.experiments.get(key)
    if found.status != "draft":
        refusal = (
            f"This experiment is {found.status}: what it promises is fixed. Duplicate it instead."
        )
        return responses.redirect(request, f"/experiments/{key}", refusal, "bad")
    return _form(request, viewer, responses.Typed(_written(found)), found.key)


@router.post("/experiments/{key}/edit")
def change(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Change the draft, or show the form again with what is wrong beside its field."""
    found = service.experiments.get(key)
    try:
        arguments = _arguments(form)
        service.experiments.redraft(key, **{**_UNSET, **arguments})
    except DeniableError as error:
        return _refused(request, form, error, editing=found.key)
    return responses.redirect(request, f"/experiments/{found.key}", "The draft is changed.")


def _form(request: Request, viewer: Viewer, typed: responses.Typed, editing: str = "") -> Response:
    return responses.show_form(
        request,
        "experiment_new.html",
        viewer,
        typed,
        strategies=list(STRATEGIES.values()),
        usual=DEFAULT_STRATEGY,
        editing=editing,
    )


def _refused(request: Request, form: Form, error: DeniableError, editing: str = "") -> Response:
    names = {**{name: name for name in FIELDS}, "attribution_seconds": "attribution_days"}
    wrong = responses.field_errors(error, names, "key")
    given = {name: form.text(name) for name in FIELDS}
    if editing:
        given["key"] = editing
    return _form(request, form.viewer, responses.Typed(given, wrong), editing)


def _written(found: Experiment) -> dict[str, str]:
    """An experiment as it would be typed into the form."""
    seconds = found.attribution_seconds
    return {
        "key": found.key,
        "arms": "\n".join(f"{a.key}: {a.label}" if a.label else a.key for a in found.arms),
        "arm_budgets": ", ".join(
            f"{arm.budget_nano / NANO:.15g}" for arm in found.arms if arm.budget_nano is not None
        ),
        "segments": "\n".join(found.segments),
        "budget": "" if found.arm_specific else f"{found.budget:.15g}",
        "strategy": found.strategy,
        "planned_visitors": "" if found.planned_visitors is None else str(found.planned_visitors),
        "layer": found.layer or "",
        "default_arm": found.default_arm,
        "attribution_days": "" if seconds is None else f"{seconds / _SECONDS_A_DAY:.9g}",
    }


@router.post("/experiments/new")
def create(request: Request, form: DraftSubmission, service: Service) -> Response:
    """Make a draft, or show the form again with what is wrong beside its field."""
    try:
        created = service.experiments.create(form.text("key"), **_arguments(form))
    except DeniableError as error:
        return _refused(request, form, error)
    message = "The draft is saved. It serves everybody its default arm until you start it."
    return responses.redirect(request, f"/experiments/{created.key}", message)


_UNSET: JsonObject = {
    "budget": None,
    "planned_visitors": None,
    "attribution_seconds": None,
    "layer": None,
    "default_arm": None,
}
"""What an empty field of the form says about a draft."""


def _arguments(form: Form) -> JsonObject:
    """The form as arguments of `create`, the key apart."""
    by_arm = form.text("arm_budgets")
    budgets = _numbers.numbers("arm_budgets", by_arm) if by_arm else []
    optional: JsonObject = {}
    if form.text("planned_visitors"):
        planned = _numbers.whole("planned_visitors", form.text("planned_visitors"), 0, 10**18)
        optional["planned_visitors"] = planned
    if form.text("attribution_days"):
        days = _numbers.number("attribution_days", form.text("attribution_days"))
        optional["attribution_seconds"] = round(days * _SECONDS_A_DAY)
    for name in ("layer", "default_arm"):
        if form.text(name):
            optional[name] = form.text(name)
    if not budgets:
        optional["budget"] = _numbers.number("budget", form.text("budget"))
    return {
        "arms": _arms(form.text("arms"), budgets),
        "segments": lines(form.text("segments")),
        "strategy": form.text("strategy") or DEFAULT_STRATEGY,
        **optional,
    }


def _arms(text: str, budgets: list[float]) -> list[NewArm]:
    """One arm a line: its key and, behind a colon, a label for people."""
    pairs = [line.partition(":") for line in lines(text)]
    if budgets and len(budgets) != len(pairs):
        raise InvalidArgumentError(
            "arm_budgets", len(budgets), f"one number for each of the {len(pairs)} arms, or none"
        )
    given: list[float | None] = [*budgets] if budgets else [None] * len(pairs)
    return [
        NewArm(key.strip(), label.strip(), budget)
        for (key, _, label), budget in zip(pairs, given, strict=True)
    ]

"""All experiments, and the form for a new one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable import _numbers
from deniable._types import JsonObject
from deniable.errors import NANO, DeniableError, InvalidArgumentError
from deniable.service.drafts import KEY_ALLOWED, NewArm, is_key, problems
from deniable.service.http.auth import Service
from deniable.service.limits import LARGEST_REWARD, MAX_HOLDOUT
from deniable.service.service import Deniable
from deniable.storage.listing import Found
from deniable.storage.records import MICRO, Better, Experiment, Metric
from deniable.strategies import DEFAULT_STRATEGY, STRATEGIES, TABLE_RULES
from deniable.web import responses
from deniable.web.access import Drafter, DraftSubmission, Form, Reader, Viewer, lines
from deniable.web.listing import Listing, csv_answer, pages

router = APIRouter(include_in_schema=False)

FIELDS = (
    "key",
    "arms",
    "arm_budgets",
    "segments",
    "contexts",
    "unobserved",
    "budget",
    "strategy",
    "planned_visitors",
    "layer",
    "default_arm",
    "attribution_days",
    "outcome",
    "largest",
    "guardrails",
    "holdout",
)
FIELD_OF = {
    **{name: name for name in FIELDS},
    "attribution_seconds": "attribution_days",
    "observed": "unobserved",
    "metrics": "guardrails",
}
"""The field of an argument that was refused."""

LABELS = {
    "key": "Name",
    "arms": "Variants",
    "arm_budgets": "A budget for each variant",
    "segments": "Segments",
    "contexts": "Contexts",
    "unobserved": "Unobserved visits",
    "budget": "Privacy budget",
    "strategy": "Strategy",
    "planned_visitors": "Planned visitors",
    "layer": "Exclusion layer",
    "default_arm": "Default variant",
    "attribution_days": "Days within which an outcome counts",
    "outcome": "Outcome to improve",
    "largest": "Largest value of the outcome",
    "guardrails": "Guardrails",
    "holdout": "Holdout",
}
"""Fields as the page names them."""

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
        *("experiment", "status", "owner", "tags", "arms", "rows", "budget_nats", "strategy"),
        *("visitors", "planned_visitors", "layer", "winner", "created", "started", "stopped"),
    )
    return csv_answer(
        "experiments",
        columns,
        (
            (
                *(one.key, one.status, found.labels[one.key].owner),
                " ".join(found.labels[one.key].tags),
                *(len(one.arms), len(one.rows), one.budget, one.strategy, visitors[one.key]),
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
            f"This experiment is {found.status}: what it guarantees is fixed. Duplicate it instead."
        )
        return responses.redirect(request, f"/experiments/{key}", refusal, "bad")
    return _form(request, viewer, responses.Typed(_written(found)), found.key)


@router.post("/experiments/{key}/edit")
def change(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Change the draft, or show the form again with everything that is wrong beside its field."""
    found = service.experiments.get(key)
    arguments, wrong = _read(form)
    try:
        if not wrong:
            service.experiments.redraft(key, **arguments)
            return responses.redirect(request, f"/experiments/{found.key}", "The draft is changed.")
    except DeniableError as error:
        wrong = responses.field_errors(error, FIELD_OF, "key")
    return _refused(request, form, arguments, wrong, editing=found.key)


def _form(request: Request, viewer: Viewer, typed: responses.Typed, editing: str = "") -> Response:
    return responses.show_form(
        request,
        "experiment_new.html",
        viewer,
        typed,
        strategies=list(STRATEGIES.values()),
        usual=DEFAULT_STRATEGY,
        labels=LABELS,
        editing=editing,
    )


def _refused(
    request: Request, form: Form, arguments: JsonObject, wrong: dict[str, str], editing: str = ""
) -> Response:
    """The form as it was sent, with every problem beside its field.

    Args:
        request: what is answered.
        form: what was sent.
        arguments: what could be read of it.
        wrong: what is known to be wrong, by field.
        editing: the draft that is changed; empty for a new one.
    """
    key = editing or form.text("key")
    for error in problems(key, arguments):
        wrong = {**responses.field_errors(error, FIELD_OF, "key"), **wrong}
    given = {name: form.text(name) for name in FIELDS} | {"key": key}
    in_order = {name: wrong[name] for name in FIELDS if name in wrong}
    return _form(request, form.viewer, responses.Typed(given, in_order), editing)


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
        "contexts": "\n".join(found.contexts[1:]),
        "unobserved": "" if found.observed else "yes",
        "budget": ""
        if found.arm_specific or not TABLE_RULES[found.strategy].bounded
        else f"{found.budget:.15g}",
        "strategy": found.strategy,
        "planned_visitors": "" if found.planned_visitors is None else str(found.planned_visitors),
        "layer": found.layer or "",
        "default_arm": found.default_arm,
        "attribution_days": "" if seconds is None else f"{seconds / _SECONDS_A_DAY:.9g}",
        "outcome": found.metrics[0].name,
        "largest": f"{found.metrics[0].cap:.9g}",
        "guardrails": "\n".join(_guardrail_line(metric) for metric in found.metrics[1:]),
        "holdout": f"{found.holdout / 10:.9g}" if found.holdout else "",
    }


@router.post("/experiments/new")
def create(request: Request, form: DraftSubmission, service: Service) -> Response:
    """Make a draft, or show the form again with everything that is wrong beside its field."""
    arguments, wrong = _read(form)
    try:
        if not wrong:
            created = service.experiments.create(form.text("key"), **arguments)
            message = "The draft is saved. Everybody sees its default variant until you start it."
            return responses.redirect(request, f"/experiments/{created.key}", message)
    except DeniableError as error:
        wrong = responses.field_errors(error, FIELD_OF, "key")
    return _refused(request, form, arguments, wrong)


_UNSET: JsonObject = {
    "budget": None,
    "planned_visitors": None,
    "attribution_seconds": None,
    "layer": None,
    "default_arm": None,
    "holdout": 0.0,
}
"""What an empty field of the form says about a draft."""

_READERS: dict[str, Callable[[str], JsonObject]] = {
    "budget": lambda text: {"budget": _numbers.number("budget", text)},
    "planned_visitors": lambda text: {
        "planned_visitors": _numbers.whole("planned_visitors", text, 0, 10**18)
    },
    "attribution_days": lambda text: {
        "attribution_seconds": round(_numbers.number("attribution_days", text) * _SECONDS_A_DAY)
    },
    "holdout": lambda text: {
        "holdout": _numbers.number("holdout", text, 0, 100 * MAX_HOLDOUT) / 100
    },
    "layer": lambda text: {"layer": text},
    "default_arm": lambda text: {"default_arm": text},
}
"""Field -> the arguments of `create` that its text stands for."""


def _read(form: Form) -> tuple[JsonObject, dict[str, str]]:
    """The form as arguments of `create`, the key apart, and what cannot be read, by field."""
    arguments: JsonObject = {
        **_UNSET,
        "segments": lines(form.text("segments")),
        "contexts": lines(form.text("contexts")),
        "observed": not form.text("unobserved"),
        "strategy": form.text("strategy") or None,
    }
    # Strategies are about segments. The one that the form chooses by itself is no choice.
    if arguments["strategy"] == DEFAULT_STRATEGY:
        arguments["strategy"] = None
    wrong: dict[str, str] = {}

    def put(field: str, read: Callable[[], JsonObject]) -> None:
        try:
            arguments.update(read())
        except InvalidArgumentError as error:
            wrong.update(responses.field_errors(error, FIELD_OF, field))

    for name, reader in _READERS.items():
        if form.text(name):
            put(name, partial(reader, form.text(name)))
    arguments.update(arms=_arms(form.text("arms"), []), metrics=(Metric(),))
    put("arm_budgets", lambda: _arm_budgets(form))
    put("largest", lambda: {"metrics": (_outcome(form),)})
    put("guardrails", lambda: {"metrics": (*arguments["metrics"], *_guardrails(form))})
    if wrong.keys() & {"budget", "arm_budgets"}:
        arguments["budget"] = 1.0  # what is wrong with it is known: look for other problems
    return arguments, wrong


def _arm_budgets(form: Form) -> JsonObject:
    """The arms with their own budgets, which replace the budget of the experiment."""
    given = form.text("arm_budgets")
    if not given:
        return {}
    budgets = _numbers.numbers("arm_budgets", given)
    return {"arms": _arms(form.text("arms"), budgets), "budget": None}


def _arms(text: str, budgets: list[float]) -> list[NewArm]:
    """One arm a line: its key and, behind a colon, a label for people."""
    pairs = [line.partition(":") for line in lines(text)]
    if budgets and len(budgets) != len(pairs):
        allowed = f"one number for each of the {len(pairs)} variants, or none"
        raise InvalidArgumentError("arm_budgets", len(budgets), allowed)
    given: list[float | None] = [*budgets] if budgets else [None] * len(pairs)
    return [
        NewArm(key.strip(), label.strip(), budget)
        for (key, _, label), budget in zip(pairs, given, strict=True)
    ]


def _outcome(form: Form) -> Metric:
    """The metric that decides."""
    name = form.text("outcome") or Metric().name
    if not is_key(name):
        raise InvalidArgumentError("outcome", name, KEY_ALLOWED)
    cap = _numbers.number("largest", form.text("largest") or "1", 1 / MICRO, LARGEST_REWARD)
    return Metric(name, round(cap * MICRO))


def _guardrails(form: Form) -> list[Metric]:
    return [_guardrail(line) for line in lines(form.text("guardrails"))]


def _guardrail(line: str) -> Metric:
    """One guardrail a line: its name, which way is better and, unless it is 1, its largest value."""
    name, _, rest = line.partition(":")
    better, _, cap = rest.partition(",")
    if better.strip() not in ("more", "less"):
        allowed = "on each line a name, a colon, and “more” or “less”, as in “refund: less”"
        raise InvalidArgumentError("guardrails", line[:40], allowed)
    try:
        largest = _numbers.number("guardrails", cap.strip() or "1", 1 / MICRO, LARGEST_REWARD)
    except InvalidArgumentError as error:
        allowed = f"as the largest value {error.allowed}, as in “minutes: less, 60”"
        raise InvalidArgumentError("guardrails", line[:40], allowed) from None
    return Metric(name.strip(), round(largest * MICRO), cast(Better, better.strip()))


def _guardrail_line(metric: Metric) -> str:
    cap = "" if metric.cap == 1 else f", {metric.cap:.9g}"
    return f"{metric.name}: {metric.better}{cap}"

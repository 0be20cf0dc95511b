"""The portfolio: the firm's budget over its experiments, tried out and applied to drafts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable import _numbers
from deniable._types import JsonObject
from deniable.charts.portfolio import PANELS
from deniable.errors import (
    NANO,
    DeniableError,
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
)
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.problem import regimes
from deniable.portfolio.table import csv_rows
from deniable.service.http.auth import service_of
from deniable.service.service import Deniable
from deniable.storage.records import MICRO, Experiment
from deniable.web import allocation_view, responses
from deniable.web.access import DraftSubmission, Form, Reader, ReaderSubmission
from deniable.web.listing import csv_answer

router = APIRouter(prefix="/portfolio", include_in_schema=False)

USUAL_BUDGET = 4.0
EXAMPLE = """id,arms,visitors,segments,strategy,max_budget,layer,base_rate,lift,value
homepage,2,1000000,3,,,,0.04,0.05,
checkout,3,250000,2,,1.5,,0.3,0.03,5
search,4,4000000,3,,,results,0.12,0.05,
ranking,2,900000,3,,,results,0.12,0.02,
newsletter,2,40000,2,constant,,,0.02,0.2,
"""


RATED, ENOUGH_VISITORS = 25, 100
"""Experiments, the newest ones, that tell the usual click rate, and visitors that they must have had."""


@dataclass(frozen=True)
class Ours:
    """What the store has: rows for the solver, and what cannot be allocated.

    Attributes:
        rows: drafts, and live experiments with their budget as committed.
        left_out: experiments without planned visitors.
        firm_budget: the present period's, or a usual one where none is set.
        reserve: what stopped, erased and left-out experiments have taken of it.
        usual_rate: clicks per visitor of live experiments, as text; empty where too few came.
    """

    rows: list[JsonObject]
    left_out: list[str]
    firm_budget: float
    reserve: float
    usual_rate: str


@router.get("")
def portfolio(request: Request, viewer: Reader) -> Response:
    """The page, with the store's own experiments."""
    ours = experiments_of(service_of(request))
    return responses.show(
        request,
        "portfolio.html",
        viewer,
        ours=ours,
        example=EXAMPLE,
        regimes=regimes(),
        charts={name: allocation_view.filled(name, {}) for name in PANELS},
        titles={name: panel.title for name, panel in PANELS.items()},
        drafts=[row["id"] for row in ours.rows if row["committed"] is None],
    )


@router.post("/data")
async def data(request: Request, _form: ReaderSubmission) -> Response:
    """One allocation."""
    return await _answered(request, _divided)


@router.post("/what-if")
async def what_if(request: Request, _form: ReaderSubmission) -> Response:
    """The curve over firm budgets."""
    return await _answered(request, _curve)


@router.post("/allocation.csv")
async def download(form: ReaderSubmission) -> Response:
    """The allocation as a file."""
    found = await asyncio.to_thread(_proven, form)
    frame = found.frame()
    return csv_answer("allocation", frame.columns, frame.iter_rows())


@router.post("/apply")
async def apply(request: Request, form: DraftSubmission) -> Response:
    """Give the drafts their budgets and strategies; the page stays where it is if that is refused."""
    service = service_of(request)
    try:
        changed = await asyncio.to_thread(_applied, service, form)
    except DeniableError as error:
        wrong = responses.field_errors(error, {"firm_budget": "form"})["form"]
        return JSONResponse({"wrong": wrong}, 422, responses.HEADERS)
    told = (
        "1 draft has a new budget. Nothing is committed until it starts."
        if changed == 1
        else f"{changed} drafts have new budgets. Nothing is committed until they start."
    )
    answer = JSONResponse({"next": "/portfolio"}, headers=responses.HEADERS)
    responses.leave_message(request, answer, told)
    return answer


def experiments_of(service: Deniable) -> Ours:
    """The store's drafts and live experiments as a portfolio."""
    wanted = [e for e in service.experiments.all() if e.status != "stopped"]
    live = [e for e in wanted if e.status != "draft"]
    try:
        firm = service.firm.current()
        budget, committed = firm.budget, firm.committed_nano
    except UnknownNameError:
        budget, committed = USUAL_BUDGET, 0
    counted = [e for e in live if _has_bound(e)]
    known = _joint_nano(counted)
    return Ours(
        rows=[_row(e) for e in wanted if _has_bound(e)],
        left_out=[e.key for e in wanted if not _has_bound(e)],
        firm_budget=budget,
        reserve=max(0, committed - known) / NANO,
        usual_rate=_usual_rate(service, live),
    )


def _usual_rate(service: Deniable, live: Sequence[Experiment]) -> str:
    clicking = [e for e in live if e.metrics[0].cap_micro == MICRO][-RATED:]
    cells = [
        cell
        for found in service.experiments.all_released_counts(clicking).values()
        for cell in found
    ]
    shows = sum(cell.shows for cell in cells)
    if shows < ENOUGH_VISITORS:
        return ""
    return f"{sum(cell.value_micro for cell in cells) / MICRO / shows:.2g}"


def _has_bound(experiment: Experiment) -> bool:
    """Whether theory says what its budget buys, for which it needs a planned number of visitors."""
    return experiment.planned_visitors is not None


def _joint_nano(experiments: Sequence[Experiment]) -> int:
    """What experiments cost together: those of one layer share no visitor and cost their largest."""
    layers: dict[str, int] = {}
    for experiment in experiments:
        place = experiment.layer or f"alone {experiment.id}"
        layers[place] = max(layers.get(place, 0), experiment.budget_nano)
    return sum(layers.values())


def _row(experiment: Experiment) -> JsonObject:
    held = experiment.status != "draft" or experiment.arm_specific
    return {
        "id": experiment.key,
        "arms": len(experiment.active_arms),
        "visitors": experiment.planned_visitors,
        "segments": len(experiment.segments),
        "strategy": experiment.strategy if held else None,
        "min_budget": None,
        "max_budget": None,
        "committed": experiment.budget if held else None,
        "layer": experiment.layer,
    }


async def _answered(request: Request, work: Callable[[JsonObject], JsonObject]) -> Response:
    try:
        asked = await _question_of(request)
        return JSONResponse(await asyncio.to_thread(work, asked), headers=responses.HEADERS)
    except (ValueError, TypeError, AttributeError) as error:  # also every refusal of the solver
        told = str(error) if isinstance(error, DeniableError) else "That is not a portfolio."
        return JSONResponse({"wrong": told[:600]}, 422, responses.HEADERS)


async def _question_of(request: Request) -> JsonObject:
    """The body, which must be a JSON object."""
    try:
        found = await request.json()
    except RuntimeError:  # a form, which was read with its token, or JSON that is nested too deeply
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError("body", "...", "a JSON object")
    return found


def _divided(asked: JsonObject) -> JsonObject:
    rows, text, regime, available = _question(asked)
    found = allocate(allocation_view.portfolio_of(text), available, regime=regime)
    return {"rows": rows, **allocation_view.view(found)}


def _curve(asked: JsonObject) -> JsonObject:
    _, text, regime, _ = _question(asked)
    return {"what_if": allocation_view.what_if(text, regime)}


def _question(asked: JsonObject) -> tuple[list[JsonObject], str, str, float]:
    """The rows as given, the question as text for the solver, the regime and the budget."""
    csv = asked.get("csv")
    raw = csv_rows(csv) if isinstance(csv, str) else asked.get("rows")
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
        raise InvalidArgumentError("rows", "...", "a list of experiments")
    budget, reserve = (
        _numbers.number(name, str(asked.get(name, 0))) for name in ("firm_budget", "reserve")
    )
    usual = {name: asked[name] for name in ("base_rate", "lift") if asked.get(name)}
    rows = allocation_view.checked_rows(raw)
    text = allocation_view.question(rows, str(asked.get("objective") or ""), usual)
    return rows, text, str(asked.get("regime", "flexible")), max(0.0, budget - reserve)


def _proven(form: Form) -> Allocation:
    """The allocation of a form, solved to the usual proof."""
    text = form.data.get("rows")
    names = ("firm_budget", "reserve", "regime", "objective", "base_rate", "lift")
    asked = {name: form.text(name) for name in names}
    raw = json.loads(text) if isinstance(text, str) and text else []
    _, text, regime, available = _question({**asked, "rows": raw})
    return allocate(allocation_view.portfolio_of(text), available, regime=regime)


def _applied(service: Deniable, form: Form) -> int:
    ours = experiments_of(service)
    if _numbers.number("firm_budget", form.text("firm_budget")) > ours.firm_budget:
        allowed = (
            f"at most {ours.firm_budget:g} nats, the firm's budget: raise it on the overview first"
        )
        raise InvalidArgumentError("firm_budget", form.text("firm_budget"), allowed)
    found = _proven(form)
    drafts = {
        e.key for e in service.experiments.all() if e.status == "draft" and not e.arm_specific
    }
    wanted = {
        name: (int(found.budgets_nano[row]), found.strategies[row])
        for row, name in enumerate(found.portfolio.ids)
        if name in drafts
    }
    _require_room(service, wanted)
    return len(service.experiments.replan(wanted))


def _require_room(service: Deniable, wanted: Mapping[str, tuple[int, str]]) -> None:
    """Whatever was divided, and of which file: all drafts together must fit what is free now."""
    drafts = [
        replace(experiment, budget_nano=wanted[experiment.key][0])
        for experiment in service.experiments.all()
        if experiment.key in wanted
    ]
    free = service.firm.current().remaining_nano
    if _joint_nano(drafts) > free:
        raise InsufficientBudgetError(remaining=free, requested=_joint_nano(drafts))

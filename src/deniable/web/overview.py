"""The overview: the firm's budget, what runs, how it does, and what needs a look.

Everything on it comes from counters and from what the watcher found: it does not grow with decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.errors import DeniableError, UnknownNameError
from deniable.service.http.guard import Service
from deniable.service.service import Deniable
from deniable.storage.records import Experiment, Firm, PublishedTable
from deniable.web import answers, fields
from deniable.web.access import PrivacySubmission, Reader
from deniable.web.alerts import alerts
from deniable.web.risks import random_share
from deniable.web.standing import Standing
from deniable.web.watcher import Health, Watcher

router = APIRouter()

DEFAULT_WINDOW_DAYS = 90


@dataclass(frozen=True)
class Row:
    """One running or paused experiment as the overview tells it."""

    experiment: Experiment
    visitors: int
    random_share: float
    success_rate: float | None
    gain: float | None
    health: Health | None


@router.get("/")
def overview(request: Request, viewer: Reader, service: Service) -> Response:
    """The first page; before anything runs it says what to do first."""
    watcher: Watcher = request.app.state.watcher
    firm, everything = current_firm(service), service.experiments.all()
    live = [e for e in everything if e.status in ("running", "paused")]
    counts = service.experiments.all_counts(live)
    standings = [Standing(e, counts[e.key]) for e in live]
    tables = service.experiments.tables_in_force(live)
    return answers.show(
        request,
        "overview.html",
        viewer,
        here=str(request.base_url).rstrip("/"),
        firm=firm,
        rows=[
            _row(standing, tables.get(standing.experiment.key), watcher.health)
            for standing in standings
        ],
        drafts=[e for e in everything if e.status == "draft"],
        stopped=sum(e.status == "stopped" for e in everything),
        first_run=firm is None or not any(e.started_at for e in everything),
        alerts=alerts(firm, standings, watcher.health, service.figures),
    )


@router.post("/firm")
def set_budget(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """Set the firm's budget; a change is first shown, before and after, and then confirmed."""
    before = current_firm(service)
    wrong = ""
    try:
        budget = fields.number("budget", form.text("budget"), 0)
        days = before.window_days if before else DEFAULT_WINDOW_DAYS
        if form.text("days"):
            days = fields.whole("days", form.text("days"))
    except DeniableError as error:
        return answers.redirect(request, "/", fields.in_words(error), "bad")
    if before is None or form.text("confirmed"):
        try:
            service.firm.set(budget=budget, window_days=days, reason=form.text("reason"))
            return answers.redirect(request, "/", "The firm’s budget is set.")
        except DeniableError as error:
            wrong = fields.in_words(error)
    if before is None:
        return answers.redirect(request, "/", wrong, "bad")
    return answers.show(
        request,
        "firm_change.html",
        form.viewer,
        status=422 if wrong else 200,
        before=before,
        budget=budget,
        days=days,
        weaker=budget > before.budget or days < before.window_days,
        given={name: form.text(name) for name in ("budget", "days", "reason")},
        wrong=wrong,
    )


def current_firm(service: Deniable) -> Firm | None:
    """The firm's budget; None before the first."""
    try:
        return service.firm.current()
    except UnknownNameError:
        return None


def _row(standing: Standing, table: PublishedTable | None, health: dict[str, Health]) -> Row:
    return Row(
        standing.experiment,
        standing.visitors,
        random_share(standing, table),
        standing.success_rate,
        standing.gain_over_random,
        health.get(standing.experiment.key),
    )

"""The overview: the firm's budget, what runs, how it does, and what needs a look.

Everything on it comes from counters and from what the tracker found: it does not grow with decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from deniable import _numbers
from deniable.analysis.alerts import Alert, alerts
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import Health
from deniable.analysis.segment_risk import common_share
from deniable.errors import NANO, DeniableError, UnknownNameError
from deniable.service import approvals
from deniable.service.http.auth import Service, service_of
from deniable.service.limits import MAX_DAYS, MAX_NANO
from deniable.service.service import Deniable
from deniable.storage.listing import Found, Labels, Search
from deniable.storage.masks import StoredMask
from deniable.storage.records import Experiment, Firm, PublishedTable
from deniable.web import responses
from deniable.web.access import PrivacySubmission, Reader, Viewer
from deniable.web.labels import USUAL_PRIOR
from deniable.web.listing import LIVE, Listing, csv_answer, pages
from deniable.web.monitor import Monitor

if TYPE_CHECKING:
    from deniable.demo.scores import Scores

router = APIRouter(include_in_schema=False)

DEFAULT_WINDOW_DAYS = 90


@dataclass(frozen=True)
class Row:
    """One running or paused experiment as the overview tells it."""

    experiment: Experiment
    visitors: int
    common_share: float
    click_rate: float | None
    gain: float | None
    health: Health | None
    labels: Labels


@router.get("/")
def overview(request: Request, viewer: Reader, service: Service) -> Response:
    """The first page; before anything runs it says what to do first."""
    return _page(request, viewer, service)


def _page(
    request: Request,
    viewer: Viewer,
    service: Deniable,
    typed: responses.Typed = responses.NOTHING_TYPED,
) -> Response:
    """The page; after a refusal with the firm's budget as it was typed."""
    monitor: Monitor = request.app.state.monitor
    firm, totals = current_firm(service), service.experiments.totals()
    listing = _listing(request)
    found = service.experiments.find(listing.search())
    started = sum(totals.get(status, 0) for status in ("running", "paused", "stopped"))
    first_run = firm is None or not started
    owners, tags = service.experiments.used_labels()
    return responses.show_form(
        request,
        "overview.html",
        viewer,
        typed,
        here=str(request.base_url).rstrip("/"),
        firm=firm,
        listing=listing,
        found=found,
        pages=pages(found.total),
        rows=_rows(service, found, monitor.health),
        masks=_masks(service),
        unobserved=service.experiments.unobserved(),
        live=sum(totals.get(status, 0) for status in LIVE),
        owners=owners,
        tags=tags,
        drafts=_drafts(service, totals) if first_run else (),
        totals=totals,
        first_run=first_run,
        requests=requests_for(service, viewer),
        alerts=_alerts(request, firm),
        score=_score(service) if request.app.state.demo else None,
    )


@router.get("/overview/live")
def live(request: Request, _viewer: Reader, service: Service) -> Response:
    """What changes on the page while somebody looks at it."""
    responses.mark_active(request)
    monitor: Monitor = request.app.state.monitor
    found = service.experiments.find(_listing(request).search())
    parts = {
        "running-rows": responses.rendered(
            "parts/running.html", rows=_rows(service, found, monitor.health)
        )
    }
    score = _score(service) if request.app.state.demo else None
    if score is not None:
        parts["score"] = responses.rendered("parts/score.html", score=score)
    told = _alerts(request, current_firm(service))
    parts["alert-part"] = responses.rendered("parts/alerts.html", alerts=told)
    state = sorted(service.experiments.totals().items())
    content = {"state": state, "parts": parts, "charts": {}}
    return JSONResponse(content, headers=responses.HEADERS)


@router.get("/overview.csv")
def export(request: Request, _viewer: Reader, service: Service) -> Response:
    """The listed experiments as a file, all pages of it."""
    found = service.experiments.find(_listing(request).search(everything=True))
    monitor: Monitor = request.app.state.monitor
    columns = (
        *("experiment", "status", "owner", "tags", "budget_nats", "visitors"),
        *("common_share", "click_rate", "against_random", "as_designed"),
    )
    return csv_answer(
        "overview",
        columns,
        (
            (
                row.experiment.key,
                row.experiment.status,
                row.labels.owner,
                " ".join(row.labels.tags),
                row.experiment.budget,
                row.visitors,
                row.common_share,
                row.click_rate,
                row.gain,
                None if row.health is None else row.health.as_designed,
            )
            for row in _rows(service, found, monitor.health)
        ),
    )


@router.post("/firm")
def set_budget(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """Set the firm's budget; a change is first shown, before and after, and then confirmed."""
    before = current_firm(service)
    given = {name: form.text(name) for name in ("budget", "days", "reason")}
    budget, days = 0.0, before.window_days if before else DEFAULT_WINDOW_DAYS
    wrong: dict[str, str] = {}
    try:
        budget = _numbers.number("budget", given["budget"], 0, MAX_NANO / NANO)
    except DeniableError as error:
        wrong |= responses.field_errors(error, {"budget": "budget"})
    try:
        days = _numbers.whole("days", given["days"], 1, MAX_DAYS) if given["days"] else days
    except DeniableError as error:
        wrong |= responses.field_errors(error, {"days": "days"})
    try:
        if not wrong and (before is None or form.text("confirmed")):
            service.firm.set(budget=budget, window_days=days, reason=given["reason"])
            return responses.redirect(request, "/", "The firm’s budget is set.")
    except DeniableError as error:
        wrong = responses.field_errors(error, {name: name for name in given})
    if before is None or "budget" in wrong or "days" in wrong:
        return _page(request, form.viewer, service, responses.Typed(given, wrong))
    return responses.show_form(
        request,
        "firm_change.html",
        form.viewer,
        responses.Typed(given, wrong),
        before=before,
        budget=budget,
        days=days,
        weaker=budget > before.budget or days < before.window_days,
    )


def current_firm(service: Deniable) -> Firm | None:
    """The firm's budget; None before the first."""
    try:
        return service.firm.current()
    except UnknownNameError:
        return None


def requests_for(
    service: Deniable, viewer: Viewer, key: str | None = None
) -> list[approvals.Request]:
    """Requests for a second person that wait for this viewer, or are this viewer's own.

    Args:
        service: the service.
        viewer: who looks.
        key: only those to start this experiment.
    """
    mine = f"user:{viewer.caller.label}" if viewer.caller.role else None
    return [
        one
        for one in service.approvals.all()
        if (key is None or one.experiment == key)
        and (one.asked_by == mine or viewer.may("privacy"))
        and (one.answered_by is None or _can_be_done(service, one))
    ]


def _can_be_done(service: Deniable, granted: approvals.Request) -> bool:
    """Whether the requester can do it now, and has not started the experiment already."""
    if granted.experiment is None:
        return service.approvals.usable(granted)
    try:
        draft = service.experiments.get(granted.experiment).status == "draft"
    except UnknownNameError:  # a mask
        draft = True
    return draft and service.approvals.usable(granted)


def _listing(request: Request) -> Listing:
    return Listing.of(request, "/", usual=LIVE, sort="-started")


def _rows(service: Deniable, found: Found, health: dict[str, Health]) -> list[Row]:
    counts = service.experiments.all_released_counts(found.experiments)
    tables = service.experiments.tables_in_force(found.experiments)
    return [
        _row(Leaderboard(one, counts[one.key]), tables.get(one.key), health, found.labels[one.key])
        for one in found.experiments
    ]


def _row(
    board: Leaderboard, table: PublishedTable | None, health: dict[str, Health], labels: Labels
) -> Row:
    return Row(
        board.experiment,
        board.visitors,
        common_share(board, table),
        board.click_rate,
        board.gain_over_random,
        health.get(board.experiment.key),
        labels,
    )


def _masks(service: Deniable) -> list[tuple[StoredMask, float, int]]:
    """Masks in use, with what a belief of 20% can rise to, and how many experiments use each."""
    running = service.experiments.all() if (found := service.masks.all()) else []
    return [
        (
            mask,
            mask.drawn_by().highest_belief(USUAL_PRIOR),
            sum(one.mask == mask.name and one.status in LIVE for one in running),
        )
        for mask in found
        if mask.ended_at is None
    ]


def _alerts(request: Request, firm: Firm | None) -> list[Alert]:
    monitor: Monitor = request.app.state.monitor
    figures = service_of(request).figures
    return alerts(firm, monitor.leaderboards(), monitor.health, figures)


def _drafts(service: Deniable, totals: dict[str, int]) -> tuple[Experiment, ...]:
    if not totals.get("draft"):
        return ()
    return service.experiments.find(Search(statuses=("draft",), limit=5)).experiments


def _score(service: Deniable) -> Scores | None:
    """What the demo shows first; None if one of its experiments is gone."""
    from deniable.demo.scores import scores

    try:
        return scores(service)
    except UnknownNameError:
        return None

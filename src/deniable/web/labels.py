"""Labels: masks in use, what their labels tell, and a form for a new one.

A new mask spends budget for as long as it is used, so the form first shows what it would promise.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable import _numbers
from deniable._types import JsonObject
from deniable.charts.labels import hundred
from deniable.errors import DeniableError, UnknownNameError
from deniable.masks.mask import Mask
from deniable.privacy.belief import budget_for_belief
from deniable.service.http.auth import Service
from deniable.service.service import Deniable
from deniable.storage.masks import Coverage, StoredMask
from deniable.web import responses
from deniable.web.access import PrivacySubmission, Reader, Viewer

router = APIRouter(prefix="/labels", include_in_schema=False)

_FIELDS = {"name": "name", "segments": "groups", "groups": "groups", "budget": "belief"}
USUAL_PRIOR = 0.2
"""The belief by which a page says what a budget means."""


@dataclass(frozen=True)
class Told:
    """What a mask's labels tell: for each label, how many of 100 people with it are in each group.

    Attributes:
        segments: the segments, as columns.
        rows: label and whole percents.
        belief: what a belief of 20% can rise to.
    """

    segments: tuple[str, ...]
    rows: tuple[tuple[str, list[int]], ...]
    belief: float


@dataclass(frozen=True)
class Shown:
    """A mask on the page."""

    mask: StoredMask
    told: Told
    coverage: Coverage
    experiments: list[str]


@router.get("")
def labels(request: Request, viewer: Reader, service: Service) -> Response:
    """Masks, newest first, and the form."""
    return _page(request, viewer, service)


@router.post("")
def create(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """Show what a mask would promise, and create it once that is confirmed."""
    given = {name: form.text(name) for name in ("name", "groups", "prior", "belief", "period")}
    try:
        wanted = _wanted(given)
        planned = Mask(**wanted, key=bytes(32))
        if form.text("confirmed"):
            service.masks.create(wanted.pop("name"), **wanted)
            return responses.redirect(request, "/labels", f"Labels of {planned.name} can be used.")
    except DeniableError as error:
        wrong = responses.field_errors(error, {**_FIELDS, "prior": "prior", "belief": "belief"})
        return _page(request, form.viewer, service, responses.Typed(given, wrong))
    return responses.show(
        request,
        "labels_preview.html",
        form.viewer,
        given=given,
        mask=planned,
        told=_told(planned),
        free=_free(service),
    )


@router.post("/end")
def end(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """End a mask."""
    try:
        service.masks.end(form.text("name"))
    except DeniableError as error:
        return responses.redirect(request, "/labels", responses.error_sentence(error), "bad")
    return responses.redirect(request, "/labels", "No more labels are given.")


def _wanted(given: dict[str, str]) -> JsonObject:
    """Return the arguments of a mask; each line of the form is a label, or a label and its segments."""
    groups: dict[str, list[str]] = {}
    for line in given["groups"].splitlines():
        label, _, members = line.partition(":")
        names = [name.strip() for name in members.split(",") if name.strip()]
        if label.strip():
            groups[label.strip()] = names or [label.strip()]
    prior = _numbers.number("prior", given["prior"], 0.1, 99) / 100
    belief = _numbers.number("belief", given["belief"], 0.2, 99.9) / 100
    return {
        "name": given["name"],
        "segments": [name for names in groups.values() for name in names],
        "groups": groups,
        "budget": f"{float(budget_for_belief(prior=prior, belief=belief)):.3f}",
        "period": given["period"] or "life",
    }


def _page(
    request: Request,
    viewer: Viewer,
    service: Deniable,
    typed: responses.Typed = responses.NOTHING_TYPED,
) -> Response:
    experiments = service.experiments.all()
    shown = [
        Shown(
            mask,
            _told(mask.drawn_by()),
            service.masks.coverage(mask),
            [
                e.key
                for e in experiments
                if e.mask == mask.name and e.status in ("running", "paused")
            ],
        )
        for mask in reversed(service.masks.all())
    ]
    return responses.show_form(
        request,
        "labels.html",
        viewer,
        typed,
        shown=shown,
        here=responses.service_address(request),
        free=_free(service),
    )


def _told(mask: Mask) -> Told:
    shares = mask.posterior()
    rows = tuple(
        (label, hundred(row)) for label, row in zip(mask.labels_in_order, shares, strict=True)
    )
    return Told(mask.segments, rows, mask.highest_belief(USUAL_PRIOR))


def _free(service: Deniable) -> float | None:
    try:
        return service.firm.current().remaining
    except UnknownNameError:
        return None

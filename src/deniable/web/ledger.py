"""The ledger: every commitment and debit in time, its chain verified, filtered and exported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable.errors import UnknownNameError
from deniable.service.http.guard import service_of
from deniable.service.service import Deniable
from deniable.storage.records import Experiment, Firm
from deniable.web import answers, ledger_view
from deniable.web.access import Reader

router = APIRouter(prefix="/ledger")

VERIFIED_AT_ONCE = 100_000
"""Decisions up to which the chains are verified whenever the page is opened."""


@router.get("")
def ledger(request: Request, viewer: Reader) -> Response:
    """The page; filter and place are in its query string."""
    service = service_of(request)
    stored = service.ledger.entries()
    balances = service.firm.balances()
    everything = ledger_view.entries(stored, balances)
    asked = _asked(request)
    found = ledger_view.chosen(everything, **asked)[::-1]
    first = _place(request, len(found))
    experiments = service.experiments.all()
    spending = ledger_view.spending(balances)
    return answers.show(
        request,
        "ledger.html",
        viewer,
        entries=found[first : first + ledger_view.PAGE],
        total=len(everything),
        tables=sum(entry.kind == "table" for entry in everything),
        matching=len(found),
        first=first,
        page=ledger_view.PAGE,
        asked=asked,
        query=_query(asked),
        kinds=ledger_view.KINDS,
        experiments=experiments,
        audits=ledger_view.latest_audits(stored),
        firm=_firm(request),
        spending={**specification(), "datasets": {"spending": spending}} if spending else None,
        spending_table={
            "columns": ["time (UTC)", "counts, nats", "firm's budget, nats"],
            "rows": [
                [
                    p["time"][:19].replace("T", " "),
                    f"{p['committed']:.4g}",
                    f"{p['budget']:.4g}",
                ]
                for p in spending
            ],
        },
        at_once=_decisions(service, experiments) <= VERIFIED_AT_ONCE,
    )


@router.get("/verification")
def verification(request: Request, viewer: Reader) -> Response:
    """Check every chain and total: as long as it takes."""
    found = service_of(request).ledger.verify()
    return JSONResponse(
        {
            "sound": found.sound,
            "problem": found.problem,
            "commitments": found.commitments,
            "decisions": found.decisions,
            "erased": found.erased,
            "heads": found.heads,
        },
        headers=answers.HEADERS,
    )


@router.get("/ledger.csv")
def export(request: Request, viewer: Reader) -> Response:
    """The chosen entries as a file, oldest first."""
    service = service_of(request)
    everything = ledger_view.entries(service.ledger.entries(), service.firm.balances())
    body = ledger_view.as_csv(ledger_view.chosen(everything, **_asked(request)))
    headers = {**answers.HEADERS, "Content-Disposition": 'attachment; filename="ledger.csv"'}
    return Response(body, headers=headers, media_type="text/csv")


@cache
def specification() -> dict[str, Any]:
    """The chart of what is committed, without data."""
    from deniable.charts.spending import spending_chart

    made: dict[str, Any] = spending_chart().to_dict(validate=False)
    return made


def _decisions(service: Deniable, experiments: Sequence[Experiment]) -> int:
    """How many are stored, from the counters."""
    counts = service.experiments.all_counts(experiments)
    return sum(cell.shows for cells in counts.values() for cell in cells)


def _asked(request: Request) -> dict[str, Any]:
    given = request.query_params
    return {
        "experiment": given.get("experiment", "")[:128],
        "kind": given.get("kind", "")[:16],
        "spends": given.get("spends") == "yes",
    }


def _query(asked: dict[str, Any]) -> str:
    return urlencode({k: "yes" if v is True else v for k, v in asked.items() if v})


def _place(request: Request, total: int) -> int:
    given = request.query_params.get("first", "0")
    wanted = int(given) if given.isascii() and given.isdigit() and len(given) < 12 else 0
    return min(wanted, max(0, total - 1)) // ledger_view.PAGE * ledger_view.PAGE


def _firm(request: Request) -> Firm | None:
    try:
        return service_of(request).firm.current()
    except UnknownNameError:
        return None

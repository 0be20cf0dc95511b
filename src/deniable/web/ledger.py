"""The ledger: every commitment and debit in time, its chain verified, filtered and exported."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deniable._types import JsonObject
from deniable.charts.experiments import spending_chart
from deniable.charts.theme import specification
from deniable.service.http.auth import service_of
from deniable.service.service import Deniable
from deniable.storage.listing import Search
from deniable.storage.records import Commitment
from deniable.web import ledger_view, responses
from deniable.web.access import Reader
from deniable.web.listing import Listing, csv_answer

router = APIRouter(prefix="/ledger", include_in_schema=False)

STATEMENTS = 10
"""Experiments on one page of statements."""

MOST_AUDITS, MOST_NAMES, MOST_EXPORTED = 2_000, 200, 1_000_000

VERIFIED_AT_ONCE = 100_000
"""Decisions up to which the chains are verified whenever the page is opened."""


@router.get("")
def ledger(request: Request, viewer: Reader) -> Response:
    """The page; filter and place are in its query string."""
    service = service_of(request)
    balances = service.firm.balances()
    asked, kinds = _asked(request), service.ledger.kinds()
    first = _place(request)
    stored, matching = _chosen(service, asked, first, ledger_view.PAGE)
    if not stored and first:  # beyond the end
        first = 0
        stored, matching = _chosen(service, asked, first, ledger_view.PAGE)
    statements = Listing.of(request, "/ledger")
    about = service.experiments.find(
        Search(
            text=asked["about"],
            first=(statements.page - 1) * STATEMENTS,
            limit=STATEMENTS,
        )
    )
    audits = service.ledger.page(kinds=("audit",), limit=MOST_AUDITS)[0][::-1]
    spending = ledger_view.spending(balances, ledger_view.POINTS)
    return responses.show(
        request,
        "ledger.html",
        viewer,
        entries=ledger_view.entries(stored, balances),
        total=sum(kinds.values()),
        tables=kinds.get("table", 0),
        matching=matching,
        first=first,
        page=ledger_view.PAGE,
        asked=asked,
        query=_query(asked),
        kinds=ledger_view.KINDS,
        about=about,
        unobserved=service.experiments.unobserved(),
        total_experiments=about.total or asked["about"],
        statement_page=statements.page,
        statement_pages=max(1, -(-about.total // STATEMENTS)),
        names=service.experiments.keys(MOST_NAMES),
        audits=ledger_view.latest_audits(audits),
        now=spending[-1] if spending else None,
        spending={**specification(spending_chart), "datasets": {"spending": spending}}
        if spending
        else None,
        spending_table={
            "columns": ["time (UTC)", "counts, nats", "firm's budget, nats"],
            "rows": [
                [
                    p["time"][:19].replace("T", " "),
                    f"{p['committed']:.4g}",
                    f"{p['budget']:.4g}",
                ]
                for p in spending[::-1]
            ],
        },
        at_once=_decisions(service) <= VERIFIED_AT_ONCE,
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
        headers=responses.HEADERS,
    )


@router.get("/ledger.csv")
def export(request: Request, viewer: Reader) -> Response:
    """The chosen entries as a file, oldest first."""
    service = service_of(request)
    stored, _ = _chosen(service, _asked(request), 0, MOST_EXPORTED)
    entries = ledger_view.entries(stored, service.firm.balances())[::-1]
    return csv_answer("ledger", ledger_view.COLUMNS, ledger_view.cells(entries))


def _decisions(service: Deniable) -> int:
    """How many are stored, from the counters."""
    return service.experiments.decisions()


def _chosen(
    service: Deniable, asked: JsonObject, first: int, limit: int
) -> tuple[list[Commitment], int]:
    """The entries that a filter lets through, newest first.

    Without a kind everything but published tables: there are far more of them than of all other
    entries, and they take nothing.
    """
    return service.ledger.page(
        experiment=asked["experiment"],
        kinds=(asked["kind"],) if asked["kind"] else (),
        without=() if asked["kind"] else ("table",),
        spends=asked["spends"],
        first=first,
        limit=limit,
    )


def _asked(request: Request) -> JsonObject:
    given = request.query_params
    return {
        "experiment": given.get("experiment", "")[:128],
        "kind": given.get("kind", "")[:16],
        "spends": given.get("spends") == "yes",
        "about": given.get("about", "").strip()[:128],
    }


def _query(asked: JsonObject) -> str:
    return urlencode({k: "yes" if v is True else v for k, v in asked.items() if v})


def _place(request: Request) -> int:
    given = request.query_params.get("first", "0")
    wanted = int(given) if given.isascii() and given.isdigit() and len(given) < 12 else 0
    return wanted // ledger_view.PAGE * ledger_view.PAGE

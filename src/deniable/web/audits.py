"""Audits that run behind the pages: one thread each, its progress, and what it found.

An audit of many decisions takes longer than anybody waits for a page. The page shows how far it is and
comes back by itself. Each process keeps its own; the ledger has the verdicts that were to be recorded.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.audit.report import Audit
from deniable.errors import DeniableError
from deniable.service.audits import STEPS
from deniable.service.http.auth import service_of
from deniable.service.service import Deniable
from deniable.web import responses
from deniable.web.access import Auditor, AuditSubmission, Viewer

router = APIRouter(prefix="/ledger", include_in_schema=False)

PATIENCE = 2.0
"""Seconds that a page waits for an audit before it shows how far it is."""


FRESH = 60.0
"""Seconds for which a result that nobody has seen yet is shown instead of a new one."""

_turn = threading.Lock()
"""One audit at a time: decisions go on beside it."""


@dataclass(eq=False)
class Run:
    """One audit on its way.

    Attributes:
        recorded: whether its verdict enters the ledger.
        step: how many of `STEPS` are done.
        found: the result.
        problem: why there is none.
        ended_at: when it ended, by the monotonic clock.
    """

    recorded: bool
    step: int = 0
    found: Audit | None = None
    problem: DeniableError | None = None
    ended_at: float = math.inf
    ended: threading.Event = field(default_factory=threading.Event)

    def work(self, service: Deniable, key: str) -> None:
        """Audit."""
        try:
            with _turn:
                self.found = service.audits.run(key, record=self.recorded, progress=self.note)
        except DeniableError as problem:
            self.problem = problem
        finally:
            self.ended_at = time.monotonic()
            self.ended.set()

    def note(self, step: int) -> None:
        """Remember how far it is."""
        self.step = step


def _run(request: Request, key: str, *, recorded: bool) -> Run:
    """Return the audit that is under way for this experiment and purpose, or begin one."""
    service = service_of(request)
    place = (service.experiments.get(key).id, recorded)
    runs: dict[tuple[str, bool], Run] = request.app.state.audits
    known = runs.get(place)
    if known is None or time.monotonic() > known.ended_at + FRESH:
        run = runs[place] = Run(recorded)
        # In this one's name: the ledger says who recorded an audit.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(run.work, service, key), daemon=True)
        thread.start()
    return runs[place]


async def _ended(request: Request, key: str, run: Run) -> bool:
    """Wait a little, and forget an audit that has ended: it is shown once."""
    if not await asyncio.to_thread(run.ended.wait, PATIENCE):
        return False
    runs: dict[tuple[str, bool], Run] = request.app.state.audits
    for place in [place for place, one in runs.items() if one is run]:
        runs.pop(place, None)
    if run.problem is not None:
        raise run.problem
    return True


def _progress(request: Request, viewer: Viewer, key: str, run: Run) -> Response:
    answer = responses.show(
        request, "auditing.html", viewer, key=key, step=run.step, steps=STEPS, recorded=run.recorded
    )
    answer.headers["Refresh"] = "1"
    return answer


@router.post("/promises/{key}/audit")
async def audit(request: Request, key: str, form: AuditSubmission) -> Response:
    """Audit now, and enter the verdict into the ledger."""
    run = _run(request, key, recorded=True)
    place = f"/ledger/promises/{service_of(request).experiments.get(key).key}"
    if not await _ended(request, key, run) or run.found is None:
        return responses.redirect(
            request, f"{place}/audit/recording", "The audit has begun.", "note"
        )
    found = run.found
    return responses.redirect(
        request, f"{place}#audit", found.verdict, "good" if found.sound else "bad"
    )


@router.get("/promises/{key}/audit/recording")
async def recording(request: Request, viewer: Auditor, key: str) -> Response:
    """How far a recorded audit is; the promise with its verdict once it has ended."""
    place = f"/ledger/promises/{service_of(request).experiments.get(key).key}"
    runs: dict[tuple[str, bool], Run] = request.app.state.audits
    run = runs.get((service_of(request).experiments.get(key).id, True))
    if run is None or await _ended(request, key, run):
        return responses.redirect(request, f"{place}#audit", "The audit has ended.", "note")
    return _progress(request, viewer, key, run)


@router.get("/promises/{key}/audit")
async def audit_page(request: Request, viewer: Auditor, key: str) -> Response:
    """A full audit, made now, check by check; nothing is recorded.

    Its figures change with every decision, so they are for auditors.
    """
    run = _run(request, key, recorded=False)
    if not await _ended(request, key, run) or run.found is None:
        return _progress(request, viewer, key, run)
    return responses.show(request, "audit.html", viewer, found=run.found, key=key)

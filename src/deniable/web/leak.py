"""What leaks today: an exposure log is sent, measured and forgotten; the answer is the report."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.leak.columns import NAMES
from deniable.service.http.app import UPLOAD_LIMIT
from deniable.web import responses
from deniable.web.access import Form, Reader, ReaderSubmission, Viewer

if TYPE_CHECKING:
    from deniable.leak.confined import Measured

router = APIRouter(prefix="/leak", include_in_schema=False)

SAMPLE = (
    "segment,variant,count",
    *("first-visit,large,1330", "first-visit,green,450", "first-visit,grey,220"),
    *("returning,large,270", "returning,green,1210", "returning,grey,520"),
)

COLUMNS = tuple(NAMES)


@router.get("")
def leak(request: Request, viewer: Reader) -> Response:
    """The form."""
    return _asked(request, viewer, {})


@router.post("")
async def measured(request: Request, form: ReaderSubmission) -> Response:
    """The report on the file that was sent, or the form again with what is wrong with it."""
    try:
        file = form.file("log")
        if file is None:
            raise InvalidArgumentError("file", "", "a log to read")
        found = await asyncio.to_thread(_report, file, form, request.app.state.measuring)
    except DeniableError as error:
        given = {name: form.text(name) for name in COLUMNS}
        return _asked(request, form.viewer, given, responses.error_sentence(error))
    finally:
        await form.data.close()
    plan = {"arms": found.arms, "segments": found.segments, "visitors": found.visitors}
    return responses.show(
        request, "leak_report.html", form.viewer, page=found.report, plan=urlencode(plan)
    )


@router.get("/sample.csv")
def sample(_viewer: Reader) -> Response:
    """A made-up log to try the page with."""
    headers = {**responses.HEADERS, "Content-Disposition": 'attachment; filename="sample.csv"'}
    return Response("\n".join(SAMPLE), headers=headers, media_type="text/csv")


def _report(file: UploadFile, form: Form, turn: threading.Lock) -> Measured:
    """Measure in a process of its own, one file after the other: decisions do not wait for it."""
    from deniable.leak.confined import confined_report

    with tempfile.TemporaryDirectory(prefix="deniable-leak-") as folder:
        path = Path(folder) / _plain_name(file.filename or "")
        with path.open("wb") as copy:
            shutil.copyfileobj(file.file, copy)
        columns = {name: form.text(name) or None for name in COLUMNS}
        with turn:
            return confined_report(path, columns)


def _plain_name(name: str) -> str:
    """The file's own name, which the report shows, without anything that is more than a name."""
    plain = re.sub(r"[^\w. -]", "_", name.rpartition("/")[2].rpartition("\\")[2])[-80:]
    return plain.lstrip(".") or "log"


def _asked(request: Request, viewer: Viewer, given: Mapping[str, str], wrong: str = "") -> Response:
    return responses.show(
        request,
        "leak.html",
        viewer,
        status=422 if wrong else 200,
        columns=COLUMNS,
        given={name: given.get(name, "") for name in COLUMNS},
        wrong=wrong,
        megabytes=UPLOAD_LIMIT // 1_000_000,
    )

"""Our scripts and styles, and the chart library that vl-convert carries: compressed, kept for good.

Addresses contain a hash of everything, so browsers ask for a file once for each release. A page has one
style sheet, put together here: every file that it waits for takes a first visit some ten milliseconds.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from threading import Lock

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deniable._compile import cache_folder

router = APIRouter(include_in_schema=False)

BUNDLE = "vega.js"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHEETS = {
    "style.css": ("site.css", "parts.css"),
    "style-pages.css": ("site.css", "parts.css", "pages.css"),
    "style-settings.css": ("site.css", "parts.css", "settings.css"),
}
"""Style sheet as served -> its files; what is for paper follows behind each."""
_FOREVER = "public, max-age=31536000, immutable"
_SNIPPET = "export { vegaEmbed };"
_BUNDLING = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1]).encode())
"""
_bundling = Lock()


@router.get("/static/{release}/{name}")
async def file(request: Request, release: str, name: str) -> Response:
    """One file, compressed for whoever can take it."""
    if release != digest() or (name != BUNDLE and name not in contents()):
        raise HTTPException(404, "no such file")
    body = await asyncio.to_thread(vega_bundle) if name == BUNDLE else contents()[name]
    headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, headers=headers, media_type=TYPES[Path(name).suffix])


def address(name: str) -> str:
    """Where a file is served, until it changes."""
    return f"/static/{digest()}/{name}"


@cache
def contents() -> dict[str, bytes]:
    """Our own files, compressed, by name; style sheets as they are served."""
    folder = files("deniable.web").joinpath("static")
    found = {one.name: one.read_bytes() for one in sorted(folder.iterdir(), key=str)}
    served = {name: body for name, body in found.items() if Path(name).suffix in (".js", ".svg")}
    for sheet, parts in SHEETS.items():
        paper = b"@media print {\n" + found["print.css"] + b"}\n"
        served[sheet] = b"".join([*(found[part] for part in parts), paper])
    return {name: gzip.compress(body, mtime=0) for name, body in served.items()}


@cache
def digest() -> str:
    """Tells one release of all files from another."""
    found = sha256(version("vl-convert-python").encode())
    for name, body in contents().items():
        found.update(name.encode() + body)
    return found.hexdigest()[:16]


def vega_bundle() -> bytes:
    """Vega, Vega-Lite and Vega-Embed with its expression interpreter, as one compressed module.

    Putting it together takes seconds, so it is kept in the user's cache folder; whoever asks while
    that is done waits.
    """
    with _bundling:
        return _bundle()


@cache
def _bundle() -> bytes:
    kept = cache_folder() / f"vega-{version('vl-convert-python')}.js.gz"
    with suppress(OSError):
        return kept.read_bytes()
    # In a process of its own: it takes seconds, in which no other thread of this one would run.
    command = [sys.executable, "-P", "-c", _BUNDLING, _SNIPPET]
    bundle = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    made = gzip.compress(bundle, 9, mtime=0)
    with suppress(OSError):  # a folder that cannot be written to: made again at the next start
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_name(f"{kept.name}.{os.getpid()}")
        draft.write_bytes(made)
        draft.replace(kept)
    return made

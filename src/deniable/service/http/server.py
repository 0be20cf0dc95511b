"""Serving the application with uvicorn: one process, or several that share the port and the store.

SIGTERM or SIGINT: no new connections, requests in flight are answered, the writer finishes what is
queued, then the process ends.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from deniable.errors import InvalidArgumentError
from deniable.service.http.app import Options
from deniable.service.http.logs import log_to_stderr
from deniable.service.http.messages import AsgiApp
from deniable.service.service import Deniable
from deniable.service.service import open as open_store
from deniable.service.settings import Settings

TALLY_FOLDER = "DENIABLE_WORKER_TALLY_FOLDER"
"""Set for worker processes only: where they share their counters."""


def open_service(settings: Settings) -> Deniable:
    """The service that the settings describe."""
    return open_store(
        settings.store, key_file=settings.key_file or None, queue_limit=settings.queue_limit
    )


def options_of(settings: Settings) -> Options:
    """The application's options, in a worker process too."""
    folder = os.environ.get(TALLY_FOLDER)
    return Options(
        body_limit=settings.body_limit,
        batch_limit=settings.batch_limit,
        in_flight_limit=settings.in_flight_limit,
        key_cache_seconds=settings.key_cache_seconds,
        log_requests=settings.log_requests,  # type: ignore[arg-type]
        tally_folder=Path(folder) if folder else None,
        close_service=True,
    )


def listening_socket(settings: Settings) -> socket.socket:
    """A bound socket; where the demo's default port is taken, one on a free port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        if not settings.demo:
            sock.close()
            raise InvalidArgumentError(
                "port", settings.port, f"a free one on {settings.host} ({error.strerror})"
            ) from None
        sock.bind((settings.host, 0))
    sock.set_inheritable(True)
    return sock


def address(sock: socket.socket) -> str:
    """Where the service answers, as a URL."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def serve(app: AsgiApp, settings: Settings, sock: socket.socket) -> None:
    """Serve one application in this process until a signal ends it."""
    log_to_stderr(settings.log_level)
    collect_seldom()
    with suppress(KeyboardInterrupt):  # raised again after a shutdown in good order
        uvicorn.Server(_config(app, settings)).run(sockets=[sock])


def collect_seldom() -> None:
    """Let the garbage collector look less often, and never again at what is here for good.

    A batch makes many objects at once, none of them in cycles: looking through them after every 700
    took a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def serve_workers(factory: str, settings: Settings, sock: socket.socket) -> None:
    """Serve in several processes until a signal ends them; one that dies is replaced.

    Args:
        factory: `module:function` that makes the application in each process, from the environment.
        settings: handed to the processes by the environment.
        sock: bound; all processes accept from it.
    """
    with tempfile.TemporaryDirectory(prefix="deniable-tally-") as folder:
        os.environ.update(settings.environment(), **{TALLY_FOLDER: folder})
        config = _config(factory, settings, factory=True, workers=settings.workers)
        Multiprocess(config, sockets=[sock]).run()


def _config(app: AsgiApp | str, settings: Settings, **more: Any) -> uvicorn.Config:
    fast = {} if sys.platform == "win32" else {"loop": "uvloop"}
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,  # the application writes its own, without paths
        log_config=None,
        log_level=settings.log_level,
        proxy_headers=False,  # nothing depends on a caller's address
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        **fast,  # type: ignore[arg-type]
        **more,
    )

"""Runs the application under Granian: a parent process, and workers that share the port.

Granian parses HTTP, limits headers and connections, and replaces workers that have died. Each
worker opens the store for itself. One whose store does not answer, or must be migrated first, waits and
serves nothing meanwhile, because Granian gives up on workers that end again and again.

On SIGTERM, SIGINT or SIGHUP, new connections are refused, requests in flight are answered, the
writers finish everything queued, and the parent exits with status 0. Workers that take longer than
`shutdown_seconds` are killed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels

from deniable.errors import InvalidArgumentError, MigrationNeededError, StoreUnavailableError
from deniable.service.http.logs import log_to_stderr
from deniable.service.http.metrics import Rows, Tally
from deniable.service.service import Deniable
from deniable.service.service import open as open_store
from deniable.service.settings import Settings

if TYPE_CHECKING:  # otherwise imported where needed: the parent process does not need it
    from deniable.service.http.app import Application, Options

MakeApplication: TypeAlias = Callable[[Settings, Tally], "Application"]
"""Makes the application in a worker process, where it may open the store."""

HEADER_LIMIT = 16_384
"""Maximum size of the request line and headers, in bytes."""

OTHER_FILES = 100
"""File descriptors reserved for everything except connections: the store, logs, exports."""

HUNG_SECONDS = 30.0
"""A worker whose event loop has been stuck for this long ends, and is replaced."""

RETRY_SECONDS = 1.0
"""Pause between two attempts to open the store."""

_LOG_TO_ROOT = {
    "formatters": {},
    "handlers": {},
    "loggers": {"_granian": {"handlers": [], "propagate": True}},
}

_log = logging.getLogger("deniable")


def open_service(settings: Settings) -> Deniable:
    """Open the service with these settings."""
    return open_store(
        settings.store,
        key_file=settings.key_file or None,
        queue_limit=settings.queue_limit,
        queue_seconds=settings.queue_seconds,
    )


def open_when_available(settings: Settings) -> Deniable:
    """Open the service as soon as its store answers and has the schema of this version."""
    told = None
    while True:
        try:
            return open_service(settings)
        except (StoreUnavailableError, MigrationNeededError) as error:
            if str(error) != told:
                told = str(error)
                _log.error("waiting for the store: %s", told)
            time.sleep(RETRY_SECONDS)


def options_of(settings: Settings, tally: Tally | None = None) -> Options:
    """Return the application's options."""
    from deniable.service.http.app import Options

    return Options(
        body_limit=settings.body_limit,
        batch_limit=settings.batch_limit,
        in_flight_limit=settings.in_flight_limit,
        request_seconds=settings.request_seconds,
        key_cache_seconds=settings.key_cache_seconds,
        key_outage_seconds=settings.key_outage_seconds,
        decide_seconds=settings.decide_seconds,
        log_requests=settings.log_requests,
        tally=tally,
        only=settings.only,
        close_seconds=settings.shutdown_seconds / 4,
    )


def with_free_port(settings: Settings) -> Settings:
    """Return the settings with the port to use. If the demo's port is taken, that is any free one.

    Workers bind the port with SO_REUSEPORT, so two services could share one without noticing.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((settings.host, settings.port))
        except OSError as error:
            if not settings.demo:
                raise InvalidArgumentError(
                    "port", settings.port, f"a free one on {settings.host} ({error.strerror})"
                ) from None
            sock.bind((settings.host, 0))
        return settings.model_copy(update={"port": sock.getsockname()[1]})


def address(settings: Settings) -> str:
    """Return the service's URL."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def serve(settings: Settings, make: MakeApplication) -> None:
    """Serve until a signal ends it.

    Args:
        settings: the settings, with a port that is free.
        make: makes the application, in each worker process.
    """
    server = Granian(
        "deniable",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        loop=Loops.asyncio if sys.platform == "win32" else Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        backlog=max(1_024, settings.connection_limit),
        backpressure=_connection_limit(settings.connection_limit),
        http1_settings=HTTP1Settings(
            header_read_timeout=round(settings.idle_seconds * 1e3),  # also of idle connections
            max_buffer_size=HEADER_LIMIT,
        ),
        log_level=LogLevels(settings.log_level),
        log_dictconfig=_LOG_TO_ROOT,
        respawn_failed_workers=True,
        workers_kill_timeout=settings.shutdown_seconds,
    )
    log_to_stderr(settings.log_level)

    @server.on_startup
    def end_on_hangup() -> None:  # Granian would restart all workers
        signal.signal(signal.SIGHUP, server.signal_handler_interrupt)

    load = partial(_load, settings, Rows(settings.workers), make, os.getpid())
    server.serve(target_loader=load, wrap_loader=False)


def _load(settings: Settings, rows: Rows, make: MakeApplication, parent: int) -> Application:
    """Make the application in a new worker process."""
    # A worker that waits for its store ends at once; later, Granian handles both signals.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal sends it to all; the parent acts
    log_to_stderr(settings.log_level)
    app = make(settings, rows.claim())
    app.companions.append(_Watchdog(parent))
    collect_seldom()
    return app


def collect_seldom() -> None:
    """Run the garbage collector less often, and exclude existing objects from it.

    A batch creates many objects at once, none of them in cycles. A collection after every 700
    objects took a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


class _Watchdog:
    """Ends a worker whose event loop hangs, or whose parent is gone."""

    def __init__(self, parent: int) -> None:
        # Not os.getppid(): the parent may be gone before a worker has started.
        self._parent = parent
        self._ended = False

    def start(self) -> None:
        """See Companion."""
        self._look(asyncio.get_running_loop())

    def end(self) -> None:
        """See Companion."""
        self._ended = True
        faulthandler.cancel_dump_traceback_later()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._ended:
            return
        faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
        if os.getppid() != self._parent:
            _log.error("the parent process is gone, so this worker ends")
            os.kill(os.getpid(), signal.SIGTERM)
        loop.call_later(1.0, self._look, loop)


def _connection_limit(wanted: int) -> int:
    """Return the connection limit: the wanted number, within the file descriptor limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        unlimited = hard == resource.RLIM_INFINITY
        soft = wanted + OTHER_FILES if unlimited else min(hard, wanted + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OTHER_FILES))

"""Serving the application with uvicorn, in this process or in several that share a listening socket.

SIGTERM, SIGINT or SIGHUP: no new connections, requests in flight are answered, the writer finishes what
is queued, then the process ends with status 0. That takes at most `shutdown_seconds`, also where the
store does not answer.

The listening socket may be inherited from systemd (`LISTEN_FDS`). Then it stays open while the service
restarts, and connections wait in it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.service.http.app import Application, Options
from deniable.service.http.connections import LimitedProtocol, limited
from deniable.service.http.logs import log_to_stderr
from deniable.service.http.messages import AsgiApp
from deniable.service.http.metrics import Tally
from deniable.service.service import Deniable
from deniable.service.service import open as open_store
from deniable.service.settings import Settings

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIRST_INHERITED = 3
"""The first descriptor that systemd hands over."""

OTHER_FILES = 100
"""Descriptors kept for anything but connections: the store, logs, exports."""

_log = logging.getLogger("deniable")


def open_service(settings: Settings) -> Deniable:
    """The service that the settings describe."""
    return open_store(
        settings.store,
        key_file=settings.key_file or None,
        queue_limit=settings.queue_limit,
        queue_seconds=settings.queue_seconds,
    )


def options_of(settings: Settings, tally: Tally | None = None) -> Options:
    """The application's options."""
    return Options(
        body_limit=settings.body_limit,
        batch_limit=settings.batch_limit,
        in_flight_limit=settings.in_flight_limit,
        key_cache_seconds=settings.key_cache_seconds,
        key_outage_seconds=settings.key_outage_seconds,
        decide_seconds=settings.decide_seconds,
        log_requests=settings.log_requests,
        tally=tally,
        close_seconds=settings.shutdown_seconds / 4,
    )


def listening_socket(settings: Settings) -> socket.socket:
    """The inherited socket, or a bound one; where the demo's port is taken, one on a free port."""
    inherited = inherited_socket()
    if inherited is not None:
        return inherited
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
    return sock


def inherited_socket() -> socket.socket | None:
    """The socket that systemd listens on for this process, if it does."""
    owner, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    if owner != str(os.getpid()):
        return None
    if count != "1":
        raise WrongStateError(f"{count or 'no'} sockets were handed over; one is expected")
    return socket.socket(fileno=FIRST_INHERITED)


def address(sock: socket.socket) -> str:
    """Where the service answers, as a URL."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def serve(
    app: AsgiApp, settings: Settings, sock: socket.socket, lifeline: socket.socket | None = None
) -> None:
    """Serve one application in this process until a signal ends it, or its supervisor does.

    Args:
        app: to serve.
        settings: how.
        sock: bound, maybe shared with other processes.
        lifeline: connects a worker with its supervisor.
    """
    log_to_stderr(settings.log_level)
    collect_seldom()
    _Server(app, settings, lifeline).run(sockets=[sock])


def collect_seldom() -> None:
    """Let the garbage collector look less often, and never again at what is here for good.

    A batch makes many objects at once, none of them in cycles: looking through them after every 700
    took a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


class _Server(uvicorn.Server):
    """uvicorn with limits on connections, an end that is certain, and a supervisor."""

    def __init__(self, app: AsgiApp, settings: Settings, lifeline: socket.socket | None) -> None:
        protocol = limited(
            settings.request_seconds,
            settings.idle_seconds,
            _connections(settings.connection_limit),
            # Not where something stands before the application, such as traces.
            app.answer_at_once if isinstance(app, Application) else None,
        )
        config = uvicorn.Config(
            app,
            http=protocol,
            loop="asyncio" if sys.platform == "win32" else "uvloop",
            ws="none",
            lifespan="on",
            access_log=False,  # the application writes its own, without paths
            log_config=None,
            log_level=settings.log_level,
            proxy_headers=False,  # nothing depends on a caller's address
            server_header=False,
            timeout_keep_alive=3_600,  # the protocol has its own
            timeout_graceful_shutdown=max(1, settings.shutdown_seconds * 2 // 3),
        )
        super().__init__(config)
        self._shutdown_seconds = settings.shutdown_seconds
        self._lifeline = lifeline
        self._finished = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        await super().startup(sockets)
        if self._lifeline is not None:
            self._lifeline.setblocking(False)
            asyncio.get_running_loop().add_reader(self._lifeline, self._heard)
            self._lifeline.send(b".")

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn.Server: called ten times a second."""
        if counter % 10 == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, LimitedProtocol):
                    connection.expire(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        await super().shutdown(sockets)
        self._finished = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See uvicorn.Server; a signal that was obeyed is not raised again."""
        before = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn.Server."""
        if not self.should_exit:
            self._end_for_certain()
        super().handle_exit(sig, frame)

    def _heard(self) -> None:
        """Answer the supervisor, to show that the event loop runs; end if it is gone."""
        assert self._lifeline is not None
        try:
            data = self._lifeline.recv(64)
            if data:
                self._lifeline.send(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        asyncio.get_running_loop().remove_reader(self._lifeline)
        self.handle_exit(signal.SIGTERM, None)

    def _end_for_certain(self) -> None:
        """A thread may wait for a store that never answers: do not wait for it."""

        def end() -> None:
            if not self._finished:
                _log.error("ended without waiting for the store, which does not answer")
            logging.shutdown()
            os._exit(0 if self._finished else 1)

        timer = threading.Timer(max(0.5, self._shutdown_seconds - 0.5), end)
        timer.daemon = True
        timer.start()


def _connections(wanted: int) -> int:
    """How many connections there may be: as wanted, as far as descriptors allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        unlimited = hard == resource.RLIM_INFINITY
        soft = wanted + OTHER_FILES if unlimited else min(hard, wanted + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OTHER_FILES))

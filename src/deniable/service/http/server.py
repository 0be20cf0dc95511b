"""Runs the application with uvicorn, in this process or in several that share a listening socket.

On SIGTERM, SIGINT or SIGHUP, new connections are refused, requests in flight are answered, the
writer finishes everything queued, and the process exits with status 0. This takes at most
`shutdown_seconds`, even if the store does not respond.

The listening socket may be inherited from systemd (`LISTEN_FDS`). It then stays open during a
restart, and new connections wait in its backlog.

With several workers, a socket pair connects the supervisor and each worker. The supervisor sends a byte
every second and the worker's event loop sends it back. A worker that has exited or hangs is replaced. A
worker whose supervisor is gone finishes its work and exits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from deniable.errors import InvalidArgumentError, StoreUnavailableError, WrongStateError
from deniable.service.http.connections import LimitedProtocol, limited
from deniable.service.http.logs import log_to_stderr
from deniable.service.http.messages import AsgiApp
from deniable.service.http.metrics import Tally, shared_memory
from deniable.service.service import Deniable
from deniable.service.service import open as open_store
from deniable.service.settings import Settings

if TYPE_CHECKING:  # otherwise imported where needed: a supervisor does not need the application
    from deniable.service.http.app import Options

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIRST_INHERITED = 3
"""The first file descriptor that systemd passes."""

OTHER_FILES = 100
"""File descriptors reserved for everything except connections: the store, logs, exports."""

_log = logging.getLogger("deniable")


def open_service(settings: Settings) -> Deniable:
    """Open the service with these settings."""
    return open_store(
        settings.store,
        key_file=settings.key_file or None,
        queue_limit=settings.queue_limit,
        queue_seconds=settings.queue_seconds,
    )


def options_of(settings: Settings, tally: Tally | None = None) -> Options:
    """Return the application's options."""
    from deniable.service.http.app import Options

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
    """Return the inherited socket, or bind one. If the demo's port is taken, use any free port."""
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
    """Return the socket passed by systemd, if any."""
    owner, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    if owner != str(os.getpid()):
        return None
    if count != "1":
        raise WrongStateError(f"{count or 'no'} sockets were passed by systemd; expected one")
    return socket.socket(fileno=FIRST_INHERITED)


def address(sock: socket.socket) -> str:
    """Return the service's URL."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def serve(
    app: AsgiApp, settings: Settings, sock: socket.socket, lifeline: socket.socket | None = None
) -> None:
    """Serve one application in this process until a signal or the supervisor stops it.

    Args:
        app: the application.
        settings: the settings.
        sock: a bound socket, possibly shared with other processes.
        lifeline: connects a worker to its supervisor.
    """
    log_to_stderr(settings.log_level)
    collect_seldom()
    _Server(app, settings, lifeline).run(sockets=[sock])


def collect_seldom() -> None:
    """Run the garbage collector less often, and exclude existing objects from it.

    A batch creates many objects at once, none of them in cycles. A collection after every 700
    objects took a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


class _Server(uvicorn.Server):
    """uvicorn with connection limits, a bounded shutdown, and a supervisor."""

    def __init__(self, app: AsgiApp, settings: Settings, lifeline: socket.socket | None) -> None:
        from deniable.service.http.app import Application

        protocol = limited(
            settings.request_seconds,
            settings.idle_seconds,
            _connection_limit(settings.connection_limit),
            # Not if the application is wrapped, for example by tracing.
            app.answer_at_once if isinstance(app, Application) else None,
        )
        config = uvicorn.Config(
            app,
            http=protocol,
            loop="asyncio" if sys.platform == "win32" else "uvloop",
            ws="none",
            lifespan="on",
            access_log=False,  # the application writes its own log, without paths
            log_config=None,
            log_level=settings.log_level,
            proxy_headers=False,  # client addresses are not used
            server_header=False,
            timeout_keep_alive=3_600,  # the protocol has its own timeout
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
            asyncio.get_running_loop().add_reader(self._lifeline, self._reply_to_supervisor)
            self._lifeline.send(b".")

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn.Server. Called ten times a second."""
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
        """See uvicorn.Server. Signals that were handled are not raised again."""
        before = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn.Server."""
        if not self.should_exit:
            self._force_exit()
        super().handle_exit(sig, frame)

    def _reply_to_supervisor(self) -> None:
        """Reply to the supervisor, to show that the event loop runs; shut down if it is gone."""
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

    def _force_exit(self) -> None:
        """Exit even if a thread is still waiting for a store that never responds."""

        def end() -> None:
            if not self._finished:
                _log.error("ended without waiting for the store, which does not answer")
            logging.shutdown()
            os._exit(0 if self._finished else 1)

        timer = threading.Timer(max(0.5, self._shutdown_seconds - 0.5), end)
        timer.daemon = True
        timer.start()


def _connection_limit(wanted: int) -> int:
    """Return the connection limit: the wanted number, within the file descriptor limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        unlimited = hard == resource.RLIM_INFINITY
        soft = wanted + OTHER_FILES if unlimited else min(hard, wanted + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OTHER_FILES))


# -- several processes -----------------------------------------------------------------------------

WORKER = "DENIABLE_WORKER"
"""Set only in worker processes: descriptors of socket, lifeline and tally, and the tally's row."""

SILENT_SECONDS = 30.0
"""A worker whose event loop has been stuck for this long is replaced."""


class Inherited(NamedTuple):
    """What a worker receives from its supervisor."""

    sock: socket.socket
    lifeline: socket.socket
    tally: Tally


def inherited() -> Inherited | None:
    """Return what this process received from its supervisor; None if it is not a worker."""
    given = os.environ.pop(WORKER, None)
    if given is None:
        return None
    listening, lifeline, memory, row = map(int, given.split(","))
    return Inherited(
        socket.socket(fileno=listening), socket.socket(fileno=lifeline), Tally(memory, row)
    )


def supervise(settings: Settings, sock: socket.socket) -> None:
    """Run `settings.workers` processes until a signal stops them.

    Raises:
        StoreUnavailableError: a worker exited before it was ready.
    """
    log_to_stderr(settings.log_level)
    ending = threading.Event()
    for number in ENDING:
        signal.signal(number, lambda _number, _frame: ending.set())
    memory = shared_memory(settings.workers)
    workers = [_Worker(settings, sock, memory, row) for row in range(settings.workers)]
    try:
        while not ending.wait(1.0):
            for row, worker in enumerate(workers):
                if worker.healthy():
                    continue
                if not worker.started:
                    raise StoreUnavailableError("a worker process could not start; see its log")
                _log.error("a worker process ended or hung, and is replaced")
                worker.kill()
                workers[row] = _Worker(settings, sock, memory, row)
    finally:
        sock.close()
        for worker in workers:
            worker.terminate()
        deadline = time.monotonic() + settings.shutdown_seconds + 5
        for worker in workers:
            worker.join(deadline)


class _Worker:
    """One worker process, as seen by the supervisor."""

    def __init__(self, settings: Settings, sock: socket.socket, memory: int, row: int) -> None:
        self._lifeline, theirs = socket.socketpair()
        self._lifeline.setblocking(False)
        inherits = (sock.fileno(), theirs.fileno(), memory)
        given = ",".join(map(str, (*inherits, row)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deniable", "serve"],
            env={**os.environ, **settings.environment(), WORKER: given},
            pass_fds=inherits,
            start_new_session=True,  # Ctrl-C goes to the supervisor, which forwards it
        )
        theirs.close()
        self._heard_at = time.monotonic()
        self.started = False

    def healthy(self) -> bool:
        """Whether it runs and its event loop responds."""
        ended = self._process.poll() is not None
        try:
            while self._lifeline.recv(64):  # the first byte is sent when it starts to serve
                self._heard_at, self.started = time.monotonic(), True
            return False
        except BlockingIOError:
            pass
        except OSError:
            return False
        if not ended:
            with suppress(OSError):  # gone, or stuck with a full buffer: noticed soon
                self._lifeline.send(b".")
        silent = time.monotonic() - self._heard_at
        return not ended and (not self.started or silent < SILENT_SECONDS)

    def terminate(self) -> None:
        """Ask it to shut down."""
        if self._process.poll() is None:
            self._process.terminate()

    def join(self, deadline: float) -> None:
        """Wait for it to exit, at most until the deadline."""
        try:
            self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        self._lifeline.close()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._lifeline.close()

"""Several worker processes on one listening socket, and the supervisor that keeps them running.

A socket pair connects the supervisor and each worker. The supervisor sends a byte every second and
the worker's event loop sends it back. A worker that has exited or hangs is replaced. A worker whose
supervisor is gone finishes its work and exits.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from deniable.errors import StoreUnavailableError
from deniable.service.http.logs import log_to_stderr
from deniable.service.http.metrics import Tally, shared_memory
from deniable.service.http.server import ENDING
from deniable.service.settings import Settings

WORKER = "DENIABLE_WORKER"
"""Set only in worker processes: descriptors of socket, lifeline and tally, and the tally's row."""

SILENT_SECONDS = 30.0
"""A worker whose event loop has been stuck for this long is replaced."""

_log = logging.getLogger("deniable")


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

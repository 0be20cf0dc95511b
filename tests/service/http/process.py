"""A real `deniable serve` on a free port, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2 as httpx
from tests.patience import PATIENCE, eventually

PATIENT = ("--decide-seconds", "60", "--queue-seconds", "60")
"""However busy the machine is, what a test asks for is stored."""


class Server:
    """A running server: its address, and how to end it."""

    def __init__(self, process: subprocess.Popen[str], url: str, output: list[str]) -> None:
        self.process = process
        self.url = url
        self.output = output

    def terminate(self) -> int:
        """SIGTERM, as systemd does it; returns the exit status once it has ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(
    folder: Path,
    *flags: str,
    lines: int = 1,
    store: str | None = None,
    patient: bool = True,
    ready: bool = True,
) -> Iterator[Server]:
    """A server, once it is ready; ended with the block.

    Args:
        folder: for its log, and for its store if no other is given.
        flags: of `deniable serve`.
        lines: how many it prints when it starts.
        store: its store.
        patient: whether it waits for the store as long as it takes.
        ready: whether to wait until it answers.
    """
    store = store or f"sqlite:///{folder / 'store.db'}"
    command = [sys.executable, "-m", "deniable", "serve", "--store", store]
    command += ["--port", "0", *(PATIENT if patient else ()), *flags]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DENIABLE_")}
    log = (folder / "log.jsonl").open("w")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        output = [process.stdout.readline() for _ in range(lines)]
        assert output[0].startswith("Deniable answers on "), (folder / "log.jsonl").read_text()
        url = output[0].split()[3]
        if ready:
            wait_until_ready(url, process)
        yield Server(process, url, output)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
        log.close()


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    """Return once the server is ready; fail if it ends before."""

    def ready() -> bool:
        assert process.poll() is None, f"the server has ended: {process.poll()}"
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/storez", timeout=PATIENCE).status_code == 200
        return False

    eventually(ready, "the server is ready")

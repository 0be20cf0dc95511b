"""`kill -9` of a real service under load: what was acknowledged over HTTP is there, once.

`KILLS=20 python -m pytest tests/service/http/test_kills.py` kills more often.
"""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from tests.patience import PATIENCE
from tests.service.http.process import Server, serving
from tests.service.support import running
from tests.service.support import serving as prepared
from tests.service.test_crashes import check_acknowledged

from deniable.client import Client, ServiceError
from deniable.service.service import open as open_service

KILLS = int(os.environ.get("KILLS", "1"))
CALLERS = 8
MOST_DECISIONS = 200
"""Acknowledged before a kill, at most."""


def _call(server: Server, secret: str, name: str, acknowledged: list[str]) -> None:
    """Decide and reward until the service is gone. Other callers ask for some of the visitors too."""
    with Client(server.url, secret, retries=0, timeout_seconds=PATIENCE) as client:
        for number in range(1_000_000):
            visitor = f"shared-{number}" if number % 4 == 0 else f"{name}-{number}"
            try:
                decision = client.decide("load", visitor, "ab"[number % 2])
                acknowledged.append(f"D {visitor} {decision.id} {decision.arm}")
                client.reward(decision.id, 1)
                acknowledged.append(f"R {decision.id} 1")
            except ServiceError:
                return


def test_nothing_acknowledged_is_lost(store_url: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(os.environ["DENIABLE_VISITOR_KEY"])
    key.chmod(0o600)
    with prepared(store_url) as service:
        running(service, "load")
        secret = service.keys.create("load", ["decide", "reward"])[0]
    acknowledged: list[str] = []
    moments = random.Random(0)
    for kill in range(KILLS):
        flags = ("--workers", "2", "--key-file", str(key))
        with serving(tmp_path, *flags, store=store_url) as server:
            family = [server.process, *psutil.Process(server.process.pid).children(recursive=True)]
            enough = len(acknowledged) + moments.randint(1, 2 * MOST_DECISIONS)
            with ThreadPoolExecutor(CALLERS) as pool:
                callers = [
                    pool.submit(_call, server, secret, f"{kill}-{caller}", acknowledged)
                    for caller in range(CALLERS)
                ]
                while len(acknowledged) < enough:
                    assert server.process.poll() is None
                    threading.Event().wait(0.001)
                for process in family:
                    process.kill()
                for caller in callers:
                    caller.result(PATIENCE)
            server.process.wait(PATIENCE)
    with open_service(store_url) as service:
        assert service.ledger.verify().problem is None
        check_acknowledged(service, acknowledged)

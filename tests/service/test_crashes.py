"""Killed at random moments under load: what was acknowledged is there, once, and everything agrees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

from sqlalchemy import func, select
from tests.patience import PATIENCE
from tests.service.support import running, serving

from deniable.service.ids import DecisionIds, visitor_hash
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import MICRO
from deniable.storage.schema import decisions, rewards

KILLS = 200
PARTS = 4
"""The ledger and the counters are checked after each part of the kills."""


def test_two_hundred_kills_lose_and_double_nothing(store_url: str, tmp_path: Path) -> None:
    with serving(store_url) as service:
        running(service, "load")
    path = tmp_path / "acknowledged"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.service.victim", store_url, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as victim:
        assert victim.stdin is not None
        assert victim.stdout is not None
        too_late = Timer(10 * PATIENCE, os.killpg, (victim.pid, signal.SIGKILL))
        too_late.daemon = True
        too_late.start()
        for part in range(PARTS):
            victim.stdin.write(f"{KILLS // PARTS} {part}\n")
            victim.stdin.flush()
            assert victim.stdout.readline() == "over\n"
            with open_service(store_url) as service:
                assert service.ledger.verify().problem is None  # chains, totals, counters
                lines = path.read_text().splitlines()
                assert len(lines) > KILLS // PARTS  # the load was real
                check_acknowledged(service, lines)
        too_late.cancel()
    assert victim.returncode == 0


def check_acknowledged(service: Deniable, lines: list[str]) -> None:
    identity = bytes.fromhex(service.experiments.get("load").id)
    ids = DecisionIds(service._key, identity)
    arms = [arm.key for arm in service.experiments.get("load").arms]
    with service._store.read() as connection:
        stored = {
            row.visitor: (ids.shown(row.id), arms[row.shown])
            for row in connection.execute(select(decisions))
        }
        rewarded = {
            ids.shown(row.decision_id): row.value for row in connection.execute(select(rewards))
        }
        visitors = connection.execute(
            select(func.count(func.distinct(decisions.c.visitor)))
        ).scalar()
    assert visitors == len(stored)
    for kind, *what in map(str.split, lines):
        if kind == "D":
            visitor, *answer = what
            assert stored[visitor_hash(service._key, identity, visitor)] == tuple(answer)
        else:
            decision, value = what
            assert rewarded[decision] == int(value) * MICRO

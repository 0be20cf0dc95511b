"""Two looks around one visitor are equal: what tells segments apart changes only with a table.

And what leaves the firm is made from no counts.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.service.support import published, running, serving

from deniable.service.service import Deniable
from deniable.storage import times
from deniable.web.monitor import Monitor

SEGMENTS = ("x", "y", "z")


def look(service: Deniable) -> dict[str, Any]:
    """Return all that people are shown of an experiment, without times."""
    experiment = service.experiments.get("checkout")
    summary = service.experiments.summary("checkout").to_dict()
    del summary["time"]
    for moment in (*summary["history"], *summary["segment_risks"]):
        moment.pop("time", None)
        moment.pop("expected", None)
        moment.pop("when", None)
    return {
        "summary": summary,
        "results": service.experiments.results("checkout").to_dict(),
        "counts": service.experiments.released_counts("checkout"),
        "draws": replace(service.experiments.draw_check(experiment), rewarded=0),
        "alerts": [board.lost for board in Monitor(service).leaderboards() or ()],
        "table": experiment.table_number,
    }


def test_one_visitor_changes_nothing(store_url: str) -> None:
    with serving(store_url) as service:
        _one_visitor(service)


def _one_visitor(service: Deniable) -> None:
    running(service, arms=("a", "b"), segments=SEGMENTS)
    rng = random.Random(8)
    known = service.decide_batch("checkout", [(f"v{n}", SEGMENTS[n % 3]) for n in range(600)])
    published(service)
    before, changes = look(service), 0
    assert {one["segment"] for one in before["summary"]["segments"]} == set(SEGMENTS)
    assert before["summary"]["clicks"] == 0
    for number in range(30):
        decision = service.decide("checkout", f"w{number}", rng.choice(SEGMENTS))
        service.reward(decision.id, 1)
        service.reward(known[number].id, 1)  # of a visitor who is released
        after = look(service)
        if after["table"] == before["table"]:
            assert after == before
        else:
            changes += 1
        before = after
    published(service)
    assert look(service)["summary"]["clicks"] == 60
    assert changes <= 1


def test_rewards_after_a_stop_count_from_the_next_day_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [times.now()]
    monkeypatch.setattr(times, "now", lambda: clock[0])
    with serving("memory:") as memory:
        _after_a_stop(memory, clock)


def _after_a_stop(memory: Deniable, clock: list[int]) -> None:
    running(memory, arms=("a", "b"), segments=SEGMENTS)
    known = memory.decide_batch("checkout", [(f"v{n}", SEGMENTS[n % 3]) for n in range(600)])
    memory.reward(known[0].id, 1)
    clock[0] += 1
    memory.experiments.stop("checkout")
    before = look(memory)
    assert (before["summary"]["visitors"], before["summary"]["clicks"]) == (600, 1)
    clock[0] += 1
    memory.reward(known[1].id, 1)
    assert look(memory) == before
    clock[0] += 86_400_000_000
    memory.beat()
    assert look(memory)["summary"]["clicks"] == 2


def test_the_chains_head_cannot_be_tried_out() -> None:
    """Documents print it. Equal counts have different digests, so a guess cannot be compared with it."""
    with serving("memory:") as service:
        for key in ("one", "two"):
            running(service, key, arms=("a", "b"), segments=SEGMENTS)
        tables = [service.experiments.tables(key)[0] for key in ("one", "two")]
        entries = [json.loads(e.detail) for e in service.ledger.entries() if e.kind == "table"]
    assert tables[0].rows == tables[1].rows
    known = [json.loads(table.counts) for table in tables]
    salts = [counts.pop("salt") for counts in known]
    assert known[0] == known[1]
    assert len(set(salts)) == len({entry["counts"] for entry in entries}) == 2
    assert all(len(bytes.fromhex(salt)) == 16 for salt in salts)

"""One summary: the page, HTTP and the command line tell the same numbers, and hide the same segments."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from tests.service.support import published
from tests.web.site import EXPERIMENT, Site

from deniable._formatting import chance, nats, percent, whole
from deniable.analysis.history import HistoryPoint
from deniable.analysis.result_history import result_history
from deniable.cli import main
from deniable.service.service import Deniable
from deniable.storage.sqlite import SqliteStore
from deniable.web.experiment_charts import _over_time, result_charts

MOMENTS = ("time", "expected", "when", "history")
"""What goes on while nothing happens: the time, and a stored sample of the same totals."""


def rows(html: str) -> list[list[str]]:
    """The cells of each row of a part of the page, as text."""
    lines = re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.S) for line in lines]
    return [
        [" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in line]
        for line in cells
    ]


def page(site: Site, key: str) -> dict[str, Any]:
    with site.signed_in("read") as client:
        found: dict[str, Any] = client.get(f"/experiments/{key}/live").json()
    return found


def http(site: Site, key: str) -> dict[str, Any]:
    with site.client() as client:
        headers = {"authorization": f"Bearer {site.secret('read')}", "accept": "application/json"}
        found: dict[str, Any] = client.get(f"/v1/experiments/{key}/summary", headers=headers).json()
    return found


def command_line(site: Site, capsys: pytest.CaptureFixture[str], *key: str) -> Any:
    store = site.service._store
    assert isinstance(store, SqliteStore)
    assert main(["status", *key, "--json", "--store", str(store.engine.url)]) == 0
    return json.loads(capsys.readouterr().out)


def still(found: Any) -> Any:
    """Without moments."""
    if isinstance(found, dict):
        return {name: still(one) for name, one in found.items() if name not in MOMENTS}
    return [still(one) for one in found] if isinstance(found, list) else found


def by_visitors(found: dict[str, Any], name: str) -> dict[int, float]:
    """A number of the history."""
    return {one["visitors"]: one[name] for one in found["history"]}


def paceless(words: str) -> str:
    """When a cap is reached, without what changes by the second."""
    return words.partition(", at this pace")[0]


def with_small_segments(service: Deniable, key: str = "uneven") -> None:
    """Two large segments and two small ones."""
    segments = ["many", "more", "tiny-one", "tiny-two"]
    service.experiments.create(key, arms=["a", "b"], segments=segments, budget=1)
    service.experiments.start(key)
    visits = [(f"v{i}", segments[i % 2]) for i in range(800)]
    visits += [(f"w{i}", segments[2 + i % 2]) for i in range(9)]
    for start in range(0, len(visits), 200):
        part = visits[start : start + 200]
        for (_, segment), one in zip(part, service.decide_batch(key, part), strict=True):
            service.reward(one.id, int((one.arm == "a") == (segment == "many")))
    published(service, key)


def test_every_channel_tells_the_same_numbers(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.send_visitors(3_000)
    published(site.service, EXPERIMENT)
    with_small_segments(site.service)
    for key in (EXPERIMENT, "uneven"):
        told, printed, shown = http(site, key), command_line(site, capsys, key), page(site, key)
        assert still(told) == still(printed["summary"])
        for name in ("clicks_lost", "regret_bound"):
            others = by_visitors(printed["summary"], name)
            assert by_visitors(told, name) == pytest.approx(others, abs=1e-3)  # as samples round
        parts, charts = shown["parts"], shown["charts"]
        assert rows(parts["leaderboard"]) == [
            [
                one["arm"] + (f" {one['label']}" if one["label"] else ""),
                whole(one["shows"]),
                whole(one["clicks"]),
                percent(one["rate"]),
                f"{percent(one['low'])} to {percent(one['high'])}",
                f"{percent(one['best_chance'])} {chance(one['best_chance'])}",
            ]
            for one in told["leaderboard"]
        ]
        assert [[*row, paceless(when)] for *row, when in rows(parts["risks"])[1:]] == [
            [
                one["segment"],
                whole(one["visitors"]),
                nats(one["risk"]),
                nats(one["cap"]),
                percent(one["common_share"], 0),
                paceless(one["when"]),
            ]
            for one in told["segment_risks"]
        ]
        assert rows(parts["segments"])[1:] == [
            [
                one["segment"],
                whole(one["visitors"]),
                *(
                    percent(rate) + (" (highest)" if arm == one["best_arm"] else "")
                    for arm, rate in one["rates"].items()
                ),
            ]
            for one in told["segments"]
        ]
        for number in (whole(told["visitors"]), percent(told["click_rate"])):
            assert number in parts["figures"]
        assert f">{whole(told['clicks_lost'])}<" in parts["figures"]
        drawn = rows(charts["regret-chart"]["rows"])
        assert {(visitors, bound) for visitors, _, bound in drawn} == {
            (whole(one["visitors"]), whole(one["regret_bound"]))
            for one in told["history"]
            if one["visitors"]
        }
        assert drawn[0][1] == whole(told["clicks_lost"])
        last = [one["total"] for one in charts["shows-chart"]["datasets"]["totals"]]
        assert last[-len(told["leaderboard"]) :] == list(told["history"][-1]["shows"].values())


def test_no_channel_tells_small_segments(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with_small_segments(site.service)
    told, printed = http(site, "uneven"), command_line(site, capsys, "uneven")
    assert told["hidden_segments"] == printed["summary"]["hidden_segments"] == 2
    for found in (told, printed["summary"]):
        assert [one["segment"] for one in found["segments"]] == ["many", "more"]
        assert [one["segment"] for one in found["segment_risks"]] == ["many", "more"]
        assert "tiny" not in json.dumps(found)
    assert "counts" not in printed
    everything = command_line(site, capsys)["experiments"]
    (mine,) = [one for one in everything if one["experiment"]["key"] == "uneven"]
    assert still(mine["summary"]) == still(told)
    assert mine["summary"]["history"] == []
    store = site.service._store
    assert isinstance(store, SqliteStore)
    assert main(["status", "uneven", "--store", str(store.engine.url)]) == 0
    text = capsys.readouterr().out
    assert "2 segments are not shown" in text
    assert "tiny" not in text
    assert "many" in text


@pytest.mark.parametrize("scope", ["decide", "reward"])
def test_only_readers_are_told(site: Site, scope: Any) -> None:
    with site.client() as client:
        headers = {"authorization": f"Bearer {site.secret(scope)}", "accept": "application/json"}
        answer = client.get(f"/v1/experiments/{EXPERIMENT}/summary", headers=headers)
    assert answer.status_code == 403


def test_charts_of_lifts_share_one_axis_and_totals_draw_no_stairs(service: Deniable) -> None:
    key = "lifts"
    service.firm.set(budget=3.0)
    service.experiments.create(key, arms=["a", "b"], segments=["s", "t"], budget=1)
    service.experiments.start(key)
    visits = [(f"v{i}", "st"[i % 2]) for i in range(4_000)]
    for start in range(0, len(visits), 200):
        part = visits[start : start + 200]
        for (_, segment), one in zip(part, service.decide_batch(key, part), strict=True):
            service.reward(
                one.id, int(random.Random(one.id).random() < (0.2 + 0.4 * (one.arm == segment)))
            )
    published(service, key)
    history = result_history(service.experiments.evidence(key))
    charts = [one for one in result_charts(history) if one.name.startswith("lift-")]
    assert len(charts) == 3
    (ends,) = charts[0].datasets["ends"]
    assert all(one.datasets["ends"] == [ends] for one in charts)
    records = [record for one in charts for record in one.datasets["lifts"]]
    assert ends == {
        "low": min(one["low"] for one in records),
        "high": max(one["high"] for one in records),
    }
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    totals = [(0, 0), (0, 0), (5, 3), (5, 3), (5, 3), (9, 4), (9, 4)]
    points = [
        HistoryPoint(
            moment + timedelta(minutes=n), a + b, {"a": a, "b": b}, {"a": 0, "b": 0}, 0.0, 0.0
        )
        for n, (a, b) in enumerate(totals)
    ]
    drawn = _over_time(points, "shows").datasets["totals"]
    assert [one["total"] for one in drawn if one["arm"] == "a"] == [0, 5, 9, 9]

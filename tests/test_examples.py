"""Every script in `examples/` runs as a reader would run it, without a warning."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.loops import run_apart

import deniable

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "shop")
SAID = {
    "allocate": "within tolerance: True",
    "audit": "The promise is kept",
    "bring_data": "by 3.90 (",
    "custom_policy": "explore-first-gate(1)",
    "personalizer": "kept by every table",
    "plan": "at most 40.5%",
    "serve_and_reward": "visitor-0 keeps the arm",
    "simulate": "perfect",
    "tracker": "promises at most 73%",
    "vowpal_wabbit": "kept by every table",
}
"""Script -> words that it prints."""


def test_every_script_is_known_and_listed() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(SAID)
    listed = (ROOT / "examples" / "README.md").read_text()
    assert all(f"[{script.name}]({script.name})" in listed for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs(script: Path, tmp_path: Path) -> None:
    if script.stem == "vowpal_wabbit" and find_spec("vowpalwabbit") is None:
        pytest.skip("VOWPAL WABBIT NOT TESTED: the package vowpalwabbit is not installed")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or script.stem in (
        "custom_policy",
        "simulate",
    )  # compiling
    assert SAID[script.stem] in done.stdout
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"
    if script.stem == "tracker":
        _check_scores(done.stdout)


def _check_scores(printed: str) -> None:
    """The tracker wins today and stays within the promise (expected 57%, deviation 2%: 8 of them)."""
    today, private = map(int, re.findall(r"right for (\d+)% of", printed))
    assert today > 90
    assert 45 < private <= 73


def test_the_shop_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    shop = importlib.import_module("shop")
    with deniable.open("memory:") as service:
        choose, _ = shop.with_deniable(service, 1.0)
        app = shop.shop(choose, lambda _visitor: shop.SEGMENTS[0])
        pages = run_apart(_pages(app, [f"/{path}" for path in shop.PAGES]))
    for page, (experiment, arms) in zip(pages, shop.PAGES.values(), strict=True):
        assert re.search(rf'class="{experiment}" data-decision="\w+">({"|".join(arms)})<', page)
        assert shop.SEGMENTS[0] not in page


async def _pages(app: Any, paths: list[str]) -> list[str]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
        return [(await browser.get(path)).raise_for_status().text for path in paths]


# -- the rank/reward API ---------------------------------------------------------------------

RANK = {
    "contextFeatures": [{"visitor": "v-1"}, {"segment": "morning"}],
    "actions": [{"id": "news"}, {"id": "sports"}, {"id": "music"}],
    "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
}


def test_a_client_of_personalizer_finds_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("personalizer")
    with deniable.open("memory:") as service:
        answers = run_apart(_ranked(example.prepared(service)))
        counted = sum(cell.clicks for cell in service.experiments.counts("personalizer"))
    ranked, again, rewarded, twice, unknown, nobody, fewer = answers
    assert (ranked.status_code, rewarded.status_code) == (201, 204)
    told = ranked.json()
    assert told["eventId"] == RANK["eventId"]
    assert told["ranking"][0] == {"id": told["rewardActionId"]}
    assert sorted(one["id"] for one in told["ranking"]) == ["music", "news", "sports"]
    assert "probability" not in ranked.text
    assert again.json()["rewardActionId"] == told["rewardActionId"]
    assert (twice.status_code, unknown.status_code) == (204, 204)
    assert counted == 1
    assert (nobody.status_code, fewer.status_code) == (400, 400)


async def _ranked(app: Any) -> list[httpx.Response]:
    rank = "/personalizer/v1.0/rank"
    reward = f"/personalizer/v1.0/events/{RANK['eventId']}/reward"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ranker") as client:
        return [
            await client.post(rank, json=RANK),
            await client.post(rank, json=RANK),
            await client.post(reward, json={"value": 1}),
            await client.post(reward, json={"value": 1}),
            await client.post("/personalizer/v1.0/events/unknown/reward", json={"value": 1}),
            await client.post(rank, json={**RANK, "contextFeatures": []}),
            await client.post(rank, json={**RANK, "actions": [{"id": "news"}]}),
        ]

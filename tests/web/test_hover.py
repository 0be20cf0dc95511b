"""Whoever points at a chart is told the values there, and they are the chart's data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page
from tests.patience import eventually
from tests.web.site import EXPERIMENT, Site, create_demo, running_site
from tests.web.watching import Tab, tab

from deniable.charts.experiments import HOVER_SIZE
from deniable.service.service import open as open_service

SPACING = math.sqrt(2 * HOVER_SIZE / math.pi)
"""Pixels between two places of the pointer: a disc of this area around a point covers one of them."""

LISTEN = """
window.told = new Set();
new MutationObserver(() => {
  const tip = document.querySelector("#vg-tooltip-element.visible");
  if (tip) told.add(JSON.stringify(Object.fromEntries([...tip.querySelectorAll("tr")].map(
    (row) => [...row.cells].map((cell) => cell.textContent.trim())))));
}).observe(document.body, { attributes: true, characterData: true, childList: true, subtree: true });
"""

HEARD = """(async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const found = [...told].map(JSON.parse);
  told.clear();
  return found;
})()"""


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo's experiments with enough visitors to say something."""
    path = tmp_path_factory.mktemp("hover") / "store.db"
    with open_service(f"sqlite:///{path}") as service:
        create_demo(service)
        with running_site(service) as site:
            for seed in range(6):
                site.send_visitors(1_000, seed=seed)
                service.experiments.publish(EXPERIMENT)
            for wanted in (2, 3):  # charts over time need several points, which are seconds apart
                site.send_visitors(100, seed=5 + wanted)
                eventually(partial(_sampled, site, wanted), "a further point over time")
            yield site


def _sampled(site: Site, wanted: int) -> bool:
    site.app.api.state.watcher.look()
    return len(site.service.experiments.samples(EXPERIMENT)) >= wanted


@pytest.fixture(scope="module")
def screen(learned: Site, browser: Browser) -> Iterator[Tab]:
    with tab(browser, learned, secret=learned.secret("read"), width=1280) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        opened.page.get_by_role("button", name="Freeze").click()
        opened.page.evaluate(LISTEN)
        yield opened


def swept(
    page: Page, chart: str, across: float = SPACING, apart: float = SPACING
) -> list[dict[str, str]]:
    """What is told while the pointer crosses a chart, in rows that are `apart` pixels apart."""
    canvas = page.locator(f"#{chart} canvas")
    page.evaluate(HEARD)  # what an earlier chart told
    down = 0.0
    while True:
        # Each time anew: what is drawn above it later moves it down.
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        if down > box["height"]:
            break
        page.mouse.move(box["x"], box["y"] + down)
        steps = math.ceil(box["width"] / across)
        page.mouse.move(box["x"] + box["width"], box["y"] + down, steps=steps)
        down += apart
    page.mouse.move(1, 1)
    found: list[dict[str, str]] = page.evaluate(HEARD)
    return found


def data_of(page: Page, chart: str, dataset: str) -> list[dict[str, object]]:
    text = page.locator(f"#{chart} script").text_content()
    rows: list[dict[str, object]] = json.loads(text or "{}")["datasets"][dataset]
    return rows


def test_the_lift(screen: Tab) -> None:
    told = swept(screen.page, "lift-all")
    data = {
        (row["arm"], f"{row['visitors']:,}"): [row[name] for name in ("estimate", "low", "high")]
        for row in data_of(screen.page, "lift-all", "lifts")
    }
    assert len({one["visitors"] for one in told}) >= 3, "not always the first point"
    for one in told:
        points = [float(one[name].replace("−", "-")) for name in ("lift", "from", "to")]
        assert points == pytest.approx(data[one["arm"], one["visitors"]], abs=0.051)


def test_the_means_by_segment(screen: Tab) -> None:
    told = swept(screen.page, "rates-chart", across=34, apart=7)  # wide and thin
    data = {
        (row["segment"], row["arm"]): [row[name] for name in ("estimate", "low", "high")]
        for row in data_of(screen.page, "rates-chart", "rates")
    }
    assert {(one["segment"], one["arm"]) for one in told} == set(data), "each of them"
    for one in told:
        shares = [float(one[name].rstrip("%")) / 100 for name in ("mean", "from", "to")]
        assert shares == pytest.approx(data[one["segment"], one["arm"]], abs=0.000_51)


def test_the_traffic(screen: Tab) -> None:
    told = swept(screen.page, "traffic-chart")
    data: dict[str, dict[str, object]] = {}
    for row in data_of(screen.page, "traffic-chart", "traffic"):
        data.setdefault(f"{row['visitors']:,}", {})[str(row["arm"])] = row["share"]
    assert len({one["to"] for one in told}) >= 3, "not always the first step"
    for one in told:
        arms = {name: value for name, value in one.items() if name not in ("to", "visitors from")}
        shares = {name: float(value.rstrip("%")) / 100 for name, value in arms.items()}
        assert shares == pytest.approx(data[one["to"]], abs=0.000_51)


@pytest.mark.parametrize("chart", ["shows-chart", "clicks-chart", "regret-chart"])
def test_what_goes_on_over_time(screen: Tab, chart: str) -> None:
    told = swept(screen.page, chart)
    assert len(told) >= 2
    assert all(len(one) == 3 for one in told)

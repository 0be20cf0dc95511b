"""Whoever points at a chart is told the values there, and they are the chart's data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page
from tests.service.support import published
from tests.web.site import EXPERIMENT, Site, create_demo, running_site
from tests.web.watching import Tab, tab

from deniable.charts.experiments import HOVER_SIZE
from deniable.service.service import open as open_service
from deniable.storage import times

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

SWEEP = """async ([chart, across, apart]) => {
  const canvas = document.querySelector(`#${chart} canvas`);
  const rows = [];
  for (let down = 0; down <= canvas.getBoundingClientRect().height; down += apart) {
    canvas.scrollIntoView({ block: "center" });
    const box = canvas.getBoundingClientRect();
    const steps = Math.ceil(box.width / across);
    const usual = { bubbles: true, cancelable: true, composed: true, view: window };
    told.clear();
    for (let step = 0; step <= steps; step += 1) {
      const place = { clientX: box.left + box.width * step / steps, clientY: box.top + down };
      // To whatever lies on top there, as the browser does.
      const hit = document.elementFromPoint(place.clientX, place.clientY) ?? document.body;
      for (const [kind, Made] of [["pointermove", PointerEvent], ["mousemove", MouseEvent]])
        hit.dispatchEvent(new Made(kind, { ...usual, ...place }));
      await null; // the observer's turn
    }
    rows.push({ down, told: [...told].map(JSON.parse) });
  }
  told.clear();
  return rows;
}"""

EVERY_MINUTE = (1_000,) * 6 + (100,) * 2
"""How many visitors come in each minute: charts over time need several points."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo's experiments with enough visitors, over some minutes, to say something."""
    path = tmp_path_factory.mktemp("hover") / "store.db"
    minutes = [times.now() - ago * 60_000_000 for ago in range(len(EVERY_MINUTE) + 1)]
    clock = minutes.pop()  # it ends at the present, so no time is stored that is yet to come
    with ExitStack() as stack:
        with times.running_on(lambda: clock):
            service = stack.enter_context(open_service(f"sqlite:///{path}"))
            create_demo(service)
            site = stack.enter_context(running_site(service))
            for seed, visitors in enumerate(EVERY_MINUTE):
                clock = minutes.pop()
                site.send_visitors(visitors, seed=seed)
                published(service, EXPERIMENT)
        assert len(service.experiments.samples(EXPERIMENT)) >= len(EVERY_MINUTE)
        yield site


@pytest.fixture(scope="module")
def screen(learned: Site, browser: Browser) -> Iterator[Tab]:
    with tab(browser, learned, secret=learned.secret("read"), width=1280) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        opened.draw_all()
        opened.page.get_by_role("button", name="Freeze").click()
        opened.page.evaluate(LISTEN)
        yield opened


def swept(
    page: Page, chart: str, across: float = SPACING, apart: float = SPACING
) -> list[dict[str, str]]:
    """What is told while the pointer crosses a chart, in rows that are `apart` pixels apart.

    The page makes the pointer's events itself, which takes a hundredth of the time. The row that is
    told most about is crossed by the real pointer too, which must be told the same there.
    """
    page.mouse.move(1, 1)
    rows = page.evaluate(SWEEP, [chart, across, apart])
    fullest = max(rows, key=lambda row: len(row["told"]))
    box = page.locator(f"#{chart} canvas").bounding_box()
    assert box is not None
    page.evaluate(HEARD)
    height = box["y"] + fullest["down"]
    page.mouse.move(box["x"], height)
    page.mouse.move(box["x"] + box["width"], height, steps=math.ceil(box["width"] / across))
    page.mouse.move(1, 1)
    heard = page.evaluate(HEARD)
    assert sorted(map(json.dumps, heard)) == sorted(map(json.dumps, fullest["told"]))
    found = {json.dumps(one): one for row in rows for one in row["told"]}
    return list(found.values())


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
    assert len(told) >= len(EVERY_MINUTE)
    assert all(len(one) == 3 for one in told)

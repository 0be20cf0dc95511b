"""The figures of the overview stand under their names."""

from __future__ import annotations

import re

from tests.service.support import published
from tests.web.site import Site


def test_the_firms_figures(empty_site: Site) -> None:
    """Three budgets that differ: 5 in all, 1.25 committed, 3.75 free."""
    service = empty_site.service
    service.firm.set(budget=5.0, window_days=30)
    service.experiments.create("shop", arms=["a", "b"], segments=["s"], budget=1.25)
    service.experiments.start("shop")
    with empty_site.signed_in("read") as client:
        page = client.get("/").text
    found = dict(re.findall(r"<div><dt>([^<]+)</dt><dd>([^<]+)</dd>", page))
    assert found["Committed"] == "1.25 nats"
    assert found["Free"] == "3.75 nats"
    assert found["Budget"] == "5 nats"
    assert found["Window"] == "30 days"
    assert re.search(r'<meter[^>]* value="0\.25"', page)
    assert "25% committed" in page


def test_what_is_the_same_for_every_segment_is_told_alike_on_both_pages(empty_site: Site) -> None:
    """Also of a paused experiment: its new visitors get an arm that says nothing about them."""
    service = empty_site.service
    service.firm.set(budget=5.0)
    for key in ("runs", "rests"):
        service.experiments.create(
            key, arms=["a", "b"], segments=["s", "t"], budget=1, strategy="constant"
        )
        service.experiments.start(key)
        answers = service.decide_batch(key, [(f"v{i}", "st"[i % 2]) for i in range(50)])
        service.reward_batch([(one.id, 1) for one in answers if one.arm == "a"])
        published(service, key)
    service.experiments.pause("rests")
    with empty_site.signed_in("read") as client:
        cells = re.findall(r'data-label="Same for every segment">([^<]+)<', client.get("/").text)
        shown = {}
        for key in ("runs", "rests"):
            page = client.get(f"/experiments/{key}").text
            assert "random arms now" not in page.lower()
            shown[key] = re.findall(r"<dt>Same for every segment</dt><dd>([^<]+)</dd>", page)[0]
    assert sorted(cells) == sorted(shown.values())
    assert shown["rests"] == "100%"
    assert shown["runs"] != "100%"

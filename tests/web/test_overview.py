"""The figures of the overview stand under their names."""

from __future__ import annotations

import re

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

"""The pages of an experiment whose tables follow a model outside: it has no bound and no clock."""

from __future__ import annotations

import re

from tests.web.site import Site

SCORES = {"new": {"a": 0.1, "b": 0.3, "c": 0.2}, "returning": {"a": 0.3, "b": 0.1, "c": 0.2}}


def test_every_page_shows_a_gate(empty_site: Site) -> None:
    service = empty_site.service
    service.firm.set(budget=3)
    service.experiments.create(
        "hero",
        arms=["a", "b", "c"],
        segments=list(SCORES),
        budget=1,
        strategy="gate",
        planned_visitors=10_000,
    )
    service.scores.put("hero", SCORES)
    with empty_site.signed_in("admin") as client:
        for path in ("/experiments/hero", "/portfolio"):
            assert client.get(path).status_code == 200, path
        service.experiments.start("hero")
        visitors = [(f"v{n}", ("new", "returning")[n % 2]) for n in range(300)]
        shown = service.decide_batch("hero", visitors)
        service.reward_batch([(one.id, int(one.arm == "b")) for one in shown])
        pages = {}
        for path in ("/", "/experiments", "/experiments/hero", "/portfolio", "/ledger"):
            answer = client.get(path)
            assert answer.status_code == 200, path
            pages[path] = answer.text
        promise = client.get("/ledger/promises/hero").text
    assert re.search("gate strategy, <span[^>]*>given the time<", pages["/experiments/hero"])
    assert "Scores received" in pages["/ledger"]
    assert "Scores of an external model, for the next table." in pages["/ledger"]
    assert "gate strategy" in promise

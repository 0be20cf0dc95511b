"""The figures of the overview stand under their names."""

from __future__ import annotations

import re

from tests.service.support import published
from tests.web.site import Site, send, token_of

from deniable.web.wording import belief_words


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


def test_a_thousand_nats_are_refused_on_the_page(site: Site) -> None:
    with site.signed_in("admin") as client:
        answer = send(client, "/", "/firm", budget="1,000", days="")
        assert answer.status_code == 422
        assert "without a comma" in answer.text
    assert site.service.firm.current().budget == 6


def test_raising_the_budget_shows_before_and_after_first(site: Site) -> None:
    firm = site.service.firm
    with site.signed_in("admin") as client:
        asked = send(client, "/", "/firm", budget="7", days="30")
        assert asked.status_code == 200
        assert firm.current().budget == 6
        for words in (
            "Before",
            "After",
            belief_words(6.0),
            belief_words(7.0),
            "90 days",
            "30 days",
        ):
            assert words in asked.text, words
        token = token_of(asked)
        sure = {"form_token": token, "confirmed": "yes", "budget": "7", "days": "30"}
        refused = client.post("/firm", data={**sure, "reason": ""})
        assert refused.status_code == 422
        assert 'value="7"' in refused.text, "what was typed is kept"
        assert firm.current().budget == 6
        done = client.post("/firm", data={**sure, "reason": "two more experiments"})
        assert done.status_code == 303
    assert (firm.current().budget, firm.current().window_days) == (7, 30)
    assert "two more experiments" in site.service.ledger.entries()[-1].detail


def test_the_first_budget_is_set_at_once(empty_site: Site) -> None:
    with empty_site.signed_in("admin") as client:
        assert send(client, "/", "/firm", budget="2", days="").status_code == 303
    assert empty_site.service.firm.current().budget == 2


def test_unobserved_experiments_are_made_by_the_form_and_told_with_their_share(
    empty_site: Site,
) -> None:
    service = empty_site.service
    service.firm.set(budget=5.0)
    form = {"arms": "a\nb", "segments": "s\nt"}
    with empty_site.signed_in("admin") as client:
        assert "no third party observes" not in client.get("/").text
        new = "/experiments/new"
        made = send(client, new, new, key="mail", **form, unobserved="yes")
        assert made.status_code == 303
        wrong = send(client, new, new, key="no", arms="a\nb", contexts="phone", unobserved="yes")
        assert (wrong.status_code, "true, or segments" in wrong.text) == (422, True)
        made = send(client, new, new, key="hero", arms="a\nb", contexts="phone\ntablet")
        assert made.status_code == 303
    mail, hero = service.experiments.get("mail"), service.experiments.get("hero")
    assert (mail.observed, mail.budget_nano, mail.strategy) == (False, 0, "unbounded")
    assert (hero.observed, hero.contexts) == (True, ("other", "phone", "tablet"))
    for key in ("mail", "hero"):
        service.experiments.start(key)
    for number in range(4):
        service.decide("mail", f"v{number}", "s", observed=False)
    for number in range(12):
        service.decide("hero", f"v{number}", context="phone")
    with empty_site.signed_in("read") as client:
        for path in ("/", "/ledger"):
            words = " ".join(client.get(path).text.split())
            assert (
                "1 experiment is declared for visits that no third party observes, with 25" in words
            )

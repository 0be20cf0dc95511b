"""What an experiment has learned, on its page, before a promotion and over HTTP."""

from __future__ import annotations

import re
from html import unescape

from tests.web.site import EXPERIMENT, Site

from deniable.charts.experiments import ARM_COLOURS, COLOUR_WORDS, arm_colours


def _text(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_page_says_what_the_service_says(demo_site: Site) -> None:
    found = demo_site.service.experiments.results(EXPERIMENT)
    with demo_site.signed_in("read") as client:
        page = _text(client.get(f"/experiments/{EXPERIMENT}").text)
        live = client.get(f"/experiments/{EXPERIMENT}/live").json()
        told = client.get(f"/v1/experiments/{EXPERIMENT}/results")
    for sentence in (*found.sentences, found.stop_rule):
        assert sentence in page
        assert sentence in _text(live["parts"]["verdict"])
    for choice in found.choices:
        assert choice.title in page
    assert "Likely the best, if you look once" in page
    assert told.status_code == 401  # pages are for sessions, the API for keys


def test_http_answers_the_same(demo_site: Site) -> None:
    secret = demo_site.secret("read")
    with demo_site.client() as client:
        headers = {"authorization": f"Bearer {secret}", "accept": "application/json"}
        told = client.get(f"/v1/experiments/{EXPERIMENT}/results", headers=headers)
        missing = client.get("/v1/experiments/nope/results", headers=headers)
        refused = client.get(
            f"/v1/experiments/{EXPERIMENT}/results",
            headers={**headers, "authorization": f"Bearer {demo_site.secret('decide')}"},
        )
    found = demo_site.service.experiments.results(EXPERIMENT).to_dict()
    assert told.json()["sentences"] == list(found["sentences"])
    assert told.json()["choices"][0]["title"] == "Keep running"
    assert [one["segment"] for one in told.json()["segments"]] == ["first-visit", "returning"]
    assert missing.status_code == 404
    assert refused.status_code == 403


def test_promoting_shows_what_it_would_earn_by_segment(demo_site: Site) -> None:
    found = demo_site.service.experiments.results(EXPERIMENT)
    with demo_site.signed_in("admin") as client:
        page = _text(client.get(f"/experiments/{EXPERIMENT}/do/promote").text)
        other = _text(client.get(f"/experiments/{EXPERIMENT}/do/stop").text)
    assert "Against keeping it running" in page
    assert "What it would earn" not in other
    for one in found.rates:
        assert found.level(one) in page
    assert "green for everybody" in page


def test_arms_called_after_a_colour_never_have_another_one() -> None:
    names = ["red", "old", "blue-banner", "green", "other", "grey", "more", "GREEN again"]
    colours = arm_colours(names)
    assert colours[0] == COLOUR_WORDS["red"]
    assert colours[2] == COLOUR_WORDS["blue"]
    assert colours[3] == COLOUR_WORDS["green"]
    assert colours[5] == COLOUR_WORDS["grey"]
    plain = [
        colour for name, colour in zip(names, colours, strict=True) if name in ("old", "other")
    ]
    assert not set(plain) & {COLOUR_WORDS[word] for word in ("red", "blue", "green", "grey")}
    assert arm_colours([f"a{i}" for i in range(8)]) == list(ARM_COLOURS)
    assert arm_colours(names) == colours


def test_a_variant_is_promoted_from_its_row(site: Site) -> None:
    """By who may do it, with the variant chosen already."""
    site.send_visitors(300)
    link = f"/experiments/{EXPERIMENT}/do/promote?arm="
    with site.signed_in("read") as client:
        assert link not in client.get(f"/experiments/{EXPERIMENT}").text
    with site.signed_in("read", "run") as client:
        page = client.get(f"/experiments/{EXPERIMENT}").text
        arms = [arm.key for arm in site.service.experiments.get(EXPERIMENT).arms]
        assert all(f'{link}{arm}"' in page for arm in arms)
        live = client.get(f"/experiments/{EXPERIMENT}/live", headers={"accept": "application/json"})
        assert link in live.json()["parts"]["verdict"]
        asked = client.get(f"{link}{arms[1]}").text
        assert re.search(f'value="{arms[1]}" required checked', asked)

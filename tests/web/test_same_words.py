"""One verdict: page, command line, HTTP, notebook and statement say the same, word for word."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from tests.service.support import published
from tests.web.site import EXPERIMENT, Site

from deniable.analysis.result_records import Results
from deniable.cli import main
from deniable.storage.sqlite import SqliteStore

Says = Callable[[Site, str], list[str]]


def texts(html: str, pattern: str) -> list[str]:
    """The text of what a pattern finds, without tags."""
    found = re.findall(pattern, html, re.S)
    return [" ".join(unescape(re.sub(r"<[^>]+>", "", one)).split()) for one in found]


def page(site: Site, key: str) -> list[str]:
    with site.signed_in("read") as client:
        whole = client.get(f"/experiments/{key}").text
    card = whole[whole.index('id="verdict"') : whole.index('<section id="figures"')]
    card = card.partition("<details")[0]
    return [*texts(card, r'<p class="verdict">(.*?)</p>'), *texts(card, r"<li>(.*?)</li>")]


def live(site: Site, key: str) -> list[str]:
    with site.signed_in("read") as client:
        part = client.get(f"/experiments/{key}/live").json()["parts"]["verdict"]
    part = part.partition("<details")[0]
    return [*texts(part, r'<p class="verdict">(.*?)</p>'), *texts(part, r"<li>(.*?)</li>")]


def http(site: Site, key: str) -> list[str]:
    headers = {"authorization": f"Bearer {site.secret('read')}", "accept": "application/json"}
    with site.client() as client:
        found = client.get(f"/v1/experiments/{key}/results", headers=headers).json()
    return list(found["sentences"])


def notebook(site: Site, key: str) -> list[str]:
    shown = site.service.experiments.results(key)._repr_html_()
    return [*texts(shown, r"<strong>(.*?)</strong>"), *texts(shown, r"<li>(.*?)</li>")]


def statement(site: Site, key: str) -> list[str]:
    with site.signed_in("read") as client:
        whole = client.get(f"/ledger/promises/{key}").text
    part = whole[whole.index('aria-labelledby="learned"') :].partition("</section>")[0]
    return texts(part, r"<bdi>(.*?)</bdi>")


CHANNELS: dict[str, Says] = {
    "page": page,
    "page, while it moves": live,
    "HTTP": http,
    "notebook": notebook,
    "statement": statement,
}


def command_line(site: Site, key: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    store = site.service._store
    assert isinstance(store, SqliteStore)
    assert main(["results", key, "--store", str(store.engine.url)]) == 0
    printed = capsys.readouterr().out
    return printed.partition("\n\n")[0].splitlines()[:-1]  # the last one says when to stop


def said(found: Results) -> list[str]:
    return [" ".join(sentence.split()) for sentence in found.sentences]


@pytest.mark.parametrize("visitors", [0, 400, 6_000])
@pytest.mark.parametrize("end", ["running", "stopped", "promoted"])
def test_every_channel_says_the_same(
    site: Site, capsys: pytest.CaptureFixture[str], visitors: int, end: str
) -> None:
    service = site.service
    if visitors:
        site.send_visitors(visitors)
        published(service, EXPERIMENT)
    if end == "stopped":
        service.experiments.stop(EXPERIMENT)
    if end == "promoted":
        service.experiments.stop(EXPERIMENT, promote="green")
    wanted = said(service.experiments.results(EXPERIMENT))
    assert wanted
    assert {name: says(site, EXPERIMENT) for name, says in CHANNELS.items()} == dict.fromkeys(
        CHANNELS, wanted
    )
    assert command_line(site, EXPERIMENT, capsys) == wanted


def test_names_are_escaped_and_read_back(site: Site) -> None:
    segments = ["<b>bold</b> & co", "x"]
    site.service.experiments.create("odd", arms=["a", "b"], segments=segments, budget=1)
    site.service.experiments.start("odd")
    for start in range(0, 3_000, 500):
        pairs = [(f"v{n}", segments[n % 2]) for n in range(start, start + 500)]
        for (_, segment), one in zip(pairs, site.service.decide_batch("odd", pairs), strict=True):
            site.service.reward(one.id, int((one.arm == "a") == (segment == "x")))
    published(site.service, "odd")
    found = site.service.experiments.results("odd")
    assert any("<b>" in sentence for sentence in found.sentences)
    assert "<b>" not in found._repr_html_()
    for says in CHANNELS.values():
        assert len(says(site, "odd")) == len(found.sentences)

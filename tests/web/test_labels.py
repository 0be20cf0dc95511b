"""The page of labels: what a mask would promise is shown before it is created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.web.site import Site, running_site, send

from deniable.service.service import open as open_service

FORM = {"name": "age", "groups": "young: under-25, 25-44\nold", "prior": "20", "belief": "53"}


@pytest.fixture
def site() -> Iterator[Site]:
    with open_service("memory:") as service:
        service.firm.set(budget=4)
        service.masks.create("interest", segments=["sports", "music"], budget=2)
        service.experiments.create("banner", arms=["old", "new"], mask="interest")
        service.experiments.start("banner")
        service.decide("banner", "v-1", "sports")
        with running_site(service) as served:
            yield served


def test_a_mask_is_shown_then_confirmed(site: Site) -> None:
    with site.signed_in("read", "privacy") as officer:
        told = send(officer, "/labels", "/labels", **FORM)
        assert "at most 53.0% sure" in told.text
        assert "1.506 nats" in told.text  # log((.53 / .47) / (.2 / .8))
        assert [mask.name for mask in site.service.masks.all()] == ["interest"]
        done = send(officer, "/labels", "/labels", confirmed="yes", **FORM)
        assert done.status_code == 303
        made = site.service.masks.get("age")
        assert made.groups == {"young": ("under-25", "25-44"), "old": ("old",)}
        assert made.budget_nano == 1_506_000_000
        page = officer.get("/labels").text
        assert "interest" in page
        assert "~young" in page
        send(officer, "/labels", "/labels/end", name="age")
        assert site.service.masks.get("age").ended_at is not None
        refused = send(officer, "/labels", "/labels/end", name="interest")
        assert refused.status_code == 303
        assert site.service.masks.get("interest").ended_at is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "Age"}, "lower-case"),
        ({"groups": "young"}, "Expected"),
        ({"belief": "many"}, "number"),
        ({"belief": "10"}, "Expected"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    site: Site, changed: dict[str, str], words: str
) -> None:
    with site.signed_in("read", "privacy") as officer:
        refused = send(officer, "/labels", "/labels", **(FORM | changed))
    assert refused.status_code == 422
    assert words in refused.text
    assert [mask.name for mask in site.service.masks.all()] == ["interest"]


def test_pages_say_that_the_budget_is_spent_once(site: Site) -> None:
    with site.signed_in("read") as viewer:
        assert "at most <strong>65%</strong> sure" in viewer.get("/").text
        page = viewer.get("/experiments/banner").text
        assert "commits no budget" in page
        assert "odds move at most 1 times" not in page
        promise = viewer.get("/ledger/promises/banner").text
        assert "a factor of at most 7.39" in promise
        assert "shown to anybody" in promise
        assert "interest: 2 labels, 2 nats, once" in viewer.get("/ledger").text
    site.service.experiments.create("own", arms=["a", "b"], segments=["s", "t"], budget=1)
    site.service.experiments.start("own")
    with site.signed_in("read") as viewer:
        promise = viewer.get("/ledger/promises/banner").text
        assert "given what earlier people were shown" in promise


def test_the_firms_statement_is_issued_from_its_page(site: Site) -> None:
    with site.signed_in("read", "privacy") as officer:
        assert 'href="/ledger/promises"' in officer.get("/labels").text
        assert "a factor of at most 7.39" in officer.get("/ledger/promises").text
        done = send(
            officer,
            "/ledger/promises",
            "/ledger/promises/documents",
            kind="statement",
            firm="Ex Ltd",
        )
        assert done.status_code == 303
        (issued,) = site.service.documents.all()
        assert (issued.kind, issued.experiment, issued.firm) == ("statement", "", "Ex Ltd")
        assert issued.number in officer.get("/ledger/promises").text
        assert (
            "a factor of at most 7.39"
            in officer.get(f"/ledger/documents/{issued.number}.html").text
        )
        assert officer.get("/ledger").status_code == 200
    with site.signed_in("read") as viewer:
        assert "/ledger/promises/documents" not in viewer.get("/ledger/promises").text

"""Ten spellings of one id are one visitor: one draw, one row, one erasure."""

from __future__ import annotations

import unicodedata

import pytest
from tests.promise.support import entries_of
from tests.service.support import running, serving

from deniable.errors import InvalidArgumentError

NAME = "Zo\u00eb-17"
SPELLINGS = [
    NAME,
    unicodedata.normalize("NFD", NAME),
    f" {NAME}",
    f"{NAME} ",
    f"  {NAME}  ",
    f"{NAME}\n",
    f"\r\n{NAME}",
    f"\t{NAME}\t",
    f"\u00a0{NAME}",
    unicodedata.normalize("NFD", NAME) + "\u2003",
]


def test_ten_spellings_are_one_draw(store_url: str) -> None:
    assert len(set(SPELLINGS)) == 10
    with serving(store_url) as service:
        running(service, "one")
        running(service, "two")
        assert len({service.decide("one", name, "a") for name in SPELLINGS}) == 1
        assert len(set(service.decide_batch("two", [(name, "b") for name in SPELLINGS]))) == 1
        assert [len(entries_of(service, key)) for key in ("one", "two")] == [1, 1]
        assert all(len(service.visitors.stored(name)) == 2 for name in SPELLINGS)
        assert service.visitors.erase([SPELLINGS[-1]]).decisions == 2
        assert not service.visitors.stored(NAME)


def test_capitals_and_marks_inside_tell_ids_apart(store_url: str) -> None:
    others = ["zo\u00eb-17", "Zoe-17", "Zo\u00eb 17", "Zo\u00eb-1 7"]
    with serving(store_url) as service:
        running(service, "one")
        ids = {service.decide("one", name, "a").id for name in (NAME, *others)}
        assert len(ids) == 1 + len(others)


def test_one_id_is_not_taken_for_a_list_of_letters() -> None:
    with serving("memory:") as service:
        running(service)
        service.decide_batch("checkout", [("ann", "a"), ("n", "a")])
        with pytest.raises(InvalidArgumentError, match="a list of visitor ids"):
            service.visitors.erase("ann")
        assert service.visitors.erase(["ann"]).decisions == 1

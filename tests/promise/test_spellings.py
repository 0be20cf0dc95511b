"""Ten spellings of one id are one visitor: one draw, one row, one erasure."""

from __future__ import annotations

import unicodedata

import pytest
from tests.promise.support import entries_of
from tests.service.support import running, serving

from deniable.errors import InvalidArgumentError
from deniable.service.ids import INVISIBLE, normalised

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


UNSEEN = [
    "Zo\u00eb\u200b-17",  # zero-width space
    "\ufeffZo\u00eb-17",  # byte order mark
    "Zo\u00eb\u00ad-17",  # soft hyphen
    "Zoe\u200d\u0308-17",  # between a letter and its mark
    "Zo\u00eb-1\x007",
    "Zo\u00eb-17\ufe0f",  # variation selector, which is no format character
    "Zo\u00eb-17\U000e0041",
    " \u200b Zo\u00eb-17",
]


def test_what_nobody_sees_makes_no_second_draw(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        first = service.decide("checkout", NAME, "a")
        assert {service.decide("checkout", name, "b") for name in UNSEEN} == {first}
        assert all(service.visitors.decisions(name) == {"checkout": first} for name in UNSEEN)
        assert service.visitors.erase([UNSEEN[0]]).decisions == 1
        # The tombstone is found too: no spelling is drawn at a risk again.
        again = {service.decide("checkout", name, "a") for name in UNSEEN}
        assert len(again) == 1
        assert [one.risk for one in service.visitors.stored(NAME)] == [0]


@pytest.mark.parametrize(
    "nothing", ["\u200b", " \x00 ", "\ufeff\ufeff", "\U000e0001", "\u2800", "\ufffc", "\U0001d159"]
)
def test_an_id_of_nothing_visible_is_refused(nothing: str) -> None:
    with serving("memory:") as service:
        running(service)
        with pytest.raises(InvalidArgumentError, match="not all blank or invisible"):
            service.decide("checkout", nothing, "a")


def test_every_control_and_format_character_is_removed() -> None:
    removed = {one for first, last in INVISIBLE for one in range(first, last + 1)}
    for number in range(0x110000):
        if unicodedata.category(chr(number)) in ("Cc", "Cf"):
            assert number in removed, hex(number)
    for number in range(0xD800):  # and what is left has its form at once
        once = normalised(f"a{chr(number)}\u0308b")
        assert normalised(once) == once


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

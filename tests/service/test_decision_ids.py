"""Decision ids: neighbours in the store, unrelated where they are shown."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from tests.service.support import clicks, running

from deniable.service.ids import DecisionIds
from deniable.service.service import Deniable
from deniable.storage.schema import decisions

KEY = b"k" * 32
N = 256


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_the_definition_once_more(experiment: bytes, stored: bytes) -> None:
    ids = DecisionIds(KEY, experiment)
    derived = hmac.new(KEY, b"deniable decision ids" + experiment, hashlib.sha256).digest()
    mask = hashlib.blake2b(stored[8:], key=derived, digest_size=4).digest()
    mark = bytes(a ^ b for a, b in zip(stored[4:8], mask, strict=True))
    assert ids.shown(stored) == (stored[:4] + mark + stored[8:]).hex()
    assert ids.stored(bytes.fromhex(ids.shown(stored))) == stored


def _stored_ids(service: Deniable) -> list[bytes]:
    with service._store.read() as connection:
        return list(connection.execute(select(decisions.c.id)).scalars())


def _look_unrelated(ids: list[bytes]) -> bool:
    """Whether nothing behind the tag says that these ids were made together.

    Each of the 32 bits of the mark is set for about half of them (the bound fails by chance once in
    1e15 for 256), and hardly any two marks are equal.
    """
    marks = [int.from_bytes(identity[4:8], "big") for identity in ids]
    ones = [sum(mark >> bit & 1 for mark in marks) for bit in range(32)]
    balanced = all(abs(count - len(ids) / 2) < 4.2 * len(ids) ** 0.5 for count in ones)
    return balanced and max(Counter(marks).values()) <= 2


def test_ids_of_one_batch_are_neighbours_inside_and_unrelated_outside(service: Deniable) -> None:
    running(service)
    answers = service.decide_batch("checkout", [(f"v-{n}", "a") for n in range(N)])
    shown = [bytes.fromhex(answer.id) for answer in answers]
    stored = _stored_ids(service)
    tag = bytes.fromhex(service.experiments.get("checkout").id)[:4]
    assert {identity[:4] for identity in shown} == {tag}
    assert len({identity[:8] for identity in stored}) == 1
    assert _look_unrelated(shown)
    assert not _look_unrelated(stored)  # the same check finds a mark that is not encrypted
    assert {identity[8:] for identity in shown} == {identity[8:] for identity in stored}


def test_another_key_shows_other_marks() -> None:
    stored = [b"tag!mark" + os.urandom(8) for _ in range(N)]
    one, other = DecisionIds(KEY, bytes(16)), DecisionIds(KEY, bytes(15) + b"\1")
    equal = sum(one.shown(identity) == other.shown(identity) for identity in stored)
    assert equal <= 2


def test_a_visitor_keeps_the_id(service: Deniable) -> None:
    running(service)
    first = service.decide("checkout", "v", "a")
    assert service.decide("checkout", "v", "b") == first
    assert service.visitors.decisions("v") == {"checkout": first}


def test_the_stored_form_names_no_decision(service: Deniable) -> None:
    running(service)
    shown = service.decide("checkout", "v", "a").id
    (stored,) = _stored_ids(service)
    service.reward(stored.hex(), 1)
    assert clicks(service) == 0
    service.reward_batch([(stored.hex(), 1), (shown, 1), (shown, 1)])
    assert clicks(service) == 1
    assert service.ledger.verify().sound

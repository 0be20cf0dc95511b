"""What is done once for all tests leaves the product as it is."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import literal, select
from tests import thrift

from deniable.storage import connect as connecting
from deniable.storage.connect import connect


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    dumped = list(connection.iterdump())
    connection.close()
    return dumped


def test_a_copied_store_is_what_the_migrations_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connecting._upgrade is not thrift.real_upgrade
    connect(f"sqlite:///{tmp_path / 'copied.db'}").close()
    monkeypatch.setattr(connecting, "_upgrade", thrift.real_upgrade)
    connect(f"sqlite:///{tmp_path / 'migrated.db'}").close()
    assert contents(tmp_path / "copied.db") == contents(tmp_path / "migrated.db")


def test_a_second_store_finds_its_statements_compiled(tmp_path: Path) -> None:
    statement = select(literal(tmp_path.name).label("of_this_test"))
    found = []
    for url in ("memory:", f"sqlite:///{tmp_path / 'store.db'}"):
        store = connect(url)
        with store.read() as connection:
            result = connection.execute(statement)
            found.append((result.context.cache_hit.name, result.scalar()))
        store.close()
    assert found == [("CACHE_MISS", tmp_path.name), ("CACHE_HIT", tmp_path.name)]


def test_a_chosen_place_for_temporary_files_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    thrift.scratch_in_memory()
    assert os.environ["TMPDIR"] == "/somewhere/else"


def test_every_worker_begins_with_its_share_of_the_long_tests() -> None:
    long = {3, 7, 8, 20, 21}
    order = thrift.long_ones_first(range(22), lambda test: test if test in long else None, 4)
    assert sorted(order) == list(range(22))
    parts, left = [], order
    for worker in range(4):  # as xdist does it
        size = len(left) // (4 - worker)
        parts.append(left[:size])
        left = left[size:]
    assert [[test for test in part if test in long] for part in parts] == [[3, 21], [7], [8], [20]]
    assert all(part[0] in long for part in parts)
    assert thrift.long_ones_first([1, 2], lambda test: test, workers=4) == [1, 2]


def test_long_tests_of_one_kind_stay_with_one_worker() -> None:
    kinds = {1: "a", 2: "b", 3: "a", 8: "c", 9: "a"}
    order = thrift.long_ones_first(range(12), kinds.get, workers=2)
    assert sorted(order) == list(range(12))
    assert order[:4] == [1, 3, 9, 8]
    assert order[6] == 2

"""What is done once for all tests leaves the product as it is."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from tests import thrift

from deniable.storage import migrate
from deniable.storage.connect import connect


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    dumped = list(connection.iterdump())
    connection.close()
    return dumped


def test_a_copied_store_is_what_the_migrations_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert migrate._upgrade is not thrift.real_upgrade
    connect(f"sqlite:///{tmp_path / 'copied.db'}").close()
    monkeypatch.setattr(migrate, "_upgrade", thrift.real_upgrade)
    connect(f"sqlite:///{tmp_path / 'migrated.db'}").close()
    assert contents(tmp_path / "copied.db") == contents(tmp_path / "migrated.db")


def test_a_chosen_place_for_temporary_files_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    thrift.scratch_in_memory()
    assert os.environ["TMPDIR"] == "/somewhere/else"

"""The file of the visitor key is for its owner alone, and the firm's limit is rounded down."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.service.ids import visitor_key
from deniable.service.service import open as open_service


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("DENIABLE_VISITOR_KEY", raising=False)
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_key_that_others_can_open_is_refused(url: str, tmp_path: Path, mode: int) -> None:
    key = visitor_key(url)
    file = tmp_path / "store.db.key"
    file.chmod(mode)
    with pytest.raises(WrongStateError, match="can be read by others: chmod 600"):
        visitor_key(url)
    file.chmod(0o400)
    assert visitor_key(url) == key


def test_a_new_key_is_private_under_any_mask(url: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        visitor_key(url)
    finally:
        os.umask(before)
    assert (tmp_path / "store.db.key").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["store.db.key"]


@pytest.mark.parametrize("text", ["ab" * 31, "xy" * 32, ""])
def test_short_keys_are_refused(url: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "store.db.key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(InvalidArgumentError, match="32 or more bytes"):
        visitor_key(url)


@pytest.mark.parametrize("budget", [0.1, 0.3, 1e-10, 2.0000000009])
def test_the_firms_limit_is_rounded_down(budget: float) -> None:
    with open_service("memory:") as service:
        assert service.firm.set(budget=budget).budget_nano == int(Fraction(str(budget)) * 10**9)

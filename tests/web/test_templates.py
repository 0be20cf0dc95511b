"""Compiled templates are kept, if there is a place for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.web import responses


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """An environment of this test's own."""
    responses.environment.cache_clear()
    yield
    responses.environment.cache_clear()


def loaded() -> str:
    responses.environment.cache_clear()
    made = responses.environment()
    return made.get_template(made.list_templates()[0]).name or ""


def test_they_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENIABLE_CACHE", str(tmp_path / "cache"))
    first = loaded()
    kept = [*(tmp_path / "cache" / "templates").iterdir()]
    assert len(kept) == 1
    with monkeypatch.context() as patch:
        patch.setattr("jinja2.Environment.compile", None)  # would fail if it were called
        assert loaded() == first


def test_without_a_place_they_are_compiled_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("no folder")
    monkeypatch.setenv("DENIABLE_CACHE", str(blocked))
    assert loaded() == loaded()
    assert blocked.read_text() == "no folder"

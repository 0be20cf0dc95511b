"""Specifications are made once, and found by everything that they depend on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from deniable.charts import cache as kept
from deniable.charts.experiments import regret_against_bound, spending_chart, totals_over_time
from deniable.strategies import STRATEGIES


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own."""
    monkeypatch.setenv("DENIABLE_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    """As in a new process."""
    kept.folder.cache_clear()
    kept._specification.cache_clear()


def test_a_kept_one_is_the_one_that_was_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kept.specification(totals_over_time, ("old", "new"), "visitors")
    assert made == totals_over_time(("old", "new"), "visitors").to_dict(validate=False)
    assert len([*cache.rglob("*.json")]) == 1
    forget()
    monkeypatch.setattr("altair.Chart", None)  # would fail if it were called
    assert kept.specification(totals_over_time, ("old", "new"), "visitors") == made


def test_every_argument_makes_another(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.specification(totals_over_time, ("old", "new"), "visitors")
    for arguments in ((("old", "newer"), "visitors"), (("old", "new"), "clicks")):
        found = kept.specification(totals_over_time, *arguments)
        assert found == totals_over_time(*arguments).to_dict(validate=False)
    kept.specification(regret_against_bound)
    kept.specification(spending_chart)
    assert len([*cache.rglob("*.json")]) == 5
    monkeypatch.setitem(STRATEGIES, "another", STRATEGIES["dynamic"])
    kept.specification(spending_chart)
    assert len([*cache.rglob("*.json")]) == 6


def test_another_release_finds_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.folder()
    for name, other in (("hash_of_sources", lambda _: "0" * 16), ("version", lambda _: "0.0")):
        with monkeypatch.context() as patch:
            patch.setattr(kept, name, other)
            kept.folder.cache_clear()
            assert kept.folder() != before


def test_a_file_that_was_cut_off_is_made_again(cache: Path) -> None:
    made = kept.specification(spending_chart)
    (file,) = cache.rglob("*.json")
    file.write_bytes(file.read_bytes()[:100])
    forget()
    assert kept.specification(spending_chart) == made
    assert len(file.read_bytes()) > 100


def test_they_do_not_grow_for_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_FILES", 3)
    for number in range(6):
        kept.specification(totals_over_time, (f"arm {number}",), "visitors")
    assert len([*cache.rglob("*.json")]) == 3


def test_without_a_place_they_are_made_every_time(cache: Path) -> None:
    cache.write_text("no folder")
    assert kept.specification(spending_chart) == spending_chart().to_dict(validate=False)
    assert cache.read_text() == "no folder"


def test_pages_start_without_the_chart_library() -> None:
    """Importing it takes as long as everything that a page needs besides."""
    program = """
import sys
from importlib import import_module
from deniable.web.pages import MODULES
for name in MODULES:
    import_module(f"deniable.web.{name}")
print(sorted({"altair", "scipy", "polars", "numba"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert told.stdout == "[]\n"

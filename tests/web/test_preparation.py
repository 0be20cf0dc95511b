"""What first visits would wait for is done after the start, while nobody looks."""

from __future__ import annotations

import time

import pytest
from tests.patience import PATIENCE

from deniable.service.http.app import create_app
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.web import pages
from deniable.web.pages import Preparation, mount


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait at the start, and hardly any between the parts."""
    monkeypatch.setattr(pages, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(pages, "QUIET_SECONDS", 0.01)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Parts that only note that they were done."""
    done: list[str] = []
    noted = tuple(lambda name=name: done.append(name) for name in ("first", "second", "third"))
    monkeypatch.setattr(pages, "PARTS", noted)
    return done


def test_all_parts_are_done_once_nobody_looks(hurried: None, parts: list[str]) -> None:
    made = Preparation(lambda: 0.0)
    made.start()
    made.join(PATIENCE)
    assert parts == ["first", "second", "third"]


def test_nothing_is_done_while_somebody_looks(hurried: None, parts: list[str]) -> None:
    asked: list[float] = []
    looking = True

    def seen_at() -> float:
        asked.append(time.monotonic() if looking else 0.0)
        return asked[-1]

    made = Preparation(seen_at)
    made.start()
    while len(asked) < 10 and made.is_alive():  # it looks ten times, and does nothing
        made.join(0.01)
    assert not parts
    looking = False
    made.join(PATIENCE)
    assert parts == ["first", "second", "third"]


def test_it_ends_with_the_application(parts: list[str]) -> None:
    made = Preparation(lambda: 0.0)
    made.start()
    made.end()
    made.join(PATIENCE)
    assert not made.is_alive()
    assert not parts


def test_the_parts_work() -> None:
    for part in pages.PARTS:
        part()


def test_pages_bring_it_and_a_service_without_pages_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "PARTS", None)  # nothing is done before it is started
    with open_service("memory:") as service:
        assert not create_app(service).companions
        assert _preparations(service) == 1


def _preparations(service: Deniable) -> int:
    companions = mount(create_app(service)).companions
    return sum(isinstance(one, Preparation) for one in companions)

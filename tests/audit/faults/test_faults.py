"""Every planted fault is caught by all that claim to, and a sound service by nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.faults.catchers import CATCHERS, world
from tests.audit.faults.plants import FAULTS, Fault
from tests.audit.faults.table import table
from tests.audit.levels import strict

from deniable.audit.checks import broken

PAIRS = [(fault, name) for fault in FAULTS for name in fault.caught_by]


@pytest.mark.parametrize("name", CATCHERS)
def test_nothing_is_found_on_a_sound_service(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict(monkeypatch)
    with world(tmp_path) as sound:
        assert not CATCHERS[name](sound)


@pytest.mark.parametrize(("fault", "name"), PAIRS, ids=[f"{f.name}-{n}" for f, n in PAIRS])
def test_every_fault_is_caught(
    fault: Fault, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fault.running:
        fault.plant(monkeypatch)
    with world(tmp_path, decisions=fault.decisions, arms=fault.arms) as faulty:
        if fault.running:
            fault.plant(monkeypatch)
        fault.afterwards(faulty)
        assert CATCHERS[name](faulty)
        if name == "audit experiment" and fault.checks:
            assert set(fault.checks) <= set(broken(faulty.service.audits.run("checkout").checks))


def test_every_fault_has_a_catcher_and_every_audit_a_fault() -> None:
    assert all(fault.caught_by for fault in FAULTS)
    assert {name for fault in FAULTS for name in fault.caught_by} == set(CATCHERS)


def test_the_documentation_shows_this_table() -> None:
    page = Path(__file__).with_name("README.md")
    assert table() in page.read_text(encoding="utf-8")

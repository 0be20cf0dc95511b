"""`deniable audit`: its subcommands, the short form for experiments, and keys that are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

from deniable.cli import main
from deniable.cli.audit import SUBCOMMANDS
from deniable.errors import InvalidArgumentError
from deniable.service import drafts
from deniable.service.drafts import RESERVED_KEYS
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.schema import decisions

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("DENIABLE_VISITOR_KEY", raising=False)
    found = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("DENIABLE_STORE", found)
    with open_service(found) as service:
        service.firm.set(budget=3)
        begin(service, "checkout")
    return found


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: str) -> tuple[int, str, str]:
        status = main(["audit", *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return called


def begin(service: Deniable, key: str, visitors: int = 60) -> None:
    service.experiments.create(key, arms=["old", "new"], segments=["a", "b"], budget=1)
    service.experiments.start(key)
    service.decide_batch(key, [(f"v{n}", "ab"[n % 2]) for n in range(visitors)])


def one_line(error: str) -> bool:
    return error.startswith("error: ") and error.count("\n") == 1


def test_the_short_form_is_the_audit_of_an_experiment(url: str, call: Call) -> None:
    for arguments in (("checkout",), ("experiment", "checkout"), ("--store", url, "checkout")):
        status, told, _ = call(*arguments)
        assert status == 0
        assert "Audit of checkout" in told


def test_help_names_every_subcommand(call: Call) -> None:
    status, told, _ = call("--help")
    assert status == 0
    assert all(name in told for name in SUBCOMMANDS)


def test_every_subcommand_is_a_reserved_key() -> None:
    assert set(SUBCOMMANDS) <= set(RESERVED_KEYS)


@pytest.mark.parametrize("key", RESERVED_KEYS)
def test_new_experiments_may_not_have_the_name_of_a_subcommand(key: str) -> None:
    with open_service("memory:") as service:
        with pytest.raises(InvalidArgumentError, match="reserves this one"):
            service.experiments.create(key, arms=["x", "y"], segments=["s"], budget=1)
        service.experiments.create(f"{key}2", arms=["x", "y"], segments=["s"], budget=1)
    created = ["experiment", "create", key, "--arm", "x", "--arm", "y", "--segment", "s"]
    assert main([*created, "--budget", "1"]) == 2


def test_an_older_experiment_with_such_a_key_is_still_audited(
    url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older, open_service(url) as service:
        older.setattr(drafts, "RESERVED_KEYS", ())
        begin(service, "firm")
    status, told, _ = call("experiment", "firm")
    assert status == 0
    assert "Audit of firm" in told
    with open_service(url) as service:
        assert service.decide("firm", "v0", "a").arm in ("old", "new")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("experiment", "nothing"),
        ("experiment",),
        ("experiment", "checkout", "--store", "sqlite:///none/none.db"),
        ("checkout", "--store", "mysql://localhost/x"),
        ("checkout", "--loud"),
        ("checkout", "--chart", "chart.gif"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], url: str, call: Call) -> None:
    status, _, error = call(*arguments)
    assert status == 2
    assert one_line(error)


def test_a_changed_row_is_status_one(url: str, call: Call) -> None:
    with open_service(url) as service, service._store.begin() as connection:
        connection.execute(update(decisions).values(shown=0))
    assert call("checkout")[0] == 1

"""`deniable audit`: its subcommands, the short form for experiments, and keys that are taken."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.cli.calling import Call, caller, new_store

from deniable.cli import main
from deniable.cli.audit import SUBCOMMANDS
from deniable.errors import InvalidArgumentError
from deniable.service import drafts
from deniable.service.drafts import RESERVED_KEYS
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import account
from deniable.storage.schema import decisions

pytestmark = pytest.mark.usefixtures("strict_audits")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = new_store(tmp_path, monkeypatch)
    with open_service(found) as service:
        service.firm.set(budget=3)
        begin(service, "checkout")
    return found


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys, "audit")


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
        ("checkout", "--out", "report.doc"),
        ("firm", "--out", "none/report.html"),
        ("firm", "checkout"),
        ("firm", "--store", "sqlite:///none/none.db"),
        ("firm", "--store", "postgresql://nobody@127.0.0.1:1/none"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], url: str, call: Call) -> None:
    status, _, error = call(*arguments)
    assert status == 2
    assert one_line(error)


def change(url: str, statement: str) -> None:
    with open_service(url) as service, service._store.begin() as connection:
        connection.exec_driver_sql(statement)


def test_the_firm_is_kept(url: str, call: Call) -> None:
    status, told, _ = call("firm")
    assert status == 0
    assert "The firm's promise is kept, over 1 experiment and 60 decisions." in told
    figures = json.loads(call("firm", "--json")[1])
    assert figures["sound"] is True
    assert [(one["budget"], one["peak"]) for one in figures["settings"]] == [(3.0, 1.0)]
    assert figures["experiments"][0]["key"] == "checkout"
    assert set(figures["heads"]) > {"commitments"}


@pytest.mark.parametrize(
    ("what", "statement"),
    [
        ("the ledger", "UPDATE decisions SET shown = 1 - shown WHERE seq = 7"),
        ("the ledger", "DELETE FROM decisions WHERE seq = 60"),
        ("the ledger", "UPDATE commitments SET amount_nano = 1 WHERE kind = 'start'"),
        ("every experiment's promise", "UPDATE experiments SET budget_nano = 2000000000"),
        ("every experiment's promise", "UPDATE experiments SET status = 'stopped'"),
        ("every experiment's promise", "UPDATE tables SET decisions = 5 WHERE number = 1"),
        ("every experiment's promise", "UPDATE answers SET hour = hour - 24"),
        ("every experiment's promise", "INSERT INTO tombstones SELECT id, id, 1 FROM experiments"),
    ],
)
def test_a_store_changed_by_hand_is_status_one(
    url: str, call: Call, what: str, statement: str
) -> None:
    change(url, statement)
    status, told, _ = call("firm", "--json")
    assert status == 1
    broken = [c["name"] for c in json.loads(told)["checks"] if c["outcome"] == "broken"]
    assert what in broken
    if "answers" not in statement:  # what the firm counts, not what this experiment drew
        assert call("checkout")[0] == 1


def test_a_budget_beyond_the_firms_is_status_one(
    url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service forgets to add up: its chain holds, and what it says is too much."""
    with monkeypatch.context() as faulty, open_service(url) as service:
        faulty.setattr(account, "total_nano", lambda counting: 0)
        for number in range(3):
            begin(service, f"more-{number}", visitors=4)
        assert service.ledger.verify().sound
    status, told, _ = call("firm")
    assert status == 1
    assert "NOT kept: every window" in told
    assert "4 nats counted at once" in " ".join(told.split())
    assert call("checkout")[0] == 1


def test_verdicts_are_chained_with_their_power(url: str, call: Call) -> None:
    assert call("checkout", "--record")[0] == 0
    assert call("firm", "--record")[0] == 0
    with open_service(url) as service:
        one, firm = service.ledger.entries()[-2:]
        assert service.ledger.verify().sound
    assert (one.kind, one.experiment, firm.kind, firm.experiment) == (
        *("audit", "checkout"),
        *("audit", None),
    )
    assert "draws" in json.loads(one.detail)["power"]
    assert json.loads(one.detail)["figures"]["power"] == 0.99
    assert json.loads(firm.detail)["peak_nano"] == 10**9
    lines = json.loads(call("firm", "--json")[1])["experiments"]
    assert lines[0]["audited"]["sound"] is True


def test_a_report_is_a_file_of_its_own(url: str, call: Call, tmp_path: Path) -> None:
    one, firm = tmp_path / "one.html", tmp_path / "firm.html"
    assert call("checkout", "--out", str(one))[0] == 0
    assert call("firm", "--out", str(firm))[0] == 0
    for path in (one, firm):
        page = path.read_text("utf-8")
        assert "<svg" in page
        assert "Heads of the chains" in page
        assert "What is outside" in page
        fetched = re.findall(r"(?:src|href)\s*=\s*[\"']?(?!#)[^\"'> ]+|url\((?!#)", page)
        assert not [one for one in fetched if "#" not in one]
        assert "<script" not in page
    change(url, "UPDATE decisions SET shown = 0")
    assert call("checkout", "--out", str(one))[0] == 1
    assert "NOT kept" in one.read_text("utf-8")


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize("what", ["checkout", "firm"])
def test_nobody_has_to_read_the_output(
    what: str, more: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    """`deniable audit ... | head`: the report is written, and the exit status is the verdict."""
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "deniable", "audit", what, "--store", url]
    for status in (0, 1):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([*command, "--out", str(report), *more], stdout=writing, check=False)
        os.close(writing)
        assert done.returncode == status
        assert "Heads of the chains" in report.read_text("utf-8")
        report.unlink()
        change(url, "UPDATE decisions SET shown = 0")


def test_a_pdf_needs_chromium(
    url: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("chromium") is not None:
        assert call("checkout", "--out", str(tmp_path / "one.pdf"))[0] == 0
        assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    status, _, error = call("checkout", "--out", str(tmp_path / "two.pdf"))
    assert status == 2
    assert one_line(error)
    assert "Chromium" in error


def test_a_changed_row_is_status_one(url: str, call: Call) -> None:
    with open_service(url) as service, service._store.begin() as connection:
        connection.execute(update(decisions).values(shown=0))
    assert call("checkout")[0] == 1

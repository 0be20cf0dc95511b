"""`deniable document`: issue, write again, verify; every mistake is one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.cli.calling import Call, caller, new_store

from deniable.service.service import open as open_service


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = new_store(tmp_path, monkeypatch)
    with open_service(found) as service:
        service.firm.set(budget=3)
        for key in ("checkout", "later"):
            service.experiments.create(key, arms=["old", "new"], segments=["a", "b"], budget=1)
        service.experiments.start("checkout")
    return found


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys, "document")


@pytest.mark.parametrize("kind", ["statement", "dpia", "registry", "record"])
@pytest.mark.parametrize("ending", ["html", "md"])
def test_issue_write_again_and_verify(
    url: str, call: Call, tmp_path: Path, kind: str, ending: str
) -> None:
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    status, out, told = call("checkout", "--as", kind, "--firm", "Example Ltd", "--out", str(first))
    assert (status, out) == (0, "")
    number = re.findall(r"issued: (\d{4}-0001), entry \d+ of the ledger", told)[0]
    assert number in first.read_text("utf-8")
    assert "Example Ltd" in first.read_text("utf-8")
    assert call("--number", number, "--out", str(second))[0] == 0
    assert first.read_bytes() == second.read_bytes()
    status, out, _ = call("--verify", str(first))
    assert status == 0
    assert f"This is document {number} ({kind} about checkout), unchanged" in out
    first.write_text(first.read_text("utf-8").replace("3 nats", "2 nats") + " ", "utf-8")
    status, out, told = call("--verify", str(first))
    assert (status, out) == (1, "")
    assert f"names document {number}, but it was changed" in told


def test_markdown_is_printed_without_a_file(url: str, call: Call) -> None:
    status, out, _ = call("checkout", "--as", "registry", "--draft")
    assert status == 0
    assert out.startswith("# Register of differential-privacy deployments: “checkout”\n")
    assert "Draft. It was not issued" in out
    assert json.loads(call("--list", "--json")[1]) == []


def test_a_draft_at_an_entry(url: str, call: Call, tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    with open_service(url) as service:
        height = str(len(service.ledger.entries()))
    assert call("checkout", "--as", "statement", "--at", height, "--out", str(one))[0] == 0
    with open_service(url) as service:
        service.experiments.stop("checkout")
    assert call("checkout", "--as", "statement", "--at", height, "--out", str(two))[0] == 0
    assert one.read_bytes() == two.read_bytes()


def test_the_list(url: str, call: Call) -> None:
    call("checkout", "--as", "record", "--by", "ada")
    call("checkout", "--as", "dpia", "--json")
    found = json.loads(call("--list", "--json")[1])
    assert [(one["kind"], one["number"][-4:]) for one in found] == [
        ("record", "0001"),
        ("dpia", "0002"),
    ]
    assert found[0]["actor"] == "ada"
    assert "0002" in call("checkout", "--list")[1]
    assert "0002" not in call("later", "--list")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing", "--as", "statement"), "no experiment is called 'nothing'"),
        (("checkout", "--as", "poem"), "one of statement, dpia, registry, record"),
        (("checkout",), "one of statement, dpia, registry, record"),
        (("--as", "statement"), "no labels count in the firm's account"),
        (("later", "--as", "statement"), "'later' was never started"),
        (("later", "--as", "record", "--draft"), "'later' was never started"),
        (("--number", "2019-0001"), "no document is called '2019-0001'"),
        (("--verify", "no-such-file.html"), "No such file"),
        (("checkout", "--as", "dpia", "--out", "x.docx"), "ends in .html or .pdf or .md"),
        (("checkout", "--as", "dpia", "--out", "no/where.md"), "a folder that exists"),
        (("checkout", "--as", "dpia", "--at", "999"), "an entry of the ledger"),
        (("checkout", "--as", "dpia", "--at", "-1"), "an entry of the ledger"),
        (("checkout", "--number", "2026-0001"), "no experiment and no --as"),
        (("--list", "--number", "2026-0001"), "one of --number, --verify, --list"),
        (("checkout", "--as", "record", "--firm", "a\nb"), "printable text"),
    ],
)
def test_mistakes_are_one_line(
    url: str, call: Call, arguments: tuple[str, ...], words: str
) -> None:
    status, out, told = call(*arguments)
    assert (status, out) == (2, "")
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert words in told
    assert json.loads(call("--list", "--json")[1]) == []


def test_a_pdf_is_printed_and_verified(url: str, call: Call, tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("PDFS NOT TESTED: no Chromium; apt-get install chromium")
    path = tmp_path / "statement.pdf"
    assert call("checkout", "--as", "statement", "--out", str(path))[0] == 0
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    status, out, _ = call("--verify", str(path))
    assert status == 0, out
    assert "as this Chromium prints it" in out
    path.write_bytes(content.replace(b"/Type /Page\n", b"/Type /Page ", 1))
    assert path.read_bytes() != content
    status, _, told = call("--verify", str(path))
    assert status == 1
    assert "is not what this Chromium prints of it" in told


def test_a_pdf_needs_chromium_before_a_number_is_taken(
    url: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    status, _, told = call("checkout", "--as", "statement", "--out", str(tmp_path / "one.pdf"))
    assert status == 2
    assert "Chromium" in told
    assert json.loads(call("--list", "--json")[1]) == []

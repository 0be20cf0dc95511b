"""`deniable mask`: as a stranger would use it, and every mistake in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import failed, ok

from deniable.masks.definition import KEY_VARIABLE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    (tmp_path / "people.csv").write_text("visitor,segment\nv-1,sports\nv-2,music\nv-3,\n")
    return tmp_path


MAKE = ("mask", "create", "interest", "--segments", "sports,music,garden", "--budget", "2")
KEY = ("--key-file", "key.hex")
FILE = "interest.mask.json"


def test_from_a_key_to_audited_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "3 labels, budget 2" in ok(capsys, *MAKE, *KEY, "--new-key")
    assert (folder / "key.hex").stat().st_mode & 0o777 == 0o600
    shown = ok(capsys, "mask", "show", FILE, *KEY, "--shares", "50,30,20", "--chart", "label.svg")
    assert "20% sure of someone's segment can become at most 64.9% sure" in shown
    assert "<svg" in (folder / "label.svg").read_text()
    vector = json.loads(ok(capsys, "mask", "check", FILE, *KEY, "--json"))
    assert len(vector) == 9
    first = ("--first-values", "first.parquet")
    told = ok(capsys, "mask", "label", FILE, "people.csv", "--out", "out.csv", *KEY, *first)
    assert "Rows without a segment (labels from equal chances): 1" in told
    assert (
        (folder / "out.csv").read_text().startswith("visitor,segment,interest_label\nv-1,sports,~")
    )
    assert "as promised" in ok(capsys, "mask", "audit", FILE, "out.csv", *KEY, *first)


def test_an_audit_of_changed_labels_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from deniable.cli import main

    ok(capsys, *MAKE, *KEY, "--new-key")
    ok(capsys, "mask", "label", FILE, "people.csv", "--out", "out.csv", *KEY)
    text = (folder / "out.csv").read_text()
    (folder / "out.csv").write_text(text.replace("v-1,sports,", "v-9,sports,").replace("~", "~x"))
    assert main(["mask", "audit", FILE, "out.csv", *KEY]) == 1
    assert "NOT as promised" in capsys.readouterr().out


def test_sql_keeps_the_key_out_of_the_statement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ok(capsys, *MAKE, *KEY, "--new-key")
    options = ("--dialect", "duckdb", "--key-csv", "pads.csv")
    statement = ok(capsys, "mask", "sql", FILE, *KEY, *options)
    assert (folder / "pads.csv").stat().st_mode & 0o777 == 0o600
    inner, outer = (folder / "pads.csv").read_text().splitlines()[1].split(",")
    assert inner not in statement
    assert outer not in statement
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("CREATE TABLE deniable_mask_key AS FROM read_csv('pads.csv')")
        engine.execute("CREATE TABLE visitors AS FROM read_csv('people.csv')")
        labelled = dict(engine.execute(statement).fetchall())
    ok(capsys, "mask", "label", FILE, "people.csv", "--out", "out.csv", *KEY)
    rows = [line.split(",") for line in (folder / "out.csv").read_text().splitlines()[1:]]
    assert labelled == {visitor: label for visitor, _, label in rows}


def test_groups_by_hand_and_by_shares(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ok(capsys, *MAKE, *KEY, "--new-key")
    by_hand = ("--group", "outdoor=sports,garden", "--group", "music=music", "--out", "hand.json")
    assert "2 labels" in ok(capsys, *MAKE, *KEY, *by_hand)
    assert "2 labels" in ok(
        capsys, "mask", "create", "small", "--segments", "a,b,c", "--budget", ".5",
        "--shares", "50,40,10", *KEY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*MAKE,), "no key: name a file with --key-file, or set DENIABLE_MASK_KEY"),
        ((*MAKE[:-1], "0", *KEY), "budget"),
        ((*MAKE[:-1], "two", *KEY), "budget"),
        ((*MAKE, "--shares", "50,30", *KEY), "3 whole percents that sum to 100"),
        ((*MAKE, "--group", "outdoor", *KEY), "LABEL=segment,segment"),
        ((*MAKE, "--group", "a=sports", "--group", "b=music", *KEY), "every segment in one group"),
        (("mask", "show", "none.json", *KEY), "key.hex: No such file"),
        ((*MAKE, *KEY, "--new-key", "--out", "no/such/folder.json"), "a folder that exists"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in failed(capsys, *arguments)
    assert [path.name for path in folder.iterdir()] == ["people.csv"]


def test_changes_under_one_version_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ok(capsys, *MAKE, *KEY, "--new-key")
    before = (folder / FILE).read_text()
    assert "needs --version 2" in failed(capsys, *MAKE[:-1], "3", *KEY)
    assert (folder / FILE).read_text() == before
    (folder / FILE).write_text(before.replace('"2"', '"3"'))
    assert "changed under version 1" in failed(capsys, "mask", "show", FILE, *KEY)
    (folder / FILE).write_text(before[:50])
    assert "not a mask's file" in failed(capsys, "mask", "show", FILE, *KEY)


def test_keys_are_guarded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(capsys, *MAKE, *KEY, "--new-key")
    secret = (folder / "key.hex").read_text().strip()
    assert "File exists" in failed(capsys, *MAKE, *KEY, "--new-key")
    (folder / "key.hex").chmod(0o640)
    refused = failed(capsys, "mask", "show", FILE, *KEY)
    assert "others can read the key" in refused
    monkeypatch.setenv(KEY_VARIABLE, secret)
    assert secret not in ok(capsys, "mask", "show", FILE)
    monkeypatch.setenv(KEY_VARIABLE, "00" * 32)
    assert "a new key needs a new --period" in failed(capsys, *MAKE)
    assert "another key draws every label again" in failed(capsys, "mask", "show", FILE)
    monkeypatch.setenv(KEY_VARIABLE, secret[:-2])
    refused = failed(capsys, "mask", "show", FILE)
    assert "64 hex digits" in refused
    assert secret[:8] not in refused

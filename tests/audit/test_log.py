"""An exported log is audited from the file alone; whatever is done to it, the first bad row is named."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest
from tests.audit.levels import strict
from tests.audit.recipes import publishes
from tests.promise.support import taught
from tests.service.support import running, serving

from deniable.audit import log_blocks
from deniable.audit.log import LogAudit, audit_log
from deniable.audit.log_experiment import Visitors
from deniable.cli import main
from deniable.errors import InvalidArgumentError
from deniable.service.service import Deniable

Lines = list[list[str]]
ENDINGS = ("parquet", "csv", "csv.gz", "jsonl", "jsonl.gz")
KIND, WRITER, SEQ, EXPERIMENT, ID, VERSION, TABLE = range(7)
ROLE, TIME, VISITOR, SALT, SEGMENT, SHOWN, METRIC, VALUE, COMMITMENT, HASH, DETAIL = range(7, 18)


def filled(service: Deniable) -> None:
    """Two experiments whose decisions and rewards are interleaved in one chain, and an erasure."""
    for key in ("one", "two"):
        running(service, key, strategy="dynamic")
    for turn in range(3):
        for key in ("one", "two"):
            taught(service, key, {"a": "old", "b": "new"}, visitors=60, name=f"{turn}")
    service.visitors.erase(["0a7", "1b9"])


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    strict(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of all formats, of the firm (`all`) and of one experiment (`one`)."""
    found = tmp_path_factory.mktemp("logs")
    with serving("memory:") as service:
        filled(service)
        heads = service.ledger.verify().heads
        for ending in ENDINGS:
            for about, key in (("all", None), ("one", "one")):
                service.ledger.export_log(found / f"{about}.{ending}", experiment=key)
                ends = service.ledger.verify().heads  # exporting is an entry, too
                (found / f"{about}.{ending}.heads").write_text(json.dumps(ends))
    (found / "heads.json").write_text(json.dumps(heads))
    return found


def lines_of(path: Path) -> Lines:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def changed(folder: Path, tmp_path: Path, change: Callable[[Lines], object]) -> LogAudit:
    """The audit of the firm's log after somebody edited it; line 0 is the header."""
    lines = lines_of(folder / "all.csv")
    change(lines)
    path = tmp_path / "edited.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    return audit_log(path)


def nth(lines: Lines, kind: str, place: int) -> int:
    return [number for number, line in enumerate(lines) if line[KIND] == kind][place]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("about", ["all", "one"])
def test_a_sound_log_holds_in_every_format(folder: Path, about: str, ending: str) -> None:
    found = audit_log(folder / f"{about}.{ending}")
    assert found.sound, found.verdict
    assert found.decisions == 1200
    # Two visitors were erased in both experiments; of one experiment's log the other one is closed.
    assert found.closed == (4 if about == "all" else 2 + 600)
    assert [one.key for one in found.experiments] == (["one", "two"] if about == "all" else ["one"])
    assert all(one.decisions == 598 for one in found.experiments)
    assert found.heads == json.loads((folder / f"{about}.{ending}.heads").read_text())


def test_links_are_those_of_an_independent_encoding(folder: Path) -> None:
    """Recomputed here from the documented layout alone, row by row."""
    links: dict[str, bytes] = {}
    for line in lines_of(folder / "all.csv")[1:]:
        if line[KIND] not in "DR":
            continue
        writer, seq, at = int(line[WRITER]), int(line[SEQ]), int(line[TIME])
        raw = {place: bytes.fromhex(line[place]) for place in (3, 4, VISITOR, SALT, COMMITMENT)}
        if line[KIND] == "D":
            committed = (
                raw[COMMITMENT]
                or sha256(
                    raw[VISITOR] + raw[SALT] + pack(">hh", int(line[SEGMENT]), int(line[SHOWN]))
                ).digest()
            )
            middle = pack(">IIh", *map(int, line[VERSION : ROLE + 1]))
        else:
            committed = (
                raw[COMMITMENT]
                or sha256(raw[SALT] + pack(">hq", int(line[METRIC]), int(line[VALUE]))).digest()
            )
            middle = pack(">h", int(line[METRIC]))
        before = links.get(line[WRITER], bytes(32)) + line[KIND].encode()
        link = sha256(before + raw[3] + raw[4] + middle + pack(">qiq", at, writer, seq) + committed)
        assert link.hexdigest() == line[HASH]
        links[line[WRITER]] = link.digest()
    assert links


def test_no_raw_visitor_and_no_open_row_of_another_experiment(folder: Path) -> None:
    text = (folder / "one.jsonl").read_text()
    assert "0a8" not in [json.loads(line).get("visitor") for line in text.splitlines()]
    others = [
        row
        for row in map(json.loads, text.splitlines())
        if row["kind"] == "D" and row["experiment"] != _about(text)[0]
    ]
    assert others
    assert not any({"visitor", "salt", "segment", "shown"} & row.keys() for row in others)


def _about(text: str) -> Any:
    return json.loads(json.loads(text.splitlines()[0])["detail"])["experiments"]


EDITS: dict[str, tuple[str, int, int, str]] = {
    "segment": ("D", 100, SEGMENT, "1"),
    "segment beyond 16 bits": ("D", 100, SEGMENT, "65536"),
    "arm": ("D", 100, SHOWN, "0"),
    "visitor": ("D", 100, VISITOR, "ab" * 16),
    "salt": ("D", 100, SALT, "ab" * 16),
    "table": ("D", 100, TABLE, "2"),
    "role": ("D", 100, ROLE, "1"),
    "time": ("D", 100, TIME, "1"),
    "decision id": ("D", 100, ID, "ab" * 16),
    "link": ("D", 100, HASH, "ab" * 32),
    "text where a number belongs": ("D", 100, SEGMENT, "a"),
    "half of a link": ("D", 100, HASH, "ab" * 16),
    "an empty cell": ("D", 100, SALT, ""),
    "a cell that should be empty": ("D", 100, VALUE, "7"),
    "reward": ("R", 50, VALUE, "7"),
    "metric": ("R", 50, METRIC, "1"),
    "commitment's amount": ("C", 3, VALUE, "7"),
    "commitment's time": ("C", 3, TIME, "7"),
    "kind": ("D", 100, KIND, "R"),
    "unknown kind": ("D", 100, KIND, "X"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_row_is_named(folder: Path, tmp_path: Path, what: str) -> None:
    kind, place, column, value = EDITS[what]
    bad = nth(lines_of(folder / "all.csv"), kind, place)

    def edit(lines: Lines) -> None:
        old = lines[bad][column]
        lines[bad][column] = value if old != value else "2" if column == SHOWN else "0"

    found = changed(folder, tmp_path, edit)
    assert not found.sound
    assert found.row == bad
    assert f"row {bad:,}" in (found.problem or "")


def _promise(lines: Lines) -> None:
    row = nth(lines, "C", 2)
    lines[row][DETAIL] = lines[row][DETAIL].replace("1000000000", "5000000000")


def _table_counts(lines: Lines) -> None:
    row = nth(lines, "T", 1)
    lines[row][DETAIL] = lines[row][DETAIL].replace("1", "2", 1)


WHOLE: dict[str, tuple[Callable[[Lines], object], str, int]] = {
    "promise": (_promise, "C", 2),
    "table": (_table_counts, "T", 1),
    "swapped": (lambda rows: rows.insert(nth(rows, "D", 40), rows.pop(nth(rows, "D", 40) + 1)), "D", 40),
    "twice": (lambda rows: rows.insert(nth(rows, "D", 40), rows[nth(rows, "D", 40)]), "D", 41),
    "removed": (lambda rows: rows.pop(nth(rows, "D", 40)), "D", 40),
    "first removed": (lambda rows: rows.pop(nth(rows, "D", 0)), "D", 0),
    "reward removed": (lambda rows: rows.pop(nth(rows, "R", 9)), "R", 9),
    "commitment removed": (lambda rows: rows.pop(nth(rows, "C", 4)), "C", 4),
    "table there twice": (lambda rows: rows.insert(nth(rows, "T", 1), rows[nth(rows, "T", 1)]), "T", 2),
}  # fmt: skip


@pytest.mark.parametrize("what", WHOLE)
def test_removed_added_and_moved_rows_are_named(folder: Path, tmp_path: Path, what: str) -> None:
    change, kind, place = WHOLE[what]
    lines = lines_of(folder / "all.csv")
    wanted = nth(lines, kind, 0) + place if kind != "D" else nth(lines, "D", place)
    found = changed(folder, tmp_path, change)
    assert not found.sound
    assert found.row is not None
    # Behind a row that was removed, the next one is the first that cannot be.
    near = {wanted, wanted - 1, wanted + 1, nth(lines, kind, place)}
    assert found.row in near, (found.problem, wanted)


def _without(cut: slice, rows: Lines) -> None:
    del rows[cut]


def test_the_end_of_a_log_cannot_be_cut_off(folder: Path, tmp_path: Path) -> None:
    lines = lines_of(folder / "all.csv")
    for keep in (2, nth(lines, "C", 5), nth(lines, "D", 7), nth(lines, "E", 0), len(lines) - 1):
        cut = slice(keep, None)
        found = changed(folder, tmp_path, partial(_without, cut))
        assert not found.sound
        assert found.row == keep - 1
        assert "removed" in (found.problem or "")
    without = changed(folder, tmp_path, lambda rows: rows.pop(nth(rows, "T", 2)))
    assert not without.sound


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz"])
def test_a_file_cut_off_anywhere_does_not_hold(folder: Path, tmp_path: Path, ending: str) -> None:
    whole = (folder / f"all.{ending}").read_bytes()
    for share in (0.5, 0.9, 0.999):
        path = tmp_path / f"cut.{ending}"
        path.write_bytes(whole[: int(len(whole) * share)])
        found = audit_log(path)
        assert not found.sound
        assert found.row is not None


def test_chains_that_were_all_recomputed_show_in_heads_noted_elsewhere(folder: Path) -> None:
    earlier: dict[str, str] = json.loads((folder / "heads.json").read_text())
    assert audit_log(folder / "all.parquet", noted=earlier).sound
    heads: dict[str, str] = json.loads((folder / "all.parquet.heads").read_text())
    assert audit_log(folder / "all.parquet", noted=heads).sound
    for chain, head in heads.items():
        length, _, link = head.partition(":")
        other = audit_log(folder / "all.parquet", noted={chain: f"{length}:{'0' * len(link)}"})
        assert "no longer holds the head" in (other.problem or "")
        longer = audit_log(folder / "all.parquet", noted={chain: f"{int(length) + 1}:{link}"})
        assert f"chain {chain} ends at" in (longer.problem or "")
    assert not audit_log(folder / "all.parquet", noted={"12345": "3:00"}).sound


def test_the_blocks_of_a_log_do_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {ending: audit_log(folder / f"all.{ending}").to_dict() for ending in ENDINGS}
    monkeypatch.setattr(log_blocks, "_ROWS", 101)
    monkeypatch.setattr(log_blocks, "_BYTES", 20_000)
    monkeypatch.setattr(log_blocks, "_PART", 7_000)
    for ending in ENDINGS:
        assert audit_log(folder / f"all.{ending}").to_dict() == whole[ending]


def test_a_table_above_its_budget_is_found_where_all_links_hold(tmp_path: Path) -> None:
    """A store whose owner publishes and chains what breaks the promise: links say nothing, sums do."""
    import deniable.storage.promises as promises
    from deniable.privacy.tables import Table

    with pytest.MonkeyPatch.context() as patch:
        much, little = 15 * 2**60, 2**60
        loose = Table(rows=((much, little), (little, much)), unlisted=(2**63, 2**63))
        publishes(patch, lambda _recipe, _counts: loose)
        patch.setattr(promises, "check_table", lambda *_: None)
        with serving("memory:") as service:
            service.experiments.create("e", arms=["x", "y"], segments=["a", "b"], budget=1)
            service.experiments.start("e")
            service.ledger.export_log(tmp_path / "log.parquet")
    found = audit_log(tmp_path / "log.parquet")
    assert found.problem is None
    assert not found.sound
    assert found.experiments[0].checks[0].outcome == "broken"


def test_draws_that_do_not_follow_their_tables_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.service import batch

    monkeypatch.setattr(batch, "draw", lambda row, point: int(point < 1.4 * row[0]))
    with serving("memory:") as service:
        service.experiments.create("e", arms=["x", "y"], segments=["a", "b"], budget=1)
        service.experiments.start("e")
        service.decide_batch("e", [(f"v{i}", "a") for i in range(900)])
        service.ledger.export_log(tmp_path / "log.parquet")
    found = audit_log(tmp_path / "log.parquet")
    assert found.problem is None
    assert [check.name for check in found.experiments[0].checks if check.outcome == "broken"] == [
        "draws"
    ]


def test_visitors_with_two_decisions_are_found_exactly() -> None:
    rng = np.random.default_rng(5)
    many = [rng.bytes(16) for _ in range(10_000)]
    with Visitors() as visitors:
        for number, visitor in enumerate(many, 1):
            visitors.add(visitor, number)
        near = many[17][:15] + bytes([many[17][15] ^ 1])  # the same first half
        visitors.add(near, 10_001)
        assert visitors.first_twice() is None
        visitors.add(many[4_000], 10_002)
        visitors.add(many[9], 10_003)
        assert visitors.first_twice() == (10_002, 4_001)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.txt", b""),
        ("log.csv", b"a,b\n1,2\n"),
        ("log.parquet", b"PAR1"),
        ("log.jsonl", b'{"kind":"D"}\n'),
        ("log.jsonl", b"not JSON\n"),
        ("log.csv.gz", b"not gzip"),
        (
            "log.jsonl",
            b'{"kind":"F","detail":"{\\"format\\":\\"deniable log\\",\\"version\\":9}"}\n',
        ),
    ],
)
def test_a_file_that_is_no_log_is_one_line_and_status_2(
    tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError):
        audit_log(path)
    assert main(["audit", "log", str(path)]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("ending", ["parquet", "csv.gz", "jsonl.gz"])
def test_a_file_of_which_bytes_are_missing_or_changed_names_the_first_row_that_is_lost(
    folder: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = (folder / f"all.{ending}").read_bytes()
    rows = audit_log(folder / f"all.{ending}").rows
    path = tmp_path / f"log.{ending}"
    middle = len(sound) // 2
    least = 1 if ending == "parquet" else 60  # the last bytes of a gzip file hold no row
    for content in (
        sound[:middle],
        sound[:-least],
        sound[:middle] + bytes(200) + sound[middle + 200 :],
    ):
        path.write_bytes(content)
        found = audit_log(path)
        assert not found.sound
        assert found.row is not None
        assert 1 <= found.row <= rows + 1
        assert f"row {found.row:,}" in found.verdict
        assert main(["audit", "log", str(path)]) == 1
        assert "The log does NOT hold" in capsys.readouterr().out


def test_the_command_exports_audits_and_tells_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with serving(store) as service:
        filled(service)
        head = service.ledger.verify().heads["commitments"]
    log = tmp_path / "log.csv.gz"
    assert main(["ledger", "export", str(log), "--store", store, "--experiment", "two"]) == 0
    assert main(["audit", "log", str(log), "--head", f"commitments={head}"]) == 0
    assert "The log holds" in capsys.readouterr().out
    text = gzip.decompress(log.read_bytes()).replace(b"D,", b"R,", 1)
    (tmp_path / "bad.csv").write_bytes(text)
    assert main(["audit", "log", str(tmp_path / "bad.csv"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["row"] is not None
    assert "row" in told["problem"]
    assert main(["audit", "log", str(tmp_path / "nowhere.csv")]) == 2
    assert main(["audit", "log", str(log), "--head", "nonsense"]) == 2
    assert main(["ledger", "export", str(tmp_path / "log.txt"), "--store", store]) == 2

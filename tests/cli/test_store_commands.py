"""The commands that need only a store: one way through them all, and one line for each mistake."""

from __future__ import annotations

import getpass
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.cli.calling import failed, new_store, ok

from deniable.audit.report import Audit
from deniable.cli import main
from deniable.service.service import open as open_service
from deniable.storage import connect as connecting
from deniable.storage.commitments import current_actor
from deniable.storage.schema import decisions

pytestmark = pytest.mark.usefixtures("strict_audits")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_store(tmp_path, monkeypatch)


def start_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    """Experiment `e`, with the arms x and y for the segment s."""
    arms = ("--arm", "x", "--arm", "y")
    ok(capsys, "experiment", "create", "e", *arms, "--segment", "s", "--budget", "1")
    ok(capsys, "experiment", "start", "e")


def test_a_whole_life(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(ok(capsys, "init", "--budget", "3", "--window-days", "30", "--json"))
    assert made["firm"]["budget_nano"] == 3 * 10**9
    assert made["admin_key"].startswith("dnb_")
    assert made["firm"]["window_days"] == 30
    assert "kept the existing one" in ok(capsys, "init", "--budget", "3")
    ok(
        capsys,
        *("experiment", "create", "checkout", "--arm", "old", "--arm", "new", "--arm", "bold"),
        *("--segment", "a", "--segment", "b", "--budget", "1", "--strategy", "constant"),
    )
    assert "running" in ok(capsys, "experiment", "start", "checkout")
    with open_service(store) as service:
        answers = service.decide_batch("checkout", [(f"v{i}", "a") for i in range(20)])
        service.reward_batch([(answer.id, 1) for answer in answers])
    assert "paused" in ok(capsys, "experiment", "pause", "checkout")
    assert "running" in ok(capsys, "experiment", "resume", "checkout")
    assert "version 2" in ok(capsys, "experiment", "switch-off", "checkout", "bold")
    listed_more = ok(capsys, "experiment", "add-segment", "checkout", "c")
    assert "version 2" in listed_more
    assert "unlisted until the next table" in listed_more
    added = ok(capsys, "experiment", "add-arm", "checkout", "red")
    assert "version 3" in added
    assert "given the time" in added
    listed = json.loads(ok(capsys, "experiment", "list", "--json"))
    assert [(e["key"], e["status"]) for e in listed] == [("checkout", "running")]
    assert "checkout" in ok(capsys, "experiment", "list")
    status = json.loads(ok(capsys, "status", "--json"))
    assert sum(c["shows"] for c in status["experiments"][0]["counts"]) == 20
    assert "remaining" in ok(capsys, "status")
    assert "says nothing" in ok(capsys, "status", "checkout")  # a bound of all 20 visitors
    assert "sound: " in ok(capsys, "ledger", "verify")
    heads = json.loads(ok(capsys, "ledger", "verify", "--json"))["heads"]
    noted = [part for chain, end in heads.items() for part in ("--head", f"{chain}={end}")]
    assert "sound: " in ok(capsys, "ledger", "verify", *noted)
    shown = ok(capsys, "ledger", "show")
    assert all(kind in shown for kind in ("switch_off", "add_segment", "add_arm"))
    ok(capsys, "export", "checkout", str(tmp_path / "log.parquet"))
    ok(capsys, "export", "checkout", str(tmp_path / "log.csv"), "--shape", "open-bandit")
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 21
    assert "one of" in failed(capsys, "export", "checkout", "log.csv", "--shape", "other")
    before = json.loads(ok(capsys, "status", "--json"))["firm"]
    assert "2 decisions forgotten" in ok(capsys, "erase", "v0", "v1")
    assert json.loads(ok(capsys, "status", "--json"))["firm"] == before  # it costs nothing
    assert "0 decisions" in ok(capsys, "purge", "--older-than-days", "1")
    assert "everybody gets new" in ok(capsys, "experiment", "stop", "checkout", "--promote", "new")
    assert json.loads(ok(capsys, "status", "--json"))["firm"] == before  # it still counts


def test_raising_the_budget_needs_a_reason(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    ok(capsys, "init", "--budget", "2")
    assert "reason" in failed(capsys, "init", "--budget", "3")
    assert "reason" in failed(capsys, "init", "--budget", "2", "--window-days", "30")
    raised = ok(capsys, "init", "--budget", "3", "--reason", "a second team")
    assert "at most 3 nats in any 90 days" in raised
    assert "a second team" in ok(capsys, "ledger", "show")


def test_layers_holdouts_and_metrics(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    ok(capsys, "init", "--budget", "3")
    arms = ("--arm", "x", "--arm", "y", "--segment", "s", "--budget", "1", "--layer", "page")
    more = ("--holdout", ".1", "--metric", "click", "--metric", "spent=50")
    less = ("--metric", "seconds=30:less", "--metric", "refund:less")
    made = json.loads(ok(capsys, "experiment", "create", "a", *arms, *more, *less, "--json"))
    assert (made["layer"], made["holdout"]) == ("page", 100)
    weighted = ("c", *arms, "--strategy", "joint", "--weights", "3,1")
    told = json.loads(ok(capsys, "experiment", "create", *weighted, "--json"))
    assert [arm["weight"] for arm in told["arms"]] == [3, 1]
    for wrong in ("3", "3,0", "3,x"):
        bad = failed(capsys, "experiment", "create", *weighted[:-1], wrong)
        assert "weight" in bad
    assert [(m["name"], m["cap_micro"], m["better"]) for m in made["metrics"]] == [
        ("click", 10**6, "more"),
        ("spent", 50 * 10**6, "more"),
        ("seconds", 30 * 10**6, "less"),
        ("refund", 10**6, "less"),
    ]
    for wrong in ("seconds=30:fewer", "seconds=fast:less", "seconds=inf"):
        bad = failed(capsys, "experiment", "create", "b", *arms, "--metric", wrong)
        assert "NAME, NAME=CAP or NAME=CAP:less" in bad
    only = failed(capsys, "experiment", "create", "b", *arms, "--metric", "refund:less")
    assert "the first metric decides" in only
    ok(capsys, "experiment", "create", "b", *arms)
    ok(capsys, "experiment", "start", "a", "--share", ".6")
    assert "400 of its 1000 slots free" in failed(capsys, "experiment", "start", "b")
    ok(capsys, "experiment", "start", "b", "--share", ".4")
    assert json.loads(ok(capsys, "status", "--json"))["firm"]["committed_nano"] == 10**9
    with open_service(store) as service:
        found = service.decide_batch("a", [(f"v{n}", "s") for n in range(50)])
        service.reward_batch([(d.id, 12.5, "spent") for d in found])


def test_a_purge_shows_its_progress_in_a_terminal(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(capsys, "init", "--budget", "3")
    start_experiment(capsys)
    with open_service(store) as service:
        service.decide_batch("e", [(f"v{n}", "s") for n in range(30)])
    kept = json.loads(ok(capsys, "purge", "--older-than-days", "0", "--json"))
    assert kept == {"decisions": 0}  # it runs, and nobody asked for that
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["purge", "--older-than-days", "0", "--running"]) == 0
    printed = capsys.readouterr()
    assert "30 decisions forgotten" in printed.out
    assert "30 of 30 decisions" in printed.err
    monkeypatch.delenv("FORCE_COLOR")
    assert "sound" in ok(capsys, "ledger", "verify")


def test_the_status_has_its_figures_under_their_names(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three budgets that differ: 5 in all, 1.25 committed, 3.75 left."""
    ok(capsys, "init", "--budget", "5")
    arms = ("--arm", "x", "--arm", "y", "--segment", "s", "--budget", "1.25")
    ok(capsys, "experiment", "create", "e", *arms)
    ok(capsys, "experiment", "start", "e")
    lines = [re.split(r"\s{2,}", line.strip()) for line in ok(capsys, "status").splitlines()]
    names = next(line for line in lines if "committed" in line)
    figures = dict(zip(names, lines[lines.index(names) + 2], strict=True))
    assert figures["budget"] == "5"
    assert figures["committed"] == "1.25"
    assert figures["remaining"] == "3.75"
    assert figures["window (days)"] == "90"


@pytest.mark.parametrize("options", [(), ("--record",)])
def test_an_audit_is_recorded_when_asked(
    store: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    ok(capsys, "init", "--budget", "3")
    arms = ("--arm", "x", "--arm", "y", "--segment", "s", "--budget", "1")
    ok(capsys, "experiment", "create", "e", *arms)
    ok(capsys, "experiment", "start", "e")
    assert "The promise is kept" in ok(capsys, "audit", "e", *options)
    with open_service(store) as service:
        entries = [entry for entry in service.ledger.entries() if entry.kind == "audit"]
    assert [entry.experiment for entry in entries] == ["e"] * len(options)


def test_a_broken_promise_exits_with_1(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(capsys, "init", "--budget", "3")
    arms = ("--arm", "x", "--arm", "y", "--segment", "s", "--budget", "1")
    ok(capsys, "experiment", "create", "e", *arms)
    ok(capsys, "experiment", "start", "e")
    monkeypatch.setattr(Audit, "sound", property(lambda _audit: False))
    assert main(["audit", "e"]) == 1


def test_a_broken_ledger_exits_with_1(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    ok(capsys, "init", "--budget", "3")
    start_experiment(capsys)
    with open_service(store) as service:
        service.decide("e", "v", "s")
        with service._store.begin() as connection:
            connection.execute(decisions.update().values(shown=9))
            identity = connection.execute(select(decisions.c.id)).scalar_one()
    assert main(["ledger", "verify"]) == 1
    assert identity.hex() in capsys.readouterr().err


def test_keys(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_service(store).close()
    secret = ok(capsys, "keys", "create", "app", "--scope", "decide", "--scope", "reward").strip()
    (key,) = json.loads(ok(capsys, "keys", "list", "--json"))
    assert (key["label"], key["scopes"]) == ("app", ["decide", "reward"])
    assert secret not in ok(capsys, "keys", "list")
    assert "revoked" in ok(capsys, "keys", "revoke", key["id"])
    with open_service(store) as service:
        assert service.keys.authenticate(secret) is None


def test_users(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_service(store).close()
    link = ok(capsys, "users", "invite", "Ada", "--role", "admin").strip()
    assert link.startswith("http://127.0.0.1:8000/invite/")
    given = json.loads(ok(capsys, "users", "invite", "ada", "--url", "https://x/", "--json"))
    assert given["link"].startswith("https://x/invite/")
    assert given["link"] != link
    (ada,) = json.loads(ok(capsys, "users", "list", "--json"))
    assert (ada["name"], ada["role"], ada["joined_at"]) == ("ada", "admin", None)
    assert "viewer" in ok(capsys, "users", "role", "ada", "viewer")
    with open_service(store) as service:
        service.sessions.begin("t" * 64, seconds=600, user=service.people.get("ada").id)
        service.sessions.begin("u" * 64, seconds=600, user=service.people.get("ada").id)
        by = {entry.actor for entry in service.ledger.entries() if entry.kind == "access"}
    assert by == {f"shell:{getpass.getuser()}"}
    first, _second = json.loads(ok(capsys, "users", "sessions", "ada", "--json"))
    assert first["who"] == "ada"
    assert "1 session ended" in ok(capsys, "users", "sessions", "--end", first["id"])
    assert "1 sessions of ada ended" in ok(capsys, "users", "sessions", "ada", "--end", "all")
    assert "disabled" in ok(capsys, "users", "disable", "ada")
    assert "ada" in ok(capsys, "users", "list")
    assert "enabled" in ok(capsys, "users", "enable", "ada")
    assert "'nobody'" in failed(capsys, "users", "role", "nobody", "viewer")
    assert "role" in failed(capsys, "users", "invite", "bob")
    assert "role" in failed(capsys, "users", "invite", "bob", "--role", "root")
    assert "name" in failed(capsys, "users", "invite", "<b>", "--role", "viewer")
    assert current_actor() is None  # a command leaves nobody behind


def test_mistakes_are_told_in_one_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_service(store).close()
    assert "firm budget" in failed(capsys, "status")
    ok(capsys, "init", "--budget", ".5")
    create = ("experiment", "create", "e", "--segment", "s")
    assert "2 or more" in failed(capsys, *create, "--arm", "x", "--budget", "1")
    assert "KEY=BUDGET" in failed(capsys, *create, "--arm", "x=much", "--arm", "y")
    assert "strategy" in failed(capsys, *create, "--arm", "x", "--arm", "y", "--strategy", "mad")
    ok(capsys, *create, "--arm", "x=1", "--arm", "y=2")
    assert "only 0.5 remain" in failed(capsys, "experiment", "start", "e")
    assert "'nope'" in failed(capsys, "experiment", "start", "nope")
    assert "scopes" in failed(capsys, "keys", "create", "app", "--scope", "root")
    assert "shape" in failed(capsys, "export", "e", "f.csv", "--shape", "secret")
    assert "head" in failed(capsys, "ledger", "verify", "--head", "x")
    assert "sqlite:///FILE" in failed(capsys, "status", "--store", "mysql://x")


NEEDS_A_STORE = (
    ("keys", "create", "web", "--scope", "decide"),
    ("keys", "list"),
    ("status",),
    ("ledger", "verify"),
    ("experiment", "list"),
    ("purge", "--older-than-days", "1"),
    ("erase", "v-1"),
)


def test_only_init_and_serve_make_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DENIABLE_STORE", "DENIABLE_CONFIG", "DENIABLE_VISITOR_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for command in NEEDS_A_STORE:
        assert "no store" in failed(capsys, *command)
        assert list(tmp_path.iterdir()) == []


def test_commands_find_the_store_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DENIABLE_STORE", "DENIABLE_VISITOR_KEY"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "deniable.toml"
    config.write_text(f'store = "sqlite:///{tmp_path}/here.db"\n')
    monkeypatch.setenv("DENIABLE_CONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    made = json.loads(ok(capsys, "init", "--budget", "3", "--json"))
    assert made["store"].endswith("/here.db")
    assert ok(capsys, "keys", "create", "web", "--scope", "decide").startswith("dnb_")
    assert "web" in ok(capsys, "keys", "list")


def _set_revision(tmp_path: Path, revision: str) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.commit()


def test_only_migrate_changes_a_schema(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no store" in failed(capsys, "migrate")
    ok(capsys, "init", "--budget", "3")
    assert "nothing to do" in ok(capsys, "migrate", "--check")
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (versions / "m0001.py").write_text("revision = '0001'\ndown_revision = None\n")
    (versions / "m0002.py").write_text(
        "from alembic import op\nrevision, down_revision = '0002', '0001'\n"
        "def upgrade():\n    op.execute('CREATE TABLE added (name TEXT)')\n"
    )
    monkeypatch.setattr(connecting, "MIGRATIONS", versions.parent)
    monkeypatch.setattr(connecting, "HEAD", "0002")
    for command in (
        ("init", "--budget", "3"),
        ("status",),
        ("keys", "list"),
        ("ledger", "verify"),
    ):
        assert "run `deniable migrate`" in failed(capsys, *command)
    assert main(["migrate", "--check"]) == 1
    assert "0001, this version needs 0002" in capsys.readouterr().out
    assert "at 0002 now" in ok(capsys, "migrate")
    assert "budget" in ok(capsys, "status")
    _set_revision(tmp_path, "0003")
    assert "use the newer version" in failed(capsys, "migrate")


def test_an_empty_store_where_there_was_one_is_asked_about(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ok(capsys, "init", "--budget", "3")
    (tmp_path / "store.db").rename(tmp_path / "lost.db")
    for command in (("init", "--budget", "3"), ("serve", "--port", "0")):
        assert "restore the store" in failed(capsys, *command)
    assert not (tmp_path / "store.db").exists()
    ok(capsys, "init", "--budget", "3", "--accept-empty-store")
    assert (tmp_path / "store.db").exists()


def test_processes_cannot_share_a_store_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(capsys, "serve", "--store", "memory:", "--workers", "2", "--port", "0")
    assert "1 with memory:" in told


def test_an_empty_file_is_no_store(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store.db").touch()
    assert "no store" in failed(capsys, "status")
    assert (tmp_path / "store.db").stat().st_size == 0

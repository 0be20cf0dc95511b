"""A firm as a file: it leads the store there, again it changes nothing, and no promise is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.cli import main
from deniable.errors import InvalidArgumentError
from deniable.privacy.composition import nano_down
from deniable.service.apply import Difference, compare
from deniable.service.firm_file import written
from deniable.service.service import Deniable
from deniable.service.service import open as open_service

FIRM = """
[firm]
budget = 6
window_days = 30

[experiments.checkout]
status = "running"
arms = ["grey", {key = "green", label = "Grün, \\"hell\\" 🎉"}]
segments = ["new", "it's [a] = #list"]
budget = 1.25
layer = "shop"
share = 0.25
holdout = 0.1
planned_visitors = 100000
attribution_seconds = 3600
metrics = {click = 1.0, spent = 50.5, seconds = {cap = 30.0, better = "less"}}

[experiments."by.arm"]
arms = [{key = "a", budget = 0.3}, {key = "b", budget = 0.7}, {key = "c", budget = 0.1}]
segments = ["s"]
strategy = "constant"
default_arm = "b"

[keys.shop]
scopes = ["decide", "reward"]

[users."ada@firm.example"]
role = "manager"
"""


def take(found: Difference) -> list[str]:
    assert found.refused == []
    for step in found.steps:
        step.act()
    return [step.words for step in found.steps]


def changed(old: str, new: str) -> str:
    assert FIRM.count(old) == 1
    return FIRM.replace(old, new)


def refused(service: Deniable, old: str, new: str) -> list[str]:
    before = written(service)
    found = compare(changed(old, new), service)
    assert written(service) == before
    return found.refused


def test_a_file_leads_there_and_then_nothing_is_to_do(store_url: str) -> None:
    with open_service(store_url) as service:
        assert take(compare(FIRM, service)) == [
            "firm: at most 6 nats in any 30 days",
            "checkout: create, joint, 1.25 nats",
            "checkout: start",
            "by.arm: create, constant, 0.7 nats",
            "key shop: create for decide, reward",
            "user ada@firm.example: invite as manager",
        ]
        again = compare(FIRM, service)
        assert (again.steps, again.refused, again.left_alone) == ([], [], [])
        running = service.experiments.get("checkout")
        assert running.status == "running"
        assert running.holdout == 100
        assert running.slots is not None
        assert sum(byte.bit_count() for byte in running.slots) == 250
        assert [(m.name, m.cap, m.better) for m in running.metrics] == [
            ("click", 1.0, "more"),
            ("spent", 50.5, "more"),
            ("seconds", 30.0, "less"),
        ]
        assert service.experiments.get("by.arm").budgets == tuple(map(nano_down, (0.3, 0.7, 0.1)))
        text = written(service)
        copy = compare(text, service)
        assert (copy.steps, copy.refused) == ([], [])
    with open_service("memory:") as other:  # elsewhere the written file makes the same firm
        take(compare(text, other))
        assert written(other) == text


def test_a_life_by_files(store_url: str) -> None:
    with open_service(store_url) as service:
        take(compare(FIRM, service))
        paused = changed('status = "running"', 'status = "paused"')
        assert take(compare(paused, service)) == ["checkout: pause"]
        assert take(compare(FIRM, service)) == ["checkout: resume"]
        replanned = changed(
            'arms = [{key = "a", budget = 0.3}, {key = "b", budget = 0.7}, {key = "c", budget = 0.1}]',
            'status = "running"\narms = ["a", "b", "c"]\nbudget = 1',
        )
        assert compare(replanned, service).refused == [
            "by.arm.arms: fixed when it was created",
            "by.arm.budget: fixed when it was created (not set; the file says 1.0)",
        ]
        stopped = changed('status = "running"', 'status = "stopped"\nwinner = "green"')
        assert take(compare(stopped, service)) == ["checkout: stop, promote green"]
        assert service.experiments.get("checkout").winner == "green"
        assert compare(stopped, service).steps == []
        other = stopped.replace('winner = "green"', 'winner = "grey"')
        assert compare(other, service).refused == ["checkout.winner: fixed when it was stopped"]
        assert compare(FIRM, service).refused == ["checkout.status: stopped cannot become running"]


def test_a_draft_may_have_another_budget(store_url: str) -> None:
    one = '[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]\nbudget = 1\n'
    with open_service(store_url) as service:
        take(compare(one, service))
        two = one.replace("= 1", '= 2\nstrategy = "constant"')
        assert take(compare(two, service)) == ["e: constant, 2 nats instead of joint, 1 nats"]
        assert service.experiments.get("e").budget == 2.0
        assert compare(two, service).steps == []


def test_switching_off(store_url: str) -> None:
    base = '[firm]\nbudget = 3\n[experiments.e]\nstatus = "running"\n'
    on = base + 'arms = ["a", "b", "c"]\nsegments = ["s"]\nbudget = 1\n'
    off = on.replace('"c"', '{key = "c", active = false}')
    with open_service(store_url) as service:
        take(compare(on, service))
        assert take(compare(off, service)) == ["e: switch off c"]
        assert compare(off, service).steps == []
        assert compare(on, service).refused == ["e: an arm that was switched off cannot come back"]
        assert compare(written(service), service).refused == []


def test_contexts_are_added_and_never_removed(store_url: str) -> None:
    base = '[firm]\nbudget = 2\n[experiments.e]\nstatus = "running"\narms = ["a", "b"]\n'
    with open_service(store_url) as service:
        take(compare(base + 'contexts = ["phone"]\n', service))
        steps = take(compare(base + 'contexts = ["phone", "tv"]\n', service))
        assert steps == ["e: add context tv, which has a row from the next table on"]
        assert service.experiments.get("e").contexts == ("other", "phone", "tv")
        assert compare(written(service), service).steps == []
        gone = compare(base + 'contexts = ["tv"]\n', service)
        assert gone.refused == ["e.contexts: part of its promise"]


def test_adding_arms_and_segments(store_url: str) -> None:
    base = '[firm]\nbudget = 3\n[experiments.e]\nstatus = "running"\n'
    small = base + 'arms = ["a", "b"]\nsegments = ["s"]\nbudget = 1\n'
    large = small.replace('"b"', '"b", {key = "c", label = "C"}, "d"').replace('"s"', '"s", "t"')
    with open_service(store_url) as service:
        take(compare(small, service))
        assert take(compare(large, service)) == [
            "e: add segment 2, unlisted until the next table",
            "e: add arm c, a new promise version 2, given the time",
            "e: add arm d, a new promise version 3, given the time",
        ]
        grown = service.experiments.get("e")
        assert [(arm.key, arm.label) for arm in grown.arms[2:]] == [("c", "C"), ("d", "")]
        assert (grown.version, grown.segments) == (3, ("s", "t"))
        assert (compare(large, service).steps, compare(large, service).refused) == ([], [])
        assert compare(written(service), service).steps == []
        assert compare(small, service).refused == [
            "e.arms: part of its promise",
            "e.segments: part of its promise",
        ]
        late = large.replace('"d"', '"d", "e"')
        off = large.replace('"d"', '"d", {key = "e", active = false}')
        assert compare(off, service).refused == ["e: an arm that is added is on"]
        stopped = late.replace('"running"', '"stopped"')
        only = "e: arms, segments and contexts are added while it runs or is paused"
        assert compare(stopped, service).refused == [only]
        one = '[experiments.f]\narms = ["a", "b"]\nsegments = ["s"]\nbudget = 1\n'
        take(compare(one, service))
        more = one.replace('"s"', '"s", "t"')
        assert compare(more, service).refused == [only.replace("e:", "f:")]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "budget = 1.25",
            "budget = 1.26",
            "checkout.budget: part of its promise (1.25; the file says 1.26)",
        ),
        ('["grey", ', '["grey", "third", ', "checkout.arms: part of its promise"),
        ('["new", ', '["newcomers", ', "checkout.segments: part of its promise"),
        ("share = 0.25", "share = 0.5", "checkout.share: fixed when it started"),
        (
            'layer = "shop"',
            'layer = "mail"',
            "checkout.layer: part of its promise (shop; the file says mail)",
        ),
        (
            "holdout = 0.1",
            "holdout = 0.2",
            "checkout.holdout: part of its promise (0.1; the file says 0.2)",
        ),
        ('status = "running"', "", "checkout.status: running cannot become draft"),
        ("spent = 50.5", "spent = 50", "checkout.metrics: part of its promise"),
        ('better = "less"', 'better = "more"', "checkout.metrics: part of its promise"),
        ("budget = 6", "budget = 1", "firm.budget: 1.25 nats count already"),
        ("budget = 6", "budget = 7", "firm.budget: raising it needs `reason`"),
        (
            '"decide", "reward"',
            '"admin"',
            "keys.shop.scopes: revoke the key and create another one",
        ),
    ],
)
def test_what_would_break_a_promise_is_refused(old: str, new: str, reason: str) -> None:
    with open_service("memory:") as service:
        take(compare(FIRM, service))
        assert refused(service, old, new) == [reason]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[firm", "file"),
        ("[frim]\nbudget = 1", "file"),
        ("firm = 3", "firm"),
        ("[firm]\nbudget = true\nwindow_days = 1.5", "firm"),
        ("[firm]\nbudget = 1\nperiod = 3", "firm"),
        ("experiments = 3", "experiments"),
        ("[experiments.e]\narms = 3", "experiments.e.arms"),
        ('[experiments.e]\narms = ["a", "b"]\nbudget = 1', "experiments.e.segments"),
        ('[experiments.e]\narms = ["a", "b"]\ncontexts = ["c", "c"]', "experiments.e.contexts"),
        ('[experiments.e]\narms = ["a", "b"]\nobserved = false', "experiments.e.observed"),
        ('[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]', "experiments.e.budget"),
        ('[experiments.e]\narms = ["a"]\nsegments = ["s"]\nbudget = 1', "experiments.e.arms"),
        ('[experiments.e]\narms = ["a", 3]\nsegments = ["s"]\nbudget = 1', "experiments.e.arms"),
        ("[experiments.e]\narms = []\nsegments = []\ncolour = 1", "experiments.e"),
        ('[experiments.e]\narms = []\nsegments = []\nstatus = "on"', "experiments.e.status"),
        ('[experiments.e]\narms = []\nsegments = []\nwinner = "a"', "experiments.e.winner"),
        ("[experiments.e]\narms = []\nsegments = []\nshare = 2", "experiments.e.share"),
        (
            '[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]\nbudget = "1"',
            "experiments.e.budget",
        ),
        (
            '[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]\nmetrics = {m = "x"}',
            "experiments.e.metrics",
        ),
        (
            '[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]\nmetrics = {m = {better = "no"}}',
            "experiments.e.metrics",
        ),
        (
            '[experiments.e]\narms = ["a", "b"]\nsegments = ["s"]\nmetrics = {m = {top = 1}}',
            "experiments.e.metrics.m",
        ),
        ('[keys.k]\nscopes = ["everything"]', "keys.k.scopes"),
        ("users = 3", "users"),
        ("[users.ada]", "users.ada.role"),
        ('[users.ada]\nrole = "root"', "users.ada.role"),
        ('[users.ada]\nrole = "admin"\npassword = "x"', "users.ada"),
        ('[users.ada]\nrole = "admin"\ndisabled = "no"', "users.ada.disabled"),
        ('[users."a b"]\nrole = "admin"', "users"),
    ],
)
def test_mistakes_are_named(text: str, field: str) -> None:
    with open_service("memory:") as service:
        with pytest.raises(InvalidArgumentError) as caught:
            compare(text, service)
        assert caught.value.argument == field
        assert service.experiments.all() == []


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DENIABLE_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    file = tmp_path / "firm.toml"
    file.write_text(FIRM.replace("[firm]", '[firm]\nreason = "more experiments"'), "utf-8")
    assert main(["init", "--budget", "2", "--window-days", "30"]) == 0
    assert main(["apply", str(file), "--check"]) == 1
    assert "checkout: start" in capsys.readouterr().out
    assert main(["apply", str(file)]) == 2
    assert "give --yes" in capsys.readouterr().err
    assert main(["apply", str(file), "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["secrets"]["key shop: create for decide, reward"].startswith("dnb_")
    assert main(["apply", str(file), "--check"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    copy = tmp_path / "copy.toml"
    assert main(["export", "--to", str(copy)]) == 0
    assert main(["apply", str(copy), "--check"]) == 0
    file.write_text(FIRM.replace("share = 0.25", "share = 1"), "utf-8")
    capsys.readouterr()
    assert main(["apply", str(file), "--yes"]) == 2
    assert "nothing was done: 1 of the wanted" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["apply", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err
    assert main(["apply", str(tmp_path / "store.db")]) == 2
    assert "a TOML file in UTF-8" in capsys.readouterr().err
    file.write_text("[firm]\nbudget = 6\nwindow_days\n", "utf-8")
    assert main(["apply", str(file)]) == 2
    assert "line 3" in capsys.readouterr().err
    assert main(["export"]) == 2
    assert main(["export", "checkout", "--to", str(copy)]) == 2


def test_people_are_invited_changed_and_disabled(store_url: str) -> None:
    with open_service(store_url) as service:
        found = compare('[users.ada]\nrole = "manager"', service)
        assert [step.words for step in found.steps] == ["user ada: invite as manager"]
        path = found.steps[0].act()
        assert path is not None
        assert service.people.accept(path.removeprefix("/invite/"), "a long walk by the sea")
        assert compare('[users.Ada]\nrole = "manager"', service).steps == []
        other = compare('[users.ada]\nrole = "admin"\ndisabled = true', service)
        assert take(other) == ["user ada: admin instead of manager", "user ada: disable"]
        assert not service.people.get("ada").active
        assert '[users."ada"]\nrole = "admin"\ndisabled = true' in written_users(service)
        assert take(compare('[users.ada]\nrole = "admin"', service)) == ["user ada: enable"]
        assert compare("", service).steps == []  # whom the file does not name is left alone
        assert compare('[users.bob]\nrole = "viewer"\ndisabled = true', service).steps == []


def written_users(service: Deniable) -> str:
    service.firm.set(budget=1)
    return written(service)

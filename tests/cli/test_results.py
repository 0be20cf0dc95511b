"""`deniable results` and `deniable rewards import`, as a stranger would use them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from tests.cli.calling import failed, new_store, ok
from tests.web.shop import EXPERIMENTS, send

from deniable.cli import main
from deniable.service.service import open as open_service
from deniable.storage.records import MICRO, Metric

DEMO = EXPERIMENTS[0]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = new_store(tmp_path, monkeypatch)
    with open_service(url) as service:
        service.firm.set(budget=9)
        for one in EXPERIMENTS:
            service.experiments.create(
                one.key,
                arms=one.arms,
                segments=list(one.rates),
                budget=one.budget,
                strategy="dynamic",
                planned_visitors=6_000,
                holdout=0.1,
                metrics=[Metric("click"), Metric("revenue", 50 * MICRO)],
            )
            service.experiments.start(one.key)
    return url


def test_results_say_the_same_everywhere(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_service(store) as service:
        send(service, 6_000, seed=3)
        found = service.experiments.results(DEMO.key)
    told = ok(capsys, "results", DEMO.key, "--chart", str(tmp_path / "lifts.svg"))
    for sentence in (*found.sentences, found.stop_rule):
        assert sentence in told
    assert re.search(r"Guardrail revenue, \w+ against \w+: too early\.", told)
    assert "Holdout (10% of visitors" in told
    assert "95% over all 9 comparisons" in told
    assert json.loads(ok(capsys, "results", DEMO.key, "--json")) == json.loads(
        json.dumps(found.to_dict())
    )
    drawn = (tmp_path / "lifts.svg").read_text()
    assert "first-visit" in drawn
    assert "lift, in points" in drawn


def test_too_early(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ok(capsys, "results", DEMO.key, "--chart", str(tmp_path / "lifts.svg"))
    assert told.startswith("No winner yet.\nToo early to say anything")
    assert "Too early to say anything." in (tmp_path / "lifts.svg").read_text()
    assert "no experiment is called" in failed(capsys, "results", "nope")
    assert "ends in" in failed(capsys, "results", DEMO.key, "--chart", "lifts.doc")


def test_import(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_service(store) as service:
        visitors = [(f"v{i}", "returning") for i in range(50)]
        ids = [one.id for one in service.decide_batch(DEMO.key, visitors)]
    path = tmp_path / "orders.csv"

    def write(rows: list[list[object]]) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["decision", "paid", "metric", "currency"], *rows])

    write([[one, 7.5, "revenue", "EUR"] for one in ids])
    arguments = ("rewards", "import", str(path), "--currency", "EUR", "--column", "value=paid")
    told = ok(capsys, *arguments)
    assert "orders.csv: 50 rows" in told
    again = json.loads(ok(capsys, *arguments, "--json"))
    assert (again["applied"], again["duplicate"]) == (0, 50)
    assert "applying" not in told  # the bar is for terminals
    write([[one, 75, "revenue", "EUR"] for one in ids[:2]])
    assert "2 above the metric's cap (first: row 2)" in failed(capsys, *arguments)
    assert "50 of 50 are not" in failed(
        capsys,
        *("rewards", "import", str(_strangers(tmp_path))),
    )
    assert "WHAT=NAME" in failed(capsys, "rewards", "import", str(path), "--column", "paid")
    assert "No such file" in failed(capsys, "rewards", "import", str(tmp_path / "none.csv"))


def _strangers(folder: Path) -> Path:
    path = folder / "strangers.csv"
    path.write_text("decision,value\n" + "".join(f"{i:032x},1\n" for i in range(50)))
    return path


def test_promoting_shows_the_results_and_asks(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = DEMO.arms[1].key
    stop = ("experiment", "stop", DEMO.key, "--promote", winner)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main(stop) != 0
    told = capsys.readouterr().out
    with open_service(store) as service:
        found = service.experiments.results(DEMO.key)
        assert service.experiments.get(DEMO.key).status == "running"
    assert all(choice.title in told for choice in found.choices)
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert f"everybody gets {winner}" in ok(capsys, *stop)
    with open_service(store) as service:
        assert service.experiments.get(DEMO.key).status == "stopped"


class Terminal(io.StringIO):
    """An answer typed by somebody."""

    def isatty(self) -> bool:
        return True

"""A strategy is one class and one line: a toy one, entered in the table, is found everywhere.

It runs in a process of its own, so that no other test meets the toy.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TOY = '''
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from deniable import strategies
from deniable.strategies.constant import Constant
from deniable.strategies.symmetric import SymmetricStrategy
from deniable.theory.regret import RegretTerms


@dataclass(frozen=True)
class Toy(SymmetricStrategy):
    """Half of the budget for everybody, with a bound that is easy to follow."""

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "Toy"
    description: ClassVar[str] = "half of the budget for everybody"

    def binds_at(self, n_arms):
        return 1.0

    def risk(self, clock, n_arms):
        return np.full(np.shape(clock), self.budget / 2)[()]

    def rule(self, rates, horizon):
        return Constant(self.budget).rule(rates, horizon)

    @classmethod
    def bonus(cls, budgets, clock):
        return Fraction(1, 2)

    @classmethod
    def regret_terms(cls, n_arms, horizon, budget, n_segments=1, *, form="summed", shares=None):
        nothing, budget = np.zeros(np.shape(budget)), np.asarray(budget)
        return RegretTerms(nothing, nothing + horizon * (0.5 + (budget - 1.25) ** 2) / 100, nothing)

    @classmethod
    def gain(cls, n_arms, horizon, budget, n_segments=1, *, form="summed", shares=None):
        return -horizon * 2 * (np.asarray(budget) - 1.25) / 100


strategies.STRATEGIES[Toy.name] = Toy
'''


SHORT = "import atexit, gc\ngc.disable()\natexit.register(gc.freeze)\n"
"""A short program needs no garbage collector: a fifth of its time."""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHORT + TOY + program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_planner_recommends_it_and_tells_its_words() -> None:
    out = run(
        """
import json, deniable
from deniable.planning.report import plan_sections, chart_summaries
plan = deniable.plan(n_arms=3, horizon=50_000, n_segments=2)
assert json.loads(json.dumps(plan.to_dict()))["strategies"]["toy"]["best_budget"]
print(plan.recommendation.strategy, round(plan.strategies["toy"].best_budget, 6))
print(plan.recommendation.budget <= 1.25, plan.strategies["toy"].reading)
print([s.table.header for s in plan_sections(plan) if "toy" in s.table.header])
print("Toy: half of the budget" in " ".join(s.text for s in plan_sections(plan)))
print("Toy" in chart_summaries(plan)["regret"], "toy" in json.dumps(plan.chart().to_dict()))
print("toy" in plan._repr_html_())
"""
    ).splitlines()
    assert out[0] == "toy 1.25"
    assert out[1] == "True near the best"
    assert out[2] == "[('', 'constant', 'dynamic', 'joint', 'toy')]"
    assert out[3:] == ["True", "True True", "True"]


@pytest.mark.parametrize("command", ["plan --help", "plan --arms 2 --visitors 1e5"])
def test_the_command_line_shows_it(command: str) -> None:
    out = run(f"from deniable.cli import main\nraise SystemExit(main({command.split()!r}))")
    assert "toy" in out
    assert "half of the budget" in " ".join(out.split())


def test_the_planner_page_shows_it() -> None:
    out = run(
        """
import json
from deniable.web import responses
from deniable.charts.theme import specification
from deniable.charts.planning import PANELS
from deniable.web.planner import view
from deniable.web.planner_setting import Setting
shown = view(Setting())
print(json.dumps([shown["tables"]["regret"]["columns"], shown["datasets"]["best"][-1]["strategy"]]))
print(all("toy" in json.dumps(specification(PANELS[name].make))
          for name in ("schedule", "regret", "elasticity", "parts")))
"""
    ).splitlines()
    assert json.loads(out[0]) == [["budget", "constant", "dynamic", "joint", "toy"], "toy"]
    assert out[1] == "True"


def test_the_simulator_runs_it() -> None:
    out = run(
        """
from deniable.cli import main
raise SystemExit(main("simulate --rates .3,.2 --visitors 200 --policies toy,random --budget 1 "
                      "--repetitions 2 --workers 1 --kernel step --json".split()))
"""
    )
    assert [row["policy"] for row in json.loads(out)["policies"]] == ["toy(1)", "random"]


def test_the_allocator_gives_it_budget() -> None:
    out = run(
        """
import deniable
rows = [{"id": "a", "arms": 2, "visitors": 10**5, "segments": 2},
        {"id": "b", "arms": 3, "visitors": 10**6, "segments": 2, "strategy": "toy"}]
for regime in ("flexible", "toy"):
    found = deniable.allocate(deniable.Portfolio.of(rows), 2, regime=regime)
    print(found.strategies, found.certified, found.budgets.round(3).tolist())
"""
    ).splitlines()
    assert all(line.startswith("('toy', 'toy') True") for line in out), out
    assert "toy" in run(
        "from deniable.cli import main\nraise SystemExit(main(['allocate', '--help']))"
    )


def test_the_service_serves_and_audits_it() -> None:
    out = run(
        """
import deniable
with deniable.open("memory:") as service:
    _ = service.firm.set(budget=3)
    _ = service.experiments.create("e", arms=["x", "y"], segments=["a", "b"], budget=1, strategy="toy")
    _ = service.experiments.start("e")
    for number in range(250):
        _ = service.decide("e", f"v{number}", "ab"[number % 2])
    print(service.experiments.tables("e")[-1].strategy, len(service.experiments.tables("e")))
    found = service.audits.run("e")
    print(found.sound, found.promise.grade)
"""
    ).splitlines()
    assert out == ["toy 3", "True across time"]


def test_the_form_of_a_new_experiment_offers_it() -> None:
    out = run(
        """
from types import SimpleNamespace
from deniable.strategies import STRATEGIES
from deniable.web import responses
from deniable.web.experiments import FIELDS, LABELS
somebody = SimpleNamespace(
    form_token="0", caller=SimpleNamespace(label="somebody", scopes=("admin",)), may=lambda _scope: True
)
empty = dict.fromkeys(FIELDS, "")
words = responses.rendered("experiment_new.html", given=empty, wrong=empty, viewer=somebody,
                         usual="dynamic", strategies=list(STRATEGIES.values()), demo=False,
                         labels=LABELS, messages=[], path="/experiments/new", editing=None)
print('value="toy"' in words)
"""
    )
    assert out.strip() == "True"


def test_the_command_line_offers_it_to_experiments() -> None:
    out = run(
        "from deniable.cli import main\nraise SystemExit(main(['experiment', 'create', '--help']))"
    )
    assert "toy" in out

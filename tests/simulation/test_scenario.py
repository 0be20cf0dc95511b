"""Scenarios: what a file says is what is run, and a mistake is told by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deniable.errors import InvalidArgumentError
from deniable.simulation.scenario import DEFAULTS, KEYS, make_scenario, read_scenario


@pytest.mark.parametrize("line", ["rates = [.3, .2]", "visitors = 10k"])
def test_toml_says_how_it_writes_numbers(line: str, tmp_path: Path) -> None:
    path = tmp_path / "page.toml"
    path.write_text(line)
    with pytest.raises(InvalidArgumentError, match=r"0\.05 and 10_000"):
        read_scenario(path)


GOOD: dict[str, Any] = {"rates": [0.3, 0.2], "visitors": 1000}

FILE = """
name = "landing page"
visitors = 1e6
policies = ["constant", "dynamic", "arm-dynamic", "random"]
budget = [1, 3]
budgets = [1, 2]
repetitions = 7
seed = 1
checkpoints = [10, 1e3]
kernel = "step"

[rates]
desktop = { new = 0.25, old = 0.20 }
mobile = { old = 0.31, new = 0.29 }

[shares]
mobile = 0.7
desktop = 0.3
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "page.toml"
    path.write_text(FILE)
    scenario = read_scenario(path)
    world = scenario.environment
    assert (world.name, world.horizon, world.arms, world.segments) == (
        "landing page",
        10**6,
        ("new", "old"),
        ("desktop", "mobile"),
    )
    assert world.rates.tolist() == [[0.25, 0.2], [0.29, 0.31]]
    assert world.shares.tolist() == [0.3, 0.7]
    assert [policy.label for policy in scenario.policies] == [
        "constant(1)",
        "constant(3)",
        "dynamic(1)",
        "dynamic(3)",
        "arm-dynamic(1, 2)",
        "random",
    ]
    assert (scenario.repetitions, scenario.seed, scenario.kernel) == (7, 1, "step")
    assert scenario.checkpoints == (10, 1000)


BAD = [
    ("rates", [0.3]),
    ("rates", [0.3, 1.5]),
    ("rates", "high"),
    ("rates", {"mobile": [0.1, 0.2], "desktop": [0.1]}),
    ("rates", {"mobile": {"old": 0.1, "new": 0.2}, "desktop": {"old": 0.1}}),
    ("visitors", 0),
    ("visitors", 2.5),
    ("visitors", "many"),
    ("visitors", 1e13),
    ("shares", [0.5, 0.6]),
    ("shares", [0.5, 0.5]),
    ("name", 3),
    ("policies", "random"),
    ("policies", ["softmax"]),
    ("policies", [["random"]]),
    ("changes", 5),
    ("changes", [{"visitor": 5}]),
    ("changes", [{"visitor": 1, "rates": [0.3, 0.2]}]),
    ("changes", [{"visitor": 5, "rates": [0.3, 0.2, 0.1]}]),
    ("delay", -1),
    ("delay", [0.5, 0.4]),
    ("values", [1, 2, 3]),
    ("values", -1),
    ("value_spread", -0.1),
    ("policies", []),
    ("budget", -1),
    ("budget", "large"),
    ("budget", [1, "x"]),
    ("discount", 1.5),
    ("publishing", "hourly"),
    ("publishing", 1.1),
    ("repetitions", 0),
    ("repetitions", 1.5),
    ("seed", -1),
    ("checkpoints", [0]),
    ("checkpoints", [2000]),
    ("kernel", "jump"),
    ("colour", "red"),
]


@pytest.mark.parametrize(("key", "value"), BAD, ids=[f"{key}={value}" for key, value in BAD])
def test_a_mistake_names_its_key(key: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make_scenario({**GOOD, key: value})
    assert caught.value.argument == key
    assert "\n" not in str(caught.value)


def test_arm_budgets_must_fit_the_arms() -> None:
    from deniable.simulation.job import make_job

    scenario = make_scenario({**GOOD, "policies": ["arm-constant"], "budgets": [1, 2, 3]})
    with pytest.raises(InvalidArgumentError) as caught:
        make_job(scenario.environment, scenario.policies[0])
    assert caught.value.argument == "budgets"


@pytest.mark.parametrize("key", ["rates", "visitors"])
def test_what_is_needed_is_asked_for(key: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make_scenario({k: v for k, v in GOOD.items() if k != key})
    assert caught.value.argument == key


def test_every_key_is_documented() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulate.md"
    text = page.read_text()
    for key in KEYS:
        assert f"`{key}`" in text, key
    assert set(DEFAULTS) < set(KEYS)


def test_broken_toml_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "page.toml"
    path.write_text("rates = [")
    with pytest.raises(InvalidArgumentError) as caught:
        read_scenario(path)
    assert caught.value.argument == "scenario"


def test_publishing_is_for_private_policies() -> None:
    names = ["constant", "dynamic", "arm-dynamic", "random"]
    given = {"rates": [0.3, 0.2], "visitors": 10, "policies": names, "budgets": [1, 2]}
    as_served = make_scenario({**given, "publishing": "service"})
    assert [policy.label for policy in as_served.policies] == [
        "constant(1, published)",
        "dynamic(1, published)",
        "arm-dynamic(1, 2, published)",
        "random",
    ]

"""The core runs without any extra, and a missing one is a line that says what to install.

A finder in front of all others refuses the modules of the extras, in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deniable._extras import MODULES
from deniable.cli import COMMANDS, EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = {
    "argon2": "argon2-cffi",
    "multipart": "python-multipart",
    "openfeature": "openfeature-sdk",
    "prometheus_client": "prometheus-client",
    "starlette": "fastapi",
    "vl_convert": "vl-convert-python",
}
"""Module -> the distribution that brings it, where the names differ."""

CORE_ONLY = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

REFUSED = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Refuse())
"""
EVERY_MODULE = sorted(set().union(*MODULES.values()))


def without(
    modules: list[str], code: str, *arguments: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", CORE_ONLY + code, ",".join(modules), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )


def command(*arguments: str, folder: Path, missing: list[str]) -> subprocess.CompletedProcess[str]:
    code = "from deniable.cli import main\nsys.exit(main(sys.argv[1:]))"
    return without(missing, code, *arguments, folder=folder)


IMPORT_CORE = """
import importlib, pkgutil
import deniable
for layer in ("privacy", "theory", "strategies", "expectations", "planning", "inference", "masks"):
    package = importlib.import_module(f"deniable.{layer}")
    for found in pkgutil.iter_modules(package.__path__, f"deniable.{layer}."):
        importlib.import_module(found.name)
import deniable.client, deniable.cli.plan
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & REFUSED, loaded & REFUSED
"""

USE_CORE = """
import json
import deniable
from deniable.client import Client
from deniable.strategies.joint_lp import proved_table

plan = deniable.plan(n_arms=2, horizon=10_000, n_segments=1, budget=1)
Client("http://127.0.0.1:9", api_key="k").close()
print(json.dumps({
    "belief": round(float(deniable.highest_belief(prior=0.2, risk=1)), 3),
    "regret": {name: round(one.regret) for name, one in plan.strategies.items()},
    "joint": round(proved_table([[0.5, 0.1], [0.1, 0.5]], [0.5, 0.5], 1.0).value, 6),
}))
"""


def test_the_core_imports_without_any_extra(tmp_path: Path) -> None:
    done = without(EVERY_MODULE, IMPORT_CORE, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_core_works_without_any_extra(tmp_path: Path) -> None:
    """The numbers of the README; the joint table's is (e * .5 + .1) / (e + 1)."""
    done = without(EVERY_MODULE, USE_CORE, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "belief": 0.405,
        "regret": {"constant": 8689, "dynamic": 8583, "joint": 2981},
        "joint": 0.392423,
    }


def test_the_planner_works_without_any_extra(tmp_path: Path) -> None:
    line = ("plan", "--arms", "2", "--visitors", "1e5", "--budget", "1")
    bare = command(*line, folder=tmp_path, missing=EVERY_MODULE)
    full = command(*line, folder=tmp_path, missing=["no_such_module"])
    assert bare.returncode == full.returncode == 0, bare.stderr
    assert bare.stdout == full.stdout
    assert "budget 1" in bare.stdout


MISSING: list[tuple[list[str], str]] = [
    (["simulate", "--rates", ".3,.2", "--visitors", "1000"], "simulate"),
    (["serve"], "server"),
    (["init", "--budget", "3"], "server"),
    (["plan", "--arms", "2", "--visitors", "100", "--chart", "plan.svg"], "charts"),
    (["allocate", "firm.csv", "--firm-budget", "3"], "data"),
    (["allocate", "--illustration"], "data"),
    (["leak", "log.csv"], "data"),
]


@pytest.mark.parametrize(("line", "extra"), MISSING, ids=[line[0] for line, _ in MISSING])
def test_a_missing_extra_is_one_line(line: list[str], extra: str, tmp_path: Path) -> None:
    (tmp_path / "firm.csv").write_text("id,arms,visitors\nhome,2,1000\n")
    (tmp_path / "log.csv").write_text("segment,variant\na,x\nb,y\n")
    done = command(*line, folder=tmp_path, missing=EVERY_MODULE)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    pattern = rf"error: \w+ is not installed: pip install 'deniable\[{extra}\]'\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr


def test_one_missing_module_names_the_extra_of_the_command(tmp_path: Path) -> None:
    line = ["simulate", "--rates", ".3,.2", "--visitors", "1000"]
    done = command(*line, folder=tmp_path, missing=["polars"])
    assert done.stderr == "error: polars is not installed: pip install 'deniable[simulate]'\n"


def test_a_module_of_no_extra_fails_loudly(tmp_path: Path) -> None:
    """A broken core install is a bug, not advice about extras."""
    done = command("plan", "--help", folder=tmp_path, missing=["numpy"])
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("use", "extra"),
    [
        ("deniable.open", "server"),
        ("deniable.plan(n_arms=2, horizon=100, n_segments=1, budget=1).chart()", "charts"),
        ("deniable.allocate(deniable.Portfolio.from_sizes([2], [1000]), 1)", "data"),
        ("deniable.measure_leak('log.csv')", "data"),
        ("deniable.datasets.asos('asos.parquet')", "data"),
        ("deniable.simulate(deniable.Environment([.3, .2], 9), [deniable.Random()])", "simulate"),
        (
            "from deniable.masks.files import label_file\n"
            "label_file(None, 'a.csv', 'b.csv', key=b'')",
            "data",
        ),
    ],
)
def test_the_library_names_the_extra_too(use: str, extra: str, tmp_path: Path) -> None:
    done = without(EVERY_MODULE, f"import deniable\n{use}", folder=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("deniable.errors.MissingExtraError: ")
    assert last.endswith(f"pip install 'deniable[{extra}]'")


EXPLORE = """
import inspect, pydoc
import deniable
names = {name for name, _ in inspect.getmembers(deniable)}
assert set(deniable.__all__) <= names, set(deniable.__all__) - names
assert {"__version__", "best_table", "privacy"} <= names and not hasattr(deniable, "open")
assert "budget_for_belief" in pydoc.render_doc(deniable)
plan = deniable.plan(n_arms=2, horizon=1000, n_segments=2, budget=1)
assert repr(plan) == "Plan(2 arms, 1,000 visitors, 2 segments, budget 1)"
assert plan._repr_html_() == f"<p>{plan!r}</p>"
assert "ArmPlan" in deniable.plan_arms(arm_budgets=[1, 2], horizon=9)._repr_html_()
"""


def test_the_core_can_be_explored(tmp_path: Path) -> None:
    """`help`, `hasattr` and a notebook's display skip what an extra would add."""
    done = without(EVERY_MODULE, EXPLORE, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_first_command_of_the_readme_works_with_the_extras_that_it_names(
    tmp_path: Path,
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.search(r"pip install 'deniable\[([a-z,]+)\]'` is enough", readme)
    line = re.search(r"^deniable leak (\S+) --out report.html$", readme, re.MULTILINE)
    assert named is not None
    assert line is not None
    installed = set().union(*(MODULES[extra] for extra in named[1].split(",")))
    arguments = ("leak", str(ROOT / line[1]), "--out", "report.html")
    missing = sorted(set(EVERY_MODULE) - installed)
    done = command(*arguments, folder=tmp_path, missing=missing)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").is_file()
    fewer = command(*arguments, folder=tmp_path, missing=[*missing, "altair"])
    assert fewer.returncode == 2
    assert "deniable[charts]" in fewer.stderr


def test_commands_name_extras_that_exist() -> None:
    assert set(EXTRAS) <= set(COMMANDS)
    assert set(EXTRAS.values()) <= {*MODULES, "all"} <= set(OPTIONAL)


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_installs_its_modules(extra: str) -> None:
    installed = _distributions(extra)
    wanted = {_name(DISTRIBUTIONS.get(module, module)) for module in MODULES[extra]}
    assert wanted <= installed, wanted - installed


def test_all_is_every_extra_of_users() -> None:
    assert _distributions("all") == set().union(*map(_distributions, MODULES))


def test_the_core_is_four_distributions() -> None:
    assert {_name(line) for line in PROJECT["dependencies"]} == {"httpx2", "numpy", "rich", "typer"}


def test_every_direct_dependency_is_pinned() -> None:
    product, tools = (_pins(name) for name in ("constraints.txt", "constraints-dev.txt"))
    named = {_name(line) for line in PROJECT["dependencies"]}
    assert named | _distributions("all") <= product
    assert set().union(*map(_distributions, OPTIONAL)) <= product | tools
    assert not product & tools


def _pins(file: str) -> set[str]:
    """The distributions that a file pins; it names no index host."""
    lines = (ROOT / file).read_text().splitlines()
    assert not any("://" in line for line in lines)
    return {_name(line) for line in lines if "==" in line}


def _distributions(extra: str) -> set[str]:
    """The distributions of an extra, the extras that it includes resolved."""
    found: set[str] = set()
    for line in OPTIONAL[extra]:
        if inner := re.fullmatch(r"deniable\[(.+)\]", line):
            found |= set().union(*map(_distributions, inner[1].split(",")))
        else:
            found.add(_name(line))
    return found


def _name(requirement: str) -> str:
    """The normalised name of a distribution in a requirement."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()

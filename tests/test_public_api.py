"""The public names: sorted, importable, documented with an example, and known to type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import deniable

ROOT = Path(__file__).parents[1]
STUB = Path(deniable.__file__).with_suffix(".pyi")


def test_names_are_sorted_and_live_in_one_place() -> None:
    assert deniable.__all__ == sorted(set(deniable.__all__))
    more = ["__version__", "datasets", "errors", "open", "portfolio", "privacy", "theory"]
    assert dir(deniable) == sorted([*deniable.__all__, *more])
    names = [name for names in deniable._HOME.values() for name in names]
    assert sorted(names) == deniable.__all__
    assert len(names) <= 35
    assert "open" not in names, "`from deniable import *` would hide the built-in function"


@pytest.mark.parametrize("package", ["theory", "privacy", "portfolio"])
def test_packages_list_their_names(package: str) -> None:
    module = getattr(deniable, package)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for name in module.__all__:
        assert ">>>" in (getattr(module, name).__doc__ or ""), name


@pytest.mark.parametrize("name", deniable.__all__)
def test_every_name_is_itself(name: str) -> None:
    home = next(module for module, names in deniable._HOME.items() if name in names)
    value = getattr(deniable, name)
    assert value is getattr(import_module(f"deniable.{home}"), name)
    assert value.__module__ == f"deniable.{home}"


@pytest.mark.parametrize("name", deniable.__all__)
def test_every_name_is_documented_with_an_example(name: str) -> None:
    value = getattr(deniable, name)
    text = value.__doc__ or ""
    assert len(text.split("\n")[0]) > 20, "one line that says what it is"
    assert ">>>" in text, "an example"
    if inspect.isclass(value):
        for attribute, member in vars(value).items():
            if inspect.isfunction(member) and not attribute.startswith("_"):
                assert member.__doc__, f"{name}.{attribute}"


def test_unknown_names_fail_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        deniable.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_stub_spells_out_the_same_names() -> None:
    """Each lazy name is re-exported in `__init__.pyi`, from its home: add the line there too."""
    imports = [
        node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    spelt = {(node.module, alias.name, alias.asname) for node in imports for alias in node.names}
    homes = deniable._HOME.items()
    lazy = {(f"deniable.{home}", n, n) for home, names in homes for n in names}
    packages = {("deniable", package, package) for package in deniable._PACKAGES}
    assert spelt == lazy | packages | {("deniable.service.service", "open", "open")}


def test_type_checkers_see_real_types() -> None:
    """They read the package only if it has the marker; what they make of it is in `typing_uses.py`."""
    assert Path(deniable.__file__).with_name("py.typed").is_file()
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert mypy["strict"], "an `ignore` that is not used is an error"
    assert "tests" in mypy["files"]
    assert (ROOT / "tests" / "typing_uses.py").read_text().count("# type: ignore[") == 3


def test_importing_the_package_imports_next_to_nothing() -> None:
    script = "import sys, deniable; print(*sorted(sys.modules))"
    modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "scipy", "numba", "polars", "altair", "typer"} & set(modules)
    assert [name for name in modules if name.startswith("deniable")] == ["deniable"]

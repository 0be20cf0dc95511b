"""Every example in the README and the docs runs, and every link leads somewhere."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest

from deniable.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
SERVED = {"serve"}
"""Commands that run until stopped; the pages' other commands are executed."""


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.startswith("deniable ")]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_examples(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where a reader of the repository stands
    failed, _ = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


@pytest.mark.parametrize(
    "line", sorted({line for page in PAGES for line in commands(page)}), ids=lambda line: line[:70]
)
def test_command_examples(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)[1:]
    assert words[0] in COMMANDS
    if words[0] in SERVED:
        words = [words[0], "--help"]
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_file_named_in_the_formulas_exists_and_has_the_function() -> None:
    text = (ROOT / "docs" / "formulas.md").read_text()
    rows = re.findall(r"^\| .+ \| (`.+`) \| `(.+\.py)` \|$", text, re.M)
    assert len(rows) > 15
    for names, file in rows:
        source = (ROOT / "src" / "deniable" / file).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(def|class) {name}\b", source, re.M), (name, file)


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    docs = readme + "".join(p.read_text() for p in (ROOT / "docs").rglob("*.md"))
    for name in COMMANDS:
        assert f"deniable {name}" in docs, name

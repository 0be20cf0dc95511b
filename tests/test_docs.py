"""Every Python example in the README and the docs runs, and every link leads somewhere.

Their commands run in `test_guides.py`.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from deniable.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "research").glob("*.md")]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_examples(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where a reader of the repository stands
    failed, _ = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


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

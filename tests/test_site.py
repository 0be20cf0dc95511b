"""The documentation site builds, has every public name, and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deniable

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;""",
    re.I,
)


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    homes = deniable._HOME.items()
    anchors = {f"deniable.{module}.{name}" for module, names in homes for name in names}
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    files = [file for ending in ("html", "css") for file in site.rglob(f"*.{ending}")]
    assert len(files) > 15
    assert [(file.name, LOADED.findall(file.read_text())) for file in files] == [
        (file.name, []) for file in files
    ]


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.example/a.js"></script>',
        "<link href='//fonts.example/f.css' rel=stylesheet>",
        "src: url(https://fonts.example/f.woff)",
    ],
)
def test_the_search_for_other_hosts_finds_them(planted: str) -> None:
    assert LOADED.search(planted)


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    """The configuration is strict: the same site with one bad page does not build."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[nowhere](no-such-page.md)\n")
    text = (ROOT / "mkdocs.yml").read_text()
    text = text.replace("docs_dir: docs", f"docs_dir: {docs}")
    text = re.sub(r"^hooks:.*\n", "", text, flags=re.M)
    text = re.sub(r"^nav:\n.*", "", text, flags=re.M | re.S)
    (tmp_path / "mkdocs.yml").write_text(text)
    done = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1, done.stderr
    assert "no-such-page.md" in done.stderr

"""Files of the pages: compressed, kept for good, and the chart library without eval."""

from __future__ import annotations

import gzip
import tempfile
from importlib.metadata import version
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.patience import PATIENCE
from tests.web.site import Site

from deniable._compile import cache_folder
from deniable.web import static


def test_files_are_compressed_and_kept_for_good(demo_site: Site) -> None:
    answer = httpx.get(demo_site.url + static.address("style.css"), timeout=PATIENCE)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")
    plain = httpx.get(answer.url, headers={"accept-encoding": "identity"}, timeout=PATIENCE)
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text


@pytest.mark.parametrize(
    "path",
    ["/static/0000/style.css", "/static/{}/nothing.css", "/static/{}/..%2Fpages.py", "/static"],
)
def test_nothing_else_is_served(demo_site: Site, path: str) -> None:
    assert (
        httpx.get(demo_site.url + path.format(static.digest()), timeout=PATIENCE).status_code == 404
    )


def test_the_chart_library_interprets_and_is_small_enough() -> None:
    bundle = static.vega_bundle()
    assert len(bundle) < 400_000
    text = gzip.decompress(bundle).decode()
    assert "export{" in text.replace(" ", "")[-400:]
    assert text.count("expressionInterpreter") >= 1


def test_it_is_kept_between_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = static.vega_bundle()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "deniable"
    kept.mkdir()
    name = f"vega-{version('vl-convert-python')}.js.gz"
    (kept / name).write_bytes(made)
    static._bundle.cache_clear()
    assert static.vega_bundle() == made


def test_our_own_files_are_few_and_small() -> None:
    sizes = {name: len(body) for name, body in static.contents().items()}
    assert sum(sizes.values()) < 60_000, sizes


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number without a name."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("DENIABLE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder().parent == Path(tempfile.gettempdir())

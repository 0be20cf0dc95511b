from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from deniable.cli import serve
from deniable.errors import InvalidArgumentError
from deniable.service.settings import Settings, flag, load, variable

NAMES = list(Settings.model_fields)
ROOT = Path(__file__).parents[2]


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "deniable.toml"
    file.write_text('port = 1\nworkers = 2\nhost = "::1"\nkey_cache_seconds = 3\n')
    environment = {"DENIABLE_CONFIG": str(file), "DENIABLE_PORT": "4", "DENIABLE_WORKERS": "5"}
    found = load({"workers": 6, "port": None}, environment)
    assert (found.workers, found.port, found.host, found.queue_limit) == (6, 4, "::1", 20_000)
    assert found.key_cache_seconds == 3.0


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"DENIABLE_PORT": "http"}, "DENIABLE_PORT"),
        ({"DENIABLE_PORT": "70000"}, "0 to 65535"),
        ({"DENIABLE_WORKERS": "0"}, "1 to 256"),
        ({"DENIABLE_DEMO": "maybe"}, "true or false"),
        ({"DENIABLE_KEY_CACHE_SECONDS": "nan"}, "0 to 3600"),
        ({"DENIABLE_LOG_LEVEL": "loud"}, "debug or info"),
    ],
)
def test_bad_values_are_refused(environment: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        load({}, environment)


@pytest.mark.parametrize("text", ["port = ", "prot = 1", "port = '1'", "demo = 1"])
def test_bad_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "deniable.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError):
        load({"config": str(file)}, {})


def test_every_setting_is_a_flag_of_serve() -> None:
    assert list(inspect.signature(serve.serve).parameters) == [*NAMES, "config"]


def test_every_setting_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "operate.md").read_text("utf-8")
    rows = re.findall(r"^\| `(--[a-z-]+)` \| `(DENIABLE_[A-Z_]+)` \| `([^`]*)` \|", page, re.M)
    told = {name: str(known.default) for name, known in Settings.model_fields.items()}
    assert rows == [(flag(name), variable(name), told[name] or " ") for name in NAMES]


@pytest.mark.parametrize(
    ("store", "secret"),
    [
        ("postgresql://deniable:hidden@database/deniable", True),
        ("postgresql://database/deniable?user=deniable&password=hidden", True),
        ("postgresql://deniable@database:5432/deniable", False),
        ("sqlite:////var/lib/deniable/deniable.db", False),
    ],
)
def test_a_file_with_a_password_is_its_owners_alone(
    tmp_path: Path, store: str, secret: bool
) -> None:
    file = tmp_path / "deniable.toml"
    file.write_text(f'store = "{store}"\n')
    file.chmod(0o600)
    assert load({"config": str(file)}, {}).store == store
    file.chmod(0o640)
    if not secret:
        assert load({"config": str(file)}, {}).store == store
        return
    with pytest.raises(InvalidArgumentError, match="mode 0600") as refused:
        load({"config": str(file)}, {})
    assert "hidden" not in str(refused.value)

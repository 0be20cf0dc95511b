"""The service's guides are run: every bash, Python and JavaScript block of them, in order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.service.http.process import serving

from deniable.service.service import open as open_service

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def _blocks(name: str) -> list[tuple[str, str]]:
    text = (DOCS / name).read_text("utf-8")
    return re.findall(r"^```(bash|python|js)\n(.*?)^```", text, re.M | re.S)


def _run(kind: str, code: str, folder: Path, environment: dict[str, str]) -> str:
    command = {
        "bash": ["bash", "-euo", "pipefail", "-c", code],
        "python": [sys.executable, "-W", "error", "-c", code],
        "js": ["node", "--input-type=module", "-e", code],
    }[kind]
    if shutil.which(command[0]) is None:
        pytest.skip(f"NOT RUN: {command[0]} is not installed, which the guide's {kind} needs")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    return bare | {"PATH": f"{Path(sys.executable).parent}:{bare['PATH']}"}


def test_integrate(tmp_path: Path) -> None:
    if shutil.which("jq") is None or shutil.which("curl") is None:
        pytest.skip("NOT RUN: curl and jq are not installed, which the guide needs")
    (setup_kind, setup), *rest = _blocks("integrate.md")
    setup = setup.replace("shop.db", "store.db") + 'echo "KEY=$DENIABLE_API_KEY"\n'
    told = _run(setup_kind, setup, tmp_path, _environment())
    secret = told.rpartition("KEY=")[2].strip()
    assert secret.startswith("dnb_")
    assert [kind for kind, _ in rest] == ["bash", "python", "js", "python"]
    with serving(tmp_path) as server:
        environment = _environment() | {"DENIABLE_URL": server.url, "DENIABLE_API_KEY": secret}
        outputs = [_run(kind, code, tmp_path, environment) for kind, code in rest]
    assert outputs[0].splitlines()[-1].endswith("204")
    assert outputs[2].strip() in ("grey", "green")


def test_clients(tmp_path: Path) -> None:
    """The JavaScript runs in its package; Go and Java send what the curl commands send."""
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(
            "checkout", arms=["grey", "green"], segments=["new", "returning"], budget=1.0
        )
        service.experiments.start("checkout")
        secret, _ = service.keys.create("shop", ["decide", "reward"])
    (js_kind, js), (bash_kind, bash) = _blocks("clients.md")
    assert (js_kind, bash_kind) == ("js", "bash")
    with serving(tmp_path) as server:
        environment = _environment() | {"DENIABLE_URL": server.url, "DENIABLE_API_KEY": secret}
        shown = _run("js", js, ROOT / "clients" / "js", environment)
        sent = _run("bash", bash, tmp_path, environment)
    assert shown.strip() in ("grey", "green")
    assert sent.splitlines()[-1].endswith("204")
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as service:
        assert sum(cell.clicks for cell in service.experiments.counts("checkout")) == 2


def test_apply(tmp_path: Path) -> None:
    text = (DOCS / "apply.md").read_text("utf-8")
    (firm,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "firm.toml").write_text(firm, "utf-8")
    ((kind, code),) = _blocks("apply.md")
    told = _run(kind, code, tmp_path, _environment())
    assert "there is something to do" in told
    assert told.rstrip().endswith("nothing to do")
    assert '[experiments."newsletter"]' in (tmp_path / "copy.toml").read_text("utf-8")


def test_back_up(tmp_path: Path) -> None:
    made = "deniable init --budget 3; deniable experiment create checkout --arm old --arm new "
    made += "--segment a --budget 1; deniable experiment start checkout"
    _run("bash", made, tmp_path, _environment())
    for kind, code in _blocks("operate.md"):
        _run(kind, code, tmp_path, _environment())
    assert (tmp_path / "copy.db").stat().st_size > 0


def test_deployment_files_name_real_settings_and_commands() -> None:
    from deniable.service.settings import CONFIG, Settings, variable
    from deniable.service.visitors import ENVIRONMENT

    known = {variable(name) for name in Settings.model_fields} | {CONFIG, ENVIRONMENT}
    for path in (ROOT / "Dockerfile", ROOT / "compose.yaml", ROOT / "deploy" / "deniable.service"):
        named = set(re.findall(r"DENIABLE_[A-Z_]+", path.read_text("utf-8")))
        assert named
        assert named <= known, path.name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "postgres" in extras["optional-dependencies"]


def test_the_configuration_in_deploy_is_read_and_named_by_the_unit() -> None:
    from deniable.service.settings import CONFIG, load

    text = (ROOT / "deploy" / "deniable.toml").read_text("utf-8")
    unit = (ROOT / "deploy" / "deniable.service").read_text("utf-8")
    guide = (DOCS / "operate.md").read_text("utf-8")
    settings = load({"config": str(ROOT / "deploy" / "deniable.toml")}, {})
    assert settings.store.startswith("sqlite:////var/lib/deniable/")
    assert "StateDirectory=deniable" in unit
    installed = "/etc/deniable/deniable.toml"
    assert f"Environment={CONFIG}={installed}" in unit
    assert f"{CONFIG}={installed}" in text
    assert f"deploy/deniable.toml {installed}" in guide
    assert f"{CONFIG}={installed} /opt/deniable/bin/deniable" in guide
    assert "ExecStart=/opt/deniable/bin/deniable serve" in unit
    socket = (ROOT / "deploy" / "deniable.socket").read_text("utf-8")
    assert f"ListenStream={settings.host}:{settings.port}" in socket

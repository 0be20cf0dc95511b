"""The files that deploy the service name what there is; its guides run in `test_guides.py`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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

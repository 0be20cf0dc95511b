"""Every script in `examples/` runs as a reader would run it, without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
SAID = {
    "allocate": "within tolerance: True",
    "audit": "The promise is kept",
    "bring_data": "by 3.90 (",
    "plan": "at most 40.5%",
    "serve_and_reward": "visitor-0 keeps the arm",
    "simulate": "perfect",
}
"""Script -> words that it prints."""


def test_every_script_is_known_and_listed() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(SAID)
    listed = (ROOT / "examples" / "README.md").read_text()
    assert all(f"[{script.name}]({script.name})" in listed for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs(script: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or script.stem == "simulate"  # which tells that it compiles
    assert SAID[script.stem] in done.stdout
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"

"""Node and the packages of the JavaScript client, where they can be had."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

JS_CLIENT = Path(__file__).parents[1] / "clients" / "js"
NO_PACKAGES = "NO NPM PACKAGES: npm is missing or its registry does not answer"
"""A reason to skip that CI accepts: the rest of the client is tested without any package."""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


def with_packages(folder: Path) -> Path:
    """A copy of the client with the packages of its lock file; skips the test where there are none."""
    copy = folder / "js"
    if not copy.exists():
        if not _registry_answers():
            pytest.skip(NO_PACKAGES)
        shutil.copytree(JS_CLIENT, copy, ignore=shutil.ignore_patterns("node_modules"))
        if not _npm("ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=copy):
            shutil.rmtree(copy)
            pytest.skip(NO_PACKAGES)
    return copy


@cache
def _registry_answers() -> bool:
    return shutil.which("npm") is not None and _npm("ping")


def _npm(*arguments: str, cwd: Path = JS_CLIENT) -> bool:
    """Whether it worked; a registry that does not answer is waited for up to five minutes."""
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(["npm", *arguments], cwd=cwd, capture_output=True, timeout=300)
        return done.returncode == 0
    return False

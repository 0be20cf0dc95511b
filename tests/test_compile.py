"""Kernels: compiled by Numba and cached, and plain Python where there is no Numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from deniable import _compile
from deniable._compile import compiled, is_cached


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(_compile, "kernel_folder", lambda: tmp_path)
    return tmp_path


def thrice(x: int) -> int:
    return 3 * x


def cache_path(kernel: Any) -> Path:
    return Path(kernel.stats.cache_path)


def test_a_kernel_is_kept_where_its_sources_say(folder: Path) -> None:
    assert not is_cached("thrice")
    kernel = compiled(thrice)
    assert kernel(5) == 15
    assert cache_path(kernel).is_relative_to(folder)
    assert is_cached("thrice")
    again: Any = compiled(thrice)
    assert again(5) == 15
    assert again.stats.cache_hits.total() == 1


def test_the_users_own_functions_are_kept_where_they_were(folder: Path) -> None:
    settings: Any = numba.config
    before = settings.CACHE_DIR
    compiled(thrice)
    assert before == settings.CACHE_DIR
    own = numba.njit(cache=True)(thrice)
    assert not cache_path(own).is_relative_to(folder)


def test_where_nothing_can_be_written_kernels_are_compiled_anyway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    monkeypatch.setattr(_compile, "kernel_folder", lambda: occupied)
    names: dict[str, Any] = {}
    exec(compile("def twice(x):\n    return 2 * x\n", "<no file>", "exec"), names)
    kernel: Any = compiled(names["twice"])
    assert kernel(4) == 8
    assert kernel.stats.cache_path is None


def test_without_numba_a_kernel_is_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compile, "is_installed", lambda _module: False)
    assert compiled(thrice) is thrice


def test_without_numba_the_simulator_names_the_extra() -> None:
    program = (
        "import sys\n"
        "sys.modules['numba'] = None\n"
        "from deniable.errors import MissingExtraError\n"
        "try:\n"
        "    import deniable.simulation.kernels.run\n"
        "except MissingExtraError as error:\n"
        "    print(error.extra)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "simulate", done.stderr


def test_the_name_of_the_folder_covers_constants_of_other_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A changed constant would otherwise be ignored: Numba looks at a kernel's own file alone."""
    monkeypatch.setattr(
        _compile, "hash_of_sources", lambda files: " ".join(file.name for file in files)
    )
    read = _compile.kernel_folder.__wrapped__().name.split()
    assert {"state.py", "rules.py", "leap.py", "joint_kernel.py", "_compile.py"} <= set(read)

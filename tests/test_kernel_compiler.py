"""Kernels: the same bits as by Numba's own compiler, and no code compiled more often than needed."""

from __future__ import annotations

import fcntl
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from deniable import _compile, _kernel_compiler
from deniable._compile import as_python, compiled
from deniable.simulation.kernels.leader import almost_surely_below
from deniable.simulation.kernels.random_numbers import generator_state, hypergeometric
from deniable.strategies.joint_model import spread_logs


def by_numba_alone(kernel: Any) -> Any:
    """The kernel, and all that it calls, compiled by Numba without any of our changes."""
    names = kernel.py_func.__code__.co_names
    called = {name: kernel.py_func.__globals__.get(name) for name in names}
    parts = {
        name: by_numba_alone(value)
        for name, value in called.items()
        if isinstance(value, _compile._Kernel)
    }
    return numba.njit(error_model="numpy")(as_python(kernel, **parts))


def test_draws_are_the_same_bits() -> None:
    usual = by_numba_alone(hypergeometric)
    mine, yours = (generator_state(np.random.SeedSequence(1)) for _ in range(2))
    cases = np.random.default_rng(2).integers(0, 10 ** np.arange(1, 10), (300, 9))
    for good, bad, sample in cases[:, [2, 4, 3]].tolist() + cases[:, [8, 7, 6]].tolist():
        drawn = min(sample, good + bad)
        assert hypergeometric(good, bad, drawn, mine) == usual(good, bad, drawn, yours)
    assert mine.tolist() == yours.tolist()


def test_branches_are_the_same() -> None:
    usual = by_numba_alone(almost_surely_below)
    counts = np.random.default_rng(3).integers(0, 500, (2_000, 4))
    found = set()
    for n, c, m, s in counts.tolist():
        arguments = (min(c, n), n, min(s, m), m, min(c, n) // 3, n, min(s, m) // 4, m)
        found.add(almost_surely_below(*arguments))
        assert almost_surely_below(*arguments) == usual(*arguments)
    assert found == {True, False}


def test_arrays_are_the_same_bits() -> None:
    usual = by_numba_alone(spread_logs)
    random = np.random.default_rng(4)
    for _ in range(20):
        relative, variance = random.normal(size=(4, 3)), random.exponential(size=(4, 3))
        assert spread_logs(relative, variance).tobytes() == usual(relative, variance).tobytes()


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of what machine code is made of, in an empty cache."""
    names: list[str] = []
    usual: Callable[..., None] = JITCodeLibrary._finalize_specific

    def noted(library: Any) -> None:
        if library.name != "nrt":  # Numba's runtime: once in a process, with whatever comes first
            names.append(library.name.rpartition(".")[2])
        usual(library)

    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", noted)
    monkeypatch.setattr(_compile, "kernel_folder", lambda: tmp_path)
    return names


def test_machine_code_is_made_of_what_python_calls(finished: list[str]) -> None:
    @compiled
    def lowest(x: int) -> int:
        return 3 * x

    @compiled
    def middle(x: int) -> int:
        return lowest(x) + lowest(x + 1)

    @compiled
    def upper(x: int) -> int:
        return 2 * middle(x)

    @compiled
    def top(x: int) -> int:  # finds `lowest` through two others
        return upper(x) - 1

    assert top(2) == 2 * (6 + 9) - 1
    assert finished == ["top"]
    assert middle(2) == 6 + 9  # what is a part of another kernel can still be called
    assert finished == ["top", "middle"]


def test_a_known_number_is_no_reason_to_compile_again(finished: list[str]) -> None:
    @compiled
    def added(x: int, y: int) -> int:
        return x + y

    @compiled
    def summed(n: int) -> int:
        found = 0
        for i in range(n):
            found = added(found, i)
        return added(found, 5)

    assert summed(4) == 0 + 1 + 2 + 3 + 5
    part: Any = added
    assert len(part._part.overloads) == 1


def test_numba_is_left_as_it_was() -> None:
    look_up = numba.types.Function.get_call_type

    @compiled
    def wrong(x: int) -> int:
        return x.no_such_attribute  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(numba.TypingError):
        wrong(1)
    assert numba.types.Function.get_call_type is look_up


def loaded(path: Path) -> Any:
    """A module that is not part of a package."""
    path.parent.mkdir()
    path.write_text(
        "from deniable._compile import compiled\n\n@compiled\ndef twice(x):\n    return 2 * x\n"
    )
    spec = importlib.util.spec_from_file_location("elsewhere", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("finished")
def test_a_second_installation_compiles_nothing(tmp_path: Path) -> None:
    found = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        twice = loaded(tmp_path / place / "package" / "kernels.py").twice
        assert twice(4) == 8
        found.append(kernel_of(twice).stats.cache_hits.total())
    assert found == [0, 1]


@pytest.mark.usefixtures("finished")
def test_what_another_process_compiles_meanwhile_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def once(x: int) -> int:
        return 5 * x

    mine, others = compiled(once), compiled(once)

    def waiting(_file: object, _how: int) -> None:
        monkeypatch.undo()
        assert kernel_of(others).compile((numba.int64,)) is not None

    kernel_of(mine), kernel_of(others)  # both know where
    monkeypatch.setattr(fcntl, "flock", waiting)
    assert mine(3) == 15
    assert kernel_of(mine).stats.cache_hits.total() == 1


def kernel_of(function: Any) -> Any:
    return function._whole


def test_constants_of_other_files_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed constant would otherwise be ignored: Numba looks at a kernel's own file alone."""
    monkeypatch.setattr(
        _compile, "hash_of_sources", lambda files: " ".join(file.name for file in files)
    )
    read = _compile.kernel_folder.__wrapped__().name.split()
    assert {"state.py", "rules.py", "leap.py", "_kernel_compiler.py"} <= set(read)


@pytest.mark.usefixtures("finished")
def test_whoever_is_stuck_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def thrice(x: int) -> int:
        return 3 * x

    monkeypatch.setattr(_kernel_compiler, "_PATIENCE", 0.2)
    kernel = compiled(thrice)
    kernel_of(kernel)
    place = tmp_path / Path(__file__).parent.name
    with (place / "thrice.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kernel(2) == 6
